"""The embedding has a row for each id of the tokenizer, where the tokenizer can be read from here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.check.vocabulary import check_vocabulary, tokenizer_vocabulary
from tests.check.specs import build

BPE = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 7}}}
UNIGRAM = {"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}}
ADDED = {"added_tokens": [{"id": 9, "content": "<eod>"}]}


@pytest.mark.parametrize(
    ("files", "rows", "found"),
    [
        ({"tokenizer.json": BPE}, 8, []),
        ({"tokenizer.json": BPE}, 7, [("error", "at least the 8 ids")]),
        ({"tokenizer.json": BPE | ADDED}, 9, [("error", "at least the 10 ids")]),
        ({"tokenizer.json": BPE | ADDED}, 10, []),
        ({"tokenizer.json": UNIGRAM}, 1, [("error", "at least the 2 ids")]),
        ({"tokenizer.json": UNIGRAM | ADDED}, 10, []),
        # The model that it came with may pad its vocabulary, so it only warns.
        ({"config.json": {"vocab_size": 10}}, 9, [("warning", "at least the 10 ids")]),
        ({"config.json": {"text_config": {"vocab_size": 10}}}, 9, [("warning", "at least the 10 ids")]),
        ({"config.json": {"vocab_size": 99}, "tokenizer.json": BPE}, 8, []),
        ({}, 8, [("note", "cannot be read from here")]),
        ({"tokenizer.json": []}, 8, [("note", "cannot be read")]),
        ({"tokenizer.json": {"model": {"vocab": "?"}, "added_tokens": [1]}}, 8, [("note", "cannot be read")]),
    ],
)
@pytest.mark.parametrize("kind", ["gate", "convergence"])
def test_a_folder(files: dict[str, Any], rows: int, found: list[tuple[str, str]], kind: Any, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    spec = build(kind=kind, padded_vocab_size=rows, tokenizer_model=str(tmp_path))
    seen = list(check_vocabulary(spec))
    assert [f.severity for f in seen] == [severity for severity, _ in found]
    assert all(words in f.rule for f, (_, words) in zip(seen, found, strict=True))
    assert all(f.field == "model.padded_vocab_size" for f in seen if f.severity != "note")


def test_it_is_looked_for_where_it_is_mounted_from(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(BPE))
    container = {"image": "/i.sqsh", "mounts": [f"{tmp_path}:/inside"]}
    spec = build(tokenizer_model="/inside", profile={"container": container})
    found = tokenizer_vocabulary(spec)
    assert found is not None and found.size == 8


@pytest.mark.parametrize("name", ["nvidia/a-name-on-a-hub", "relative", "/absent"])
def test_what_cannot_be_read_is_a_note(name: str) -> None:
    (found,) = check_vocabulary(build(tokenizer_model=name))
    assert (found.severity, found.field) == ("note", "model.tokenizer_model")


def test_the_null_tokenizer_says_its_own_size() -> None:
    sizes = {"tokenizer_type": "NullTokenizer", "vocab_size": 257}
    assert list(check_vocabulary(build(padded_vocab_size=257, **sizes))) == []
    assert [f.severity for f in check_vocabulary(build(padded_vocab_size=256, **sizes))] == ["error"]
    assert list(check_vocabulary(build(padded_vocab_size=None, **sizes))) == [], "Megatron pads the tokenizer's own"
