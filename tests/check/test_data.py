"""Data: files that are there, and enough tokens in each split."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from seatrial.check.data import check_splits
from seatrial.check.datasets import Data, Part, host_path
from seatrial.check.findings import run_checks
from seatrial.data.indexed import encode_index
from tests.check.specs import build, errors

UINT16 = 8


def write(prefix: Path, tokens: int, sequences: int = 100, highest: int = 0) -> str:
    """Write data of ``tokens`` tokens in equal sequences; the .bin is sparse but for its last token."""
    assert tokens % sequences == 0
    Path(f"{prefix}.idx").write_bytes(encode_index([tokens // sequences] * sequences, UINT16))
    with Path(f"{prefix}.bin").open("wb") as stream:
        stream.truncate(2 * tokens)
        stream.seek(2 * tokens - 2)
        stream.write(array("H", [highest]).tobytes())
    return str(prefix)


SMALL = {"mock_data": False, "seq_length": 64, "max_position_embeddings": 64, "global_batch_size": 16,
         "eval_iters": 2, "lr_decay_iters": 100, "lr_warmup_iters": 1}  # fmt: skip
# What SMALL takes: 100 x 16 x 64 + 1 train tokens, 2 x 16 x 64 + 1 of validation and of test.
TRAIN, EVAL = 102_401, 2_049


@pytest.mark.parametrize(
    ("tokens", "split", "expected"),
    [
        (150_000, "90,5,5", {}),
        (TRAIN - 1, "100,0,0", {"train": "data.split", "validation": "data.split", "test": "data.split"}),
        (110_000, "90,5,5", {"train": "data.split"}),
        (150_000, "98,1,1", {"validation": "data.split", "test": "data.split"}),
        (150_000, "95,5", {"test": "data.split"}),
        (150_000, None, {"test": "data.data_path", "validation": ""}),  # Megatron's 969, 30, 1 leaves test too little
    ],
)
def test_enough_tokens_in_each_split(tmp_path: Path, tokens: int, split: str | None, expected: dict[str, str]) -> None:
    prefix = write(tmp_path / "set", tokens)
    found = errors(build("9b", data_path=[prefix], split=split, **SMALL))
    assert {f.rule.split()[0 if " takes " in f.rule else 1]: f.field for f in found} == {
        name: field for name, field in expected.items() if field
    }


def test_a_data_set_of_nearly_no_tokens(tmp_path: Path) -> None:
    found = errors(build("9b", data_path=[write(tmp_path / "set", 100)], **SMALL))
    assert len(found) == 3
    assert all("at least one sample" in f.rule for f in found)


def splits(train: list[Part], **more: list[Part]) -> Data:
    parts = {"train": train, "valid": [Part("/v", None, 10**12)], "test": [Part("/t", None, 10**12)]} | more
    return Data(parts, dict.fromkeys(parts, "data_path"), [])


@pytest.mark.parametrize(
    ("train", "short"),
    [
        ([Part("/a", None, TRAIN)], []),
        ([Part("/a", None, TRAIN - 1)], ["each would be read 1.00 times"]),
        ([Part("/a", 0.25, 25_601), Part("/b", 0.75, 76_801)], []),
        ([Part("/a", 0.25, 25_600), Part("/b", 0.75, 10**9)], ["are in /a"]),
        ([Part("/a", 0.25, 40), Part("/b", 0.75, 10**9)], ["at least one sample (64 tokens and one more) in /a"]),
        ([Part("/a", 0.0, 40), Part("/b", 1.0, 10**9)], []),
        ([Part("/a", None, 51_201), Part("/b", None, 51_201)], []),
        ([Part("/a", None, 51_200), Part("/b", None, 51_201)], ["without weights, Megatron ends there"]),
        ([Part("/a", None, 3), Part("/b", None, TRAIN)], []),
        ([Part("/a", None, 0)], ["at least one sample"]),
    ],
)
def test_blends(train: list[Part], short: list[str]) -> None:
    found = list(check_splits(build("9b", **SMALL), splits(train)))
    assert len(found) == len(short)
    assert all(words in f.rule and f.severity == "error" for f, words in zip(found, short, strict=True))


def test_validation_counts_every_evaluation() -> None:
    valid = [Part("/v", None, 3 * (EVAL - 1) + 1)]
    spec = build("9b", **(SMALL | {"eval_interval": 50}))
    assert list(check_splits(spec, splits([Part("/a", None, TRAIN)], valid=valid))) == []
    spec = build("9b", **(SMALL | {"eval_interval": 33}))
    (found,) = check_splits(spec, splits([Part("/a", None, TRAIN)], valid=valid))
    assert found.rule.startswith("validation takes 8,193 tokens")
    spec = build("9b", full_validation=True, **(SMALL | {"eval_interval": 33}))
    assert list(check_splits(spec, splits([Part("/a", None, TRAIN)], valid=valid))) == []


def test_schedule_longer_than_the_data_is_a_warning() -> None:
    spec = build("9b", **(SMALL | {"lr_decay_iters": 1000}))
    (found,) = check_splits(spec, splits([Part("/a", None, TRAIN)]))
    assert (found.severity, found.field) == ("warning", "data.data_path")
    assert "1,000 steps take 1.02M tokens" in found.rule


def test_a_rehearsal_may_repeat_its_text() -> None:
    spec = build("9b", "local-cpu", **SMALL)
    assert [f.severity for f in check_splits(spec, splits([Part("/a", None, 1000)]))] == ["warning"]
    assert [f.severity for f in check_splits(spec, splits([Part("/a", None, 10)]))] == ["error"]


def test_per_split_data(tmp_path: Path) -> None:
    train, rest = write(tmp_path / "train", 110_000), write(tmp_path / "rest", 2_100)
    paths: dict[str, Any] = {"train_data_path": [train], "valid_data_path": [rest], "test_data_path": ["1", rest]}
    assert errors(build("9b", **SMALL, **paths)) == []
    (found,) = errors(build("9b", **SMALL, **(paths | {"valid_data_path": None})))
    assert "needs validation data" in found.rule
    table = tmp_path / "splits.json"
    table.write_text(json.dumps({"train": [train], "valid": rest, "test": rest}))
    assert errors(build("9b", **SMALL, per_split_data_args_path=str(table))) == []
    words = tmp_path / "blend.txt"
    words.write_text(f"1 {train} 1 {train}")
    assert errors(build("9b", **SMALL, data_args_path=str(words), split="94,3,3")) == []


def test_damaged_data_names_the_file(tmp_path: Path) -> None:
    prefix = write(tmp_path / "set", 150_000)
    path = Path(prefix + ".bin")
    path.write_bytes(path.read_bytes()[:-1])
    (found,) = errors(build("9b", data_path=[prefix], split="90,5,5", **SMALL))
    assert (found.field, found.value) == ("data.data_path", str(path))
    assert "299999 bytes" in found.rule
    path.write_bytes(bytes(300_002))
    (found,) = [
        f for f in run_checks(build("9b", data_path=[prefix], split="90,5,5", **SMALL)) if f.severity == "warning"
    ]
    assert "it has 300,002" in found.rule


@pytest.mark.parametrize(
    ("sizes", "field"),
    [
        ({"vocab_size": 257}, None),
        ({"vocab_size": 256}, "model.vocab_size"),
        ({"vocab_size": 257, "padded_vocab_size": 256}, "model.padded_vocab_size"),
        ({"vocab_size": 100, "tokenizer_type": "HuggingFaceTokenizer"}, None),
    ],
)
def test_token_ids_fit_the_vocabulary(tmp_path: Path, sizes: dict[str, Any], field: str | None) -> None:
    prefix = write(tmp_path / "set", 150_000, highest=256)
    given = {"tokenizer_type": "NullTokenizer", "padded_vocab_size": 264} | SMALL | sizes
    found = errors(build("9b", data_path=[prefix], split="90,5,5", **given))
    assert {f.field for f in found} == ({field} if field else set())


def test_object_stores_cannot_be_checked() -> None:
    found = [f for f in run_checks(build("9b", **SMALL, data_path=["s3://bucket/set"])) if f.severity == "warning"]
    assert ["object store" in f.rule for f in found] == [True]


@pytest.mark.parametrize(
    ("path", "mounts", "host"),
    [
        ("/data/a", [], "/data/a"),
        ("/data/a", ["/lustre/sets:/data"], "/lustre/sets/a"),
        ("/data/a", ["/lustre/sets:/data:ro"], "/lustre/sets/a"),
        ("/data/a", ["/lustre:/data", "/nvme:/data/a"], "/nvme"),
        ("/database/a", ["/lustre:/data"], "/database/a"),
        ("/lustre/a", ["/lustre"], "/lustre/a"),
        ("/data/a", ["/lustre/:/data/"], "/lustre/a"),
        ("/x/a", ["/:/x"], "/a"),
    ],
)
def test_where_a_mounted_path_lies(path: str, mounts: list[str], host: str) -> None:
    assert host_path(path, mounts) == host


def test_data_is_looked_for_where_it_is_mounted_from(tmp_path: Path) -> None:
    write(tmp_path / "set", 150_000)
    container = {"image": "/i.sqsh", "mounts": [f"{tmp_path}:/inside"]}
    spec = build("9b", data_path=["/inside/set"], split="90,5,5", profile={"container": container}, **SMALL)
    assert errors(spec) == []


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({}, None, ""),
        ({"data_path": None}, "data.data_path", "data is named"),
        ({"data_path": None, "mock_data": True}, "data.mock_data", "shows nothing"),
        ({"data_path": ["0.5", "{set}", "0.5", "/absent"]}, "data.data_path", "not found"),
        ({"train_iters": 200}, "data.split", "train takes"),
        ({"split": "98,1,1"}, "data.split", "validation takes"),
        ({"split": "95,5"}, "data.split", "test"),
        ({"padded_vocab_size": 256}, "model.padded_vocab_size", "at least the 257 ids"),
    ],
)
def test_what_a_convergence_run_needs(tmp_path: Path, change: dict[str, Any], field: str | None, words: str) -> None:
    prefix = write(tmp_path / "set", 150_000)
    given = {"data_path": [prefix], "split": "90,5,5", "tokenizer_type": "NullTokenizer", "vocab_size": 257} | change
    if given["data_path"]:
        given["data_path"] = [item.replace("{set}", prefix) for item in given["data_path"]]
    found = errors(build("9b", kind="convergence", **(SMALL | given)))
    assert {f.field for f in found} == ({field} if field else set())
    assert not field or any(words in f.rule for f in found)
