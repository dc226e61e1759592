"""Records survive a crash at any byte, and two writers."""

from __future__ import annotations

import json
import math
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.run import records


@given(st.floats() | st.none())
def test_floats_survive(value: float | None) -> None:
    back = records.decode_float(json.loads(json.dumps(records.encode_float(value), allow_nan=False)))
    assert back == value or (back is not None and value is not None and math.isnan(back) and math.isnan(value))


def test_a_cut_at_every_byte_leaves_readable_lines(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    entries = [{"step": n, "text": "zwölf\n" * n} for n in range(4)]
    for entry in entries:
        records.append_line(whole, entry)
    data = whole.read_bytes()
    for cut in range(len(data) + 1):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(data[:cut])
        before = list(records.read_lines(path))
        assert before == entries[: len(before)]
        records.append_line(path, {"after": cut})
        after = list(records.read_lines(path))
        assert after[-1] == {"after": cut}
        # A line that lacked nothing but its end counts as written once it is closed.
        assert after[:-1] == entries[: len(after) - 1]


def test_a_tail_gives_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    tail = records.Tail(path)
    assert tail.read() == []
    records.append_line(path, 1)
    with path.open("a") as stream:
        stream.write('{"torn": ')
    assert tail.read() == [1]
    assert tail.read() == []
    with path.open("a") as stream:
        stream.write("2}\n")
    assert tail.read() == [{"torn": 2}]


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = (
        "from seatrial.run import records; from pathlib import Path\n"
        f"for n in range(200): records.append_event(Path({str(path)!r}), 'tick', n=n, filling='x' * 500)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [w.wait() for w in writers] == [0, 0]
    assert sorted(e["n"] for e in records.read_lines(path)) == sorted([*range(200), *range(200)])


def test_a_document_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    records.write_json(path, {"a": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="JSON"):
        records.write_json(path, {"a": math.nan})
    assert records.read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
    assert records.read_json(tmp_path / "none.json") is None


def test_an_event_may_have_a_path(tmp_path: Path) -> None:
    records.append_event(tmp_path / "e.jsonl", "checkpoint_saved", path="/x")
    assert next(records.read_lines(tmp_path / "e.jsonl"))["path"] == "/x"


def test_torn_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b":\n\xff\n' + b"[" * 100_000 + b"\n7\n")
    tail = records.Tail(path)
    assert tail.read() == [{"a": 1}, 7]
    assert tail.skipped == 3


def test_a_line_is_not_refused_for_a_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records.append_line(path, {"deep": [{"loss": math.nan}, (math.inf, 1.5)], "n": -math.inf, "text": "nan"})
    assert list(records.read_lines(path)) == [{"deep": [{"loss": "nan"}, ["inf", 1.5]], "n": "-inf", "text": "nan"}]
