"""Bytes on disk for checkpoints, and the room for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seatrial.check.parameters import count_parameters
from seatrial.check.shape import shape_of
from seatrial.check.storage import Storage, check_storage, free_bytes, judge_storage, storage_of
from seatrial.spec.profile import Recovery
from seatrial.spec.resolve import resolve
from tests.check.specs import build

GB = 10**9


# The card of Nemotron 3.5 Lightning says 430 GiB for each checkpoint.
@pytest.mark.parametrize(
    ("recipe", "change", "size"),
    [
        ("nemotron_3_nano_gb200", [], 442.1e9),
        ("qwen35_9b_gb200", [], 128.8e9),
        ("qwen35_35b_a3b_gb200", [], 497.1e9),
        ("nemotron_3_nano_gb200",
         [("model.mtp_num_layers", "2"), ("model.mtp_hybrid_override_pattern", '"*E"'),
          ("model.mtp_use_repeated_layer", "true")], 430 * 2**30),
        ("nemotron_3_nano_gb200", [("checkpoint.save_optim", "false")], 63.2e9),
    ],
)  # fmt: skip
def test_a_checkpoint(recipe: str, change: list[tuple[str, str]], size: float) -> None:
    found = storage_of(resolve(recipe, "gb200-8gpu", "gate", change))
    assert found.checkpoint == pytest.approx(size, rel=0.003)
    assert (found.kept, found.at_once) == (2, 2)


@pytest.mark.parametrize(
    ("change", "per_parameter"),
    [
        ({}, 14),
        ({"save_optim": False}, 2),
        ({"bf16": None, "fp16": True}, 14),
        ({"bf16": None}, 12),
        ({"bf16": None, "save_optim": False}, 4),
    ],
)
def test_bytes_per_parameter(change: dict[str, Any], per_parameter: int) -> None:
    spec = build(**change)
    assert storage_of(spec).checkpoint == per_parameter * count_parameters(shape_of(spec)).whole_model.total


@pytest.mark.parametrize(
    ("kind", "steps", "every", "last", "each", "written", "kept", "at_once"),
    [
        ("gate", 100, 50, 3, None, 2, 2, 2),
        ("gate", 100, 100, 3, None, 1, 1, 1),
        ("gate", 100, 30, 1, None, 4, 4, 4),  # 30, 60, 90 and the last step; a gate keeps all until its verdict
        ("gate", 100, None, 3, None, 1, 1, 1),
        ("convergence", 48000, 1000, 3, None, 48, 4, 4),  # the last three, and the one being written
        ("convergence", 48000, 1000, 1, None, 48, 2, 2),
        ("convergence", 48000, 1000, 3, 10000, 48, 8, 4),  # 10, 20, 30 and 40 thousand besides
        ("convergence", 48000, 1000, 3, 15000, 48, 6, 4),  # 45,000 is one of the last three
        ("convergence", 48000, 1000, 99, None, 48, 48, 48),
        ("convergence", 4000, 2000, 3, None, 2, 2, 2),
        ("convergence", 4100, 2000, 3, None, 3, 3, 3),
    ],
)
def test_how_many(
    kind: Any, steps: int, every: int | None, last: int, each: int | None, written: int, kept: int, at_once: int
) -> None:
    recovery = Recovery(checkpoints_kept=last, checkpoints_kept_every=each).model_dump()
    found = storage_of(build(kind=kind, train_iters=steps, save_interval=every, profile={"recovery": recovery}))
    assert (found.written, found.kept, found.at_once) == (written, kept, at_once)


@pytest.mark.parametrize(
    ("kind", "free", "severity", "words"),
    [
        ("gate", 199, "error", "199.0 GB are free there, the run writes 2 checkpoints of 100.0 GB = 200.0 GB"),
        ("gate", 200, "warning", "less than twice the 200.0 GB"),
        ("gate", 399, "warning", "less than twice"),
        ("gate", 400, None, ""),
        ("gate", None, None, ""),
        ("convergence", 399, "error", "the run writes 4 checkpoints of 100.0 GB = 400.0 GB"),
        ("convergence", 799, "warning", "799.0 GB are free there, all 8 checkpoints take 800.0 GB"),
        ("convergence", 800, None, ""),
    ],
)
def test_room(kind: Any, free: int | None, severity: str | None, words: str) -> None:
    recovery = Recovery(checkpoints_kept_every=10000).model_dump()
    spec = build(kind=kind, profile={"recovery": recovery})
    storage = Storage(100 * GB, 2, 2, 2) if kind == "gate" else Storage(100 * GB, 48, 8, 4)
    note, *rest = judge_storage(spec, storage, None if free is None else free * GB)
    retention = (
        "8 checkpoints of 100.0 GB = 800.0 GB in the run folder: the last 3, every 10,000 steps one, and the one"
    )
    assert note.severity == "note" and (retention in note.rule) == (kind == "convergence")
    assert [finding.severity for finding in rest] == ([severity] if severity else [])
    if rest:
        assert rest[0].field == "profile.paths.runs" and words in rest[0].rule and "profile.paths.runs=" in rest[0].fix


def test_a_rehearsal_speaks_only_where_the_disk_is_full() -> None:
    spec = build("9b", "local-cpu")
    assert list(judge_storage(spec, Storage(GB, 2, 2, 2), 100 * GB)) == []
    assert [finding.severity for finding in judge_storage(spec, Storage(GB, 2, 2, 2), 0)] == ["error"]


def test_the_disk_itself(tmp_path: Path) -> None:
    there = os.statvfs(tmp_path)
    assert free_bytes(str(tmp_path)) == pytest.approx(there.f_bavail * there.f_frsize, rel=0.1)
    assert free_bytes(str(tmp_path / "absent")) is None
    assert free_bytes("bad\0name") is None
    paths = {"runs": str(tmp_path), "data": "/data"}
    found = list(check_storage(build("9b", profile={"paths": paths}, save_interval=1)))
    assert [f.severity for f in found] == ["note", "error"], "this machine has room for 100 checkpoints of 129 GB"
    assert list(check_storage(build(hidden_size=None))) == []


def test_the_time_of_a_save_is_told_where_the_rate_is_known() -> None:
    spec = build("nano", kind="gate", profile={"disk_gb_per_second": 10.0})
    rules = [f.rule for f in judge_storage(spec, storage_of(spec), None)]
    assert any("one save takes about 43 s at 10 GB/s" in rule for rule in rules)
