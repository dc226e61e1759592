from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.data.indexed import read_index, token_ids, tokens_between
from seatrial.data.splits import parse_split, sequence_range
from seatrial.data.text import END_OF_DOCUMENT, LONGEST, VOCABULARY, documents, ensure_text, prefix
from seatrial.errors import SeatrialError

PACKAGE_ROOT = Path(__file__).resolve().parents[2] / "launchers"


def test_text_fills_every_split(tmp_path: Path) -> None:
    summary = read_index(ensure_text(tmp_path / "made" / "on the way"))
    tokens = [tokens_between(summary, *sequence_range(b, summary.sequences)) for b in parse_split("90,5,5")]
    assert tokens[0] > 350_000
    assert min(tokens[1:]) > 20_000
    assert sum(tokens) == summary.tokens


def test_tokens_are_the_documents(tmp_path: Path) -> None:
    texts = documents()
    ids = list(token_ids(read_index(ensure_text(tmp_path))))
    assert ids == [token for text in texts for token in (*text, END_OF_DOCUMENT)]
    assert max(ids) == VOCABULARY - 1
    assert max(map(len, texts)) <= LONGEST
    assert min(map(len, texts)) > 0


def test_nothing_of_the_topics_is_lost() -> None:
    from pydoc_data.topics import topics

    kept = sum(len(text.split()) for text in documents())
    assert kept == pytest.approx(sum(len(text.encode().split()) for text in topics.values()), rel=1e-3)


def test_built_once_and_mended(tmp_path: Path) -> None:
    made = ensure_text(tmp_path)
    data = Path(made + ".bin")
    before = data.stat()
    assert ensure_text(tmp_path) == made
    assert data.stat() == before
    whole = data.read_bytes()
    data.write_bytes(whole[:-100])
    assert ensure_text(tmp_path) == made
    assert data.read_bytes() == whole
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".bin", ".idx"]


def test_two_processes_at_once(tmp_path: Path) -> None:
    code = "import sys; from seatrial.data.text import *; print(ensure_text(Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(PACKAGE_ROOT)}
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    prefixes = {process.communicate(timeout=600)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert prefixes == {ensure_text(tmp_path)}
    assert len(list(tmp_path.iterdir())) == 2


def test_prefix_is_known_before_the_text_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = prefix("~/data")
    assert list(tmp_path.iterdir()) == []
    assert ensure_text("~/data") == expected
    assert expected.startswith(f"{tmp_path}/data/")


def test_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SeatrialError, match="cannot write"):
        ensure_text(tmp_path / "file" / "below")
