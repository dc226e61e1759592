"""`explain`, and goodput in `status --json` and `watch`, as a user types them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.cli.verbs import verb
from tests.judge.run_builder import as_of_old, three_attempts
from tests.slurm_room.fakes import FakeCommands, Reply, lines, on_path, queue_row


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    """Fake Slurm commands on PATH; nothing is in the queue."""
    return on_path(tmp_path, monkeypatch, "squeue", "sacct", "scontrol")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return three_attempts(tmp_path / "runs")


def test_explain(folder: RunFolder) -> None:
    done = verb("explain", str(folder.path))
    assert done.returncode == 0, done.stderr
    for text in ("attempt 0: the run's first", "    | Killed [red]", "goodput: 35.6% of the wall time, 52.4% without"):
        assert text in done.stdout


def test_explain_as_json(folder: RunFolder) -> None:
    done = verb("explain", "run-1", "--runs", str(folder.path.parent), "--json", "--attempt", "1")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    (attempt,) = data["attempts"]
    assert (attempt["class"], attempt["decision"]["action"]) == ("network", "restart")
    goodput = data["goodput"]
    parts = ("queue", "startup", "productive", "replayed", "saving", "evaluating", "idle")
    assert math.fsum(goodput[part] for part in parts) == pytest.approx(goodput["wall"], abs=1e-6)


def test_explain_an_attempt_that_is_not_there(folder: RunFolder) -> None:
    done = verb("explain", str(folder.path), "--attempt", "9")
    assert done.returncode == 2
    assert "no attempt 9" in done.stderr
    assert "one of: 0, 1, 2" in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_an_old_run(folder: RunFolder) -> None:
    as_of_old(folder)
    done = verb("explain", str(folder.path))
    assert done.returncode == 0, done.stderr
    assert "not recorded" in done.stdout


@pytest.mark.parametrize(("queued", "said"), [(True, "it goes on"), (False, "its supervisor left no decision")])
def test_explain_asks_whether_the_job_is_there(
    queued: bool, said: str, slurm: FakeCommands, tmp_path: Path, folder: RunFolder
) -> None:
    """Brought back by hand after its end: time passes only while there is a job."""
    sent = {"executor": "slurm", "job_id": "12", "user": "ada", "submit_time": "2026-12-01T10:00:00+00:00"}
    records.append_event(folder.events, "submitted", **sent)
    records.append_event(folder.events, "requeue_requested", by="ada")
    state = "PENDING" if queued else "CANCELLED"
    slurm.script("squeue", Reply(lines(queue_row(12, "run-1", state, reason="Priority", started="N/A"))))
    done = verb("explain", str(folder.path))
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_status_tells_goodput_of_runs_that_are_named(folder: RunFolder) -> None:
    runs = ("--runs", str(folder.path.parent))
    (row,) = json.loads(verb("status", "run-1", "--json", *runs).stdout)["runs"]
    assert (row["attempts"], row["last_class"]) == (3, "complete")
    assert row["goodput"] == pytest.approx(100 / 281)
    assert row["goodput_without_queue"] == pytest.approx(100 / 191)
    (row,) = json.loads(verb("status", "--json", *runs).stdout)["runs"]
    assert (row["attempts"], row["last_class"], row["goodput"]) == (3, "complete", None)


def test_watch_ends_with_attempts_and_goodput(folder: RunFolder) -> None:
    done = verb("watch", str(folder.path))
    assert done.returncode == 0, done.stderr
    said = (
        "attempt 1 failed: network: 1 of 3 failures without a newer checkpoint; restarting in place without n2 in 10 s"
    )
    assert said in done.stdout
    assert "3 attempts, the last: complete; goodput: 35.6% of the wall time, 52.4% without the queue" in done.stdout
