"""`seatrial prune`: what goes, what stays, what is refused, and how many bytes that frees."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge.collect import _checkpoints
from seatrial.run import checkpoint, records, retention
from seatrial.run.layout import RunFolder
from seatrial.supervise.lock import only_supervisor
from tests.cli.verbs import verb
from tests.run.test_checkpoint import make, torchs_names

__all__ = ["torchs_names"]  # a fixture
STEPS = (100, 200, 300, 400, 500)


def make_run(runs: Path, name: str = "run-1", kind: str = "convergence", decision: str = "stop") -> RunFolder:
    """Write a local run that has ended, with whole checkpoints, a torn one, a half-deleted and a set-aside one."""
    runs.mkdir(exist_ok=True)
    folder = RunFolder.create(runs / name)
    recovery = {"checkpoints_kept": 2, "checkpoints_kept_every": 200}
    records.write_json(folder.spec, {
        "kind": kind, "recipe": "nano", "profile": {"name": "local-cpu", "recovery": recovery},
        "provenance": {"host": socket.gethostname()}, "created": "2027-01-15T08:00:00+00:00",
    })  # fmt: skip
    records.append_event(folder.events, "submitted", executor="local", job_id="1")
    records.append_event(folder.events, "decision", decision=decision, exit_code=0, reason="so it was decided")
    for step in STEPS:
        make(folder.checkpoints, step)
    torn = make(folder.checkpoints, 600)
    os.truncate(torn / "__1_0.distcp", 1)
    retention.set_aside(make(folder.checkpoints, 150), 1)
    make(folder.checkpoints, 50).rename(folder.checkpoints / ".deleting-iter_0000050")
    return folder


def there(folder: RunFolder) -> list[int]:
    return [int(path.name[5:]) for path in checkpoint.list_checkpoints(folder.checkpoints)]


def size(folder: RunFolder) -> int:
    return sum(path.stat().st_size for path in folder.checkpoints.rglob("*") if path.is_file())


def prune(folder: RunFolder, *words: str) -> dict[str, Any]:
    done = verb("prune", str(folder.path), "--json", *words)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["runs"]
    return dict(answer)


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ([], [100, 300]),
        (["--keep-last", "1"], [100, 300]),
        (["--keep-last", "1", "--keep-every", "1000"], [100, 200, 300, 400]),
        (["--keep-last", "9"], []),
    ],
)
def test_what_goes(tmp_path: Path, words: list[str], gone: list[int]) -> None:
    folder = make_run(tmp_path / "runs")
    before = size(folder)
    told = prune(folder, "--dry-run", *words)
    assert (told["deleted"], told["leftovers"]) == (gone, 2)
    assert size(folder) == before
    done = prune(folder, *words)
    assert there(folder) == [step for step in (*STEPS, 600) if step not in gone], "500 is the newest whole one"
    assert done == told, "a dry run says what then happens"
    assert before - size(folder) == done["bytes"] > 0
    assert sorted(path.name for path in folder.checkpoints.rglob("*") if "50" in path.name and path.is_dir()) == [
        "iter_0000500"
    ]
    events = [event for event in records.read_lines(folder.events) if event["event"] == "checkpoints_deleted"]
    assert [event["steps"] for event in events] == ([gone] if gone else [])


def test_it_says_what_it_did(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    done = verb("prune", str(folder.path), "--dry-run")
    assert done.stdout.startswith("run-1: would delete checkpoints 100, 300 and 2 leftovers: ")
    assert "kB to be freed; kept: 200, 400, 500" in done.stdout
    verb("prune", str(folder.path))
    assert verb("prune", str(folder.path)).stdout == "run-1: nothing to delete; kept: 200, 400, 500\n"


def test_all_of_a_gate_goes_and_it_can_still_be_judged(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", kind="gate", decision="done")
    done = verb("prune", str(folder.path))
    assert done.returncode == 2
    assert "a gate is judged by its checkpoints" in done.stderr
    assert there(folder) == [*STEPS, 600]
    answer = prune(folder, "--all")
    assert (answer["deleted"], there(folder), size(folder)) == ([*STEPS, 600], [], 0)
    found = dict(_checkpoints(folder.checkpoints, (500, 600)))
    assert (found[500].whole, found[600].whole) == (True, False)


@pytest.mark.parametrize(
    ("decision", "words", "said"),
    [
        ("stop", [], "--all leaves nothing to go on from"),
        ("restart", ["--yes"], None),
        ("stop", ["--keep-last", "1"], "--all keeps nothing"),
    ],
)
def test_all_of_a_run_only_where_it_has_ended_and_is_meant(
    tmp_path: Path, decision: str, words: list[str], said: str | None
) -> None:
    folder = make_run(tmp_path / "runs", decision=decision)
    done = verb("prune", str(folder.path), "--all", *words)
    assert done.returncode == 2
    assert (said or "the run has not ended") in done.stderr
    assert there(folder) == [*STEPS, 600]


def test_all_of_a_run_that_ended(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    assert prune(folder, "--all", "--dry-run")["deleted"] == [*STEPS, 600]
    assert there(folder) == [*STEPS, 600]
    prune(folder, "--all", "--yes")
    assert there(folder) == []


def test_a_run_that_runs_is_left_to_its_supervisor(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    with only_supervisor(folder, None, 0):
        done = verb("prune", str(folder.path))
        assert done.returncode == 2
        assert "its job may work on them (RUNNING)" in done.stderr
        every = verb("prune", "--runs", str(folder.path.parent))
        assert every.returncode == 0
        assert "may work on them" in every.stderr
    assert there(folder) == [*STEPS, 600]


def test_every_run_of_a_folder(tmp_path: Path) -> None:
    """One whose folder tells nothing of itself keeps nobody from the others, and gates are passed by."""
    one, two = (make_run(tmp_path / "runs", name) for name in ("run-1", "run-2"))
    gate = make_run(tmp_path / "runs", "gate-1", kind="gate")
    odd = RunFolder.create(tmp_path / "runs" / "odd")
    odd.spec.write_text("{")
    odd.checkpoints.mkdir()
    done = verb("prune", "--runs", str(tmp_path / "runs"), "--keep-last", "1", "--keep-every", "1000")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert [there(folder) for folder in (one, two, gate)] == [[500, 600], [500, 600], [*STEPS, 600]]
    assert "odd:" in done.stderr


def test_all_needs_a_name(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    done = verb("prune", "--all", "--yes", "--runs", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert "name a RUN" in done.stderr
    assert there(folder) == [*STEPS, 600]


def test_what_cannot_be_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seatrial.report import prune as module

    folder = make_run(tmp_path / "runs")
    monkeypatch.setattr(retention, "discard", lambda path: f"{path}: busy")
    freed = module.prune_run(folder, None, None, dry_run=False, by="ada")
    assert len(freed.failed) == 2
    assert there(folder) == [*STEPS, 600]
