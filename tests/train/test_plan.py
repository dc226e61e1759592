"""A rank's plan and place: read, translated from Slurm, held against each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.train.plan import find_place, plan_from_json, read_plan, set_place
from tests.train.harness import ROOT

DOCUMENT: dict[str, Any] = {
    "schema": 1, "run_id": "r", "attempt": 0, "arguments": ["--bf16"], "world_size": 4, "device": "cpu",
    "megatron_core": "0.19.2", "rehearsal": True, "attempt_folder": "/a", "stop_file": "/a/stop",
    "exit_signal": "SIGUSR2", "schedule_iters": 48000, "environment": {"A": "1"},
}  # fmt: skip
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
RANK = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (SLURM, {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}),
        (SLURM | RANK, RANK),  # the launcher's names win
        ({}, {}),
    ],
)
def test_slurm_names_are_translated_only_where_rank_is_absent(
    environment: dict[str, str], expected: dict[str, str]
) -> None:
    seen = dict(environment)
    set_place(seen)
    assert {name: value for name, value in seen.items() if not name.startswith("SLURM")} == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"WORLD_SIZE": "8"}, "the world has 8 ranks, the plan 4"),
        ({"RANK": "4"}, "rank 4 is outside a world of 4"),
        ({"RANK": ""}, "has no RANK"),
        ({"RANK": "-1"}, "a wrong RANK"),
        ({"LOCAL_RANK": "x"}, "a wrong LOCAL_RANK"),
    ],
)
def test_a_place_that_is_not_the_plans_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(SeatrialError, match=message):
        find_place(RANK | change, plan_from_json(DOCUMENT))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "not a plan of schema 1"),
        (DOCUMENT | {"schema": 2}, "not a plan of schema 1"),
        ({name: value for name, value in DOCUMENT.items() if name != "stop_file"}, "the plan lacks a key"),
        (DOCUMENT | {"device": "tpu"}, "unknown device"),
        (DOCUMENT | {"world_size": "many"}, "wrong type"),
        (DOCUMENT | {"environment": []}, "wrong type"),
    ],
)
def test_a_wrong_plan_is_refused(document: object, message: str) -> None:
    with pytest.raises(SeatrialError, match=message):
        plan_from_json(document)


@pytest.mark.parametrize("content", [None, "", "{", '{"schema": 1'])
def test_an_unreadable_plan_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SeatrialError, match="cannot read the plan"):
        read_plan(path)


def test_a_wrong_world_is_refused_before_torch_and_megatron_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(DOCUMENT | {"attempt_folder": str(tmp_path), "stop_file": str(tmp_path / "stop")}))
    code = (
        "import sys; from seatrial.train import rank; code = rank.main([sys.argv[1]]);"
        "print(code, 'torch' in sys.modules, 'megatron' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={"PYTHONPATH": str(ROOT / "launchers"), "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["2", "False", "False"], done.stderr
    record = json.loads((tmp_path / "exit-00000.json").read_text())
    assert (record["code"], record["how"], record["exception"]) == (2, "exception", "SeatrialError")
    assert "the world has 2 ranks, the plan 4" in record["message"]


def test_run_by_path_a_rank_imports_its_own_tree_and_nothing_beside_itself(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv[1].rpartition('/')[0]);"
        "rank = runpy.run_path(sys.argv[1]); rank['set_import_path']();"
        "import seatrial; print(seatrial.__file__); print('data' in {p.rpartition('/')[2] for p in sys.path});"
        "import importlib.util; print(importlib.util.find_spec('evidence'))"
    )
    path = ROOT / "launchers" / "seatrial" / "train" / "rank.py"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=tmp_path, env={})
    assert done.stdout.split() == [str(ROOT / "launchers" / "seatrial" / "__init__.py"), "False", "None"], done.stderr
