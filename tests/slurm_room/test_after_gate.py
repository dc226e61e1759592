"""A gate and the run that waits for it: both are submitted, or nothing is left. Slurm's commands are scripted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.after_gate import Pair, submit_after_gate, withdraw
from seatrial.slurm.state_needs import dependency_failed
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.slurm_room.fakes import FakeCommands, Reply

NANO = "nemotron_3_nano_gb200"
REFUSED = Reply(err="sbatch: error: Batch job submission failed: Invalid partition name specified\n", rc=1)
UNABLE = Reply(err="scancel: error: Kill job error on job id 7: Access/permission denied\n", rc=1)
GONE = Reply(err="slurm_update error: Invalid job id specified\n", rc=1)


def spec(kind: str, runs: Path) -> RunSpec:
    return resolve(NANO, "slurm-sandbox", kind, [("profile.paths.runs", json.dumps(str(runs)))])


def both(fake: FakeCommands, runs: Path) -> Pair:
    return submit_after_gate(spec("gate", runs), spec("convergence", runs), allow_dirty=True, slurm=fake.slurm())


def commands(fake: FakeCommands, **replies: Any) -> None:
    for name in ("sbatch", "scontrol", "scancel", "squeue", "sacct"):
        given = replies.get(name, [Reply("7\n"), Reply("8\n")] if name == "sbatch" else [Reply()])
        fake.script(name, *given)


def test_both_are_submitted_and_know_of_each_other(fake: FakeCommands, tmp_path: Path) -> None:
    commands(fake)
    pair = both(fake, tmp_path / "runs")
    gate, run = pair.gate.folder.path, pair.run.folder.path
    assert ["--hold" in call for call in fake.calls("sbatch")] == [True, False]
    assert "--dependency=singleton\n" in (gate / "batch.sh").read_text()
    assert "--dependency=singleton,afterok:7\n" in (run / "batch.sh").read_text()
    assert fake.calls("scontrol") == [["release", "7"]]
    assert fake.calls("scancel") == []
    assert json.loads((gate / "dependents.json").read_text()) == [
        {"run": run.name, "folder": str(run), "job_id": "8", "cluster": None}
    ]
    admission = {"how": "after-gate", "gate": gate.name, "folder": str(gate), "reason": None, "verdict_time": None}
    documents = [records.read_json(folder / "spec.json") for folder in (gate, run)]
    assert [document["admission"] for document in documents] == [None, admission]
    assert documents[0]["same"] == documents[1]["same"]
    assert {"class", "pattern"} <= documents[1]["failures"][0].keys()
    (event,) = [e for e in records.read_lines(run / "events.jsonl") if e["event"] == "admission"]
    assert admission.items() <= event.items()


@pytest.mark.parametrize(
    ("replies", "cancelled"),
    [
        ({"sbatch": [REFUSED]}, []),
        ({"sbatch": [Reply("7\n"), REFUSED]}, ["7"]),
        ({"scontrol": [GONE]}, ["8", "7"]),
        ({"scontrol": [Reply(err="slurm_update error: Access/permission denied\n", rc=1)]}, ["8", "7"]),
    ],
    ids=["no gate", "no run", "the gate is gone", "no release"],
)
def test_where_one_fails_nothing_is_left(
    fake: FakeCommands, tmp_path: Path, replies: dict[str, Any], cancelled: list[str]
) -> None:
    commands(fake, **replies)
    with pytest.raises(SeatrialError):
        both(fake, tmp_path / "runs")
    assert [call[-1] for call in fake.calls("scancel")] == cancelled
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_job_that_cannot_be_cancelled_is_named_and_keeps_its_folder(fake: FakeCommands, tmp_path: Path) -> None:
    commands(fake, sbatch=[Reply("7\n"), REFUSED], scancel=[UNABLE])
    with pytest.raises(SeatrialError) as caught:
        both(fake, tmp_path / "runs")
    (kept,) = (tmp_path / "runs").iterdir()
    assert "scancel 7" in str(caught.value) and str(kept) in str(caught.value)
    assert "Invalid partition name" in str(caught.value)


def test_a_run_whose_gate_failed_is_cancelled_and_told_once(fake: FakeCommands, tmp_path: Path) -> None:
    commands(fake)
    run = both(fake, tmp_path / "runs").run.folder
    for _ in range(2):
        said = withdraw(RunFolder(run.path), "the verdict of gate g is FAIL", fake.slurm())
    assert said == "dependency_failed: the verdict of gate g is FAIL; the run is cancelled"
    assert [call[-1] for call in fake.calls("scancel")] == ["8", "8"]
    (decision,) = [e for e in records.read_lines(run.events) if e["event"] == "decision"]
    assert (decision["decision"], decision["class"]) == ("stop", "dependency_failed")


@pytest.mark.parametrize(
    ("state", "reason", "failed"),
    [
        ("PENDING", "DependencyNeverSatisfied", True),
        ("PENDING", "Dependency", False),
        ("PENDING", "Resources", False),
        ("CANCELLED", "DependencyNeverSatisfied", False),
        ("RUNNING", "None", False),
    ],
)
def test_a_dependency_that_never_comes(state: str, reason: str, failed: bool) -> None:
    assert dependency_failed(state, reason) is failed
