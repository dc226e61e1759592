"""`seatrial requeue` as a user meets it: a run on this machine that failed is brought back; what is refused."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.local_job import look, supervisor
from tests.cli.test_converge import NANO, pretend
from tests.cli.verbs import COMMAND, REPO, until, verb
from tests.run.test_checkpoint import make, torchs_names

__all__ = ["torchs_names"]  # a fixture


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of four steps on this machine that failed at once: its ranks end with 1."""
    done = verb("converge", NANO, "--no-gate", "a test of what follows", *pretend(tmp_path, code=1))
    assert done.returncode == 1, done.stdout + done.stderr
    (path,) = (tmp_path / "runs").iterdir()
    return RunFolder(path)


def events(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return [event for event in records.read_lines(folder.events) if event["event"] == name]


def test_a_run_comes_back_and_is_followed(run: RunFolder, tmp_path: Path) -> None:
    attempts = len(run.attempts())
    make(run.checkpoints, 2)
    done = verb("requeue", str(run.path), "--from-step", "2", "--follow")
    # Its ranks still fail, and the first failure after a person took a hand is one again.
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("started again on this machine")
    assert len(run.attempts()) == 2 * attempts
    record = records.read_json(run.attempt(attempts).record)
    assert (record["why"], record["resume_step"]) == ("requeued by hand", 2)
    first, second = events(run, "submitted")
    assert (second["executor"], second["replaces"]) == ("local", first["job_id"])
    (request,) = events(run, "requeue_requested")
    assert (request["from_step"], request["exclude"], request["profile"]) == (2, [], None)


def test_a_run_that_runs_is_refused_and_goes_on(run: RunFolder, tmp_path: Path) -> None:
    rank = tmp_path / "rank.py"
    rank.write_text(rank.read_text().replace("time.sleep(0)", "time.sleep(1)"))
    answer = json.loads(verb("requeue", str(run.path), "--json").stdout)
    assert answer["run"] == run.path.name
    assert answer["job_id"] == events(run, "submitted")[-1]["job_id"]
    before = len(events(run, "submitted"))
    done = verb("requeue", str(run.path))
    assert done.returncode == 2
    assert "its job" in done.stderr and "seatrial stop RUN" in done.stderr
    assert len(events(run, "submitted")) == before
    until(lambda: supervisor(run.path, look()) is not None or len(events(run, "supervisor_ended")) > 1, "it starts")
    until(lambda: len(events(run, "supervisor_ended")) > 1 and supervisor(run.path, look()) is None, "its end")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from-step", "3"], "checkpoint 3 cannot be loaded: there is none"),
        (["--exclude", "n1"], "a run on this machine has no other node"),
        (["--force-class", "hag"], "did you mean 'hang'?"),
        (["--profile", "slurm-sandbox"], "executor slurm for local"),
        (["--profile", "none"], "unknown profile 'none'"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_mistake_is_one_message(run: RunFolder, words: list[str], said: str) -> None:
    before = run.events.read_bytes()
    done = verb("requeue", str(run.path), *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert run.events.read_bytes() == before


def test_on_a_terminal_it_asks_before_steps_are_trained_again(run: RunFolder) -> None:
    for step in (1, 2, 3):
        make(run.checkpoints, step)
    before = run.events.read_bytes()
    ours, theirs = pty.openpty()
    command = [*COMMAND, "requeue", str(run.path), "--from-step", "1"]
    asking = subprocess.Popen(command, cwd=REPO, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    os.write(ours, b"n\n")
    said, _ = asking.communicate(timeout=600)
    os.close(ours)
    os.close(theirs)
    assert b"checkpoints 2, 3 are set aside, and the steps after 1 trained again?" in said
    assert asking.returncode == 1
    assert run.events.read_bytes() == before


def test_a_longer_profile_on_this_machine(run: RunFolder, tmp_path: Path) -> None:
    profile = tmp_path / "patient.yaml"
    shipped = (REPO / "cluster_profiles" / "local-cpu.yaml").read_text()
    profile.write_text(shipped + f"rank_python: {tmp_path / 'rank.py'}\nrecovery:\n  failures_without_progress: 1\n")
    done = verb("requeue", str(run.path), "--profile", str(profile), "--follow")
    assert done.returncode == 1, done.stdout + done.stderr
    spec = records.read_json(run.spec)
    assert spec["profile"]["name"] == "patient"
    assert spec["profile"]["paths"]["runs"] == str(run.path.parent)
    assert records.read_json(run.path / "spec-000.json")["profile"]["name"] == "local-cpu"
    assert spec["arguments"] == records.read_json(run.path / "spec-000.json")["arguments"]


def test_a_run_to_convergence_has_no_time_limit_on_this_machine(run: RunFolder) -> None:
    """There is no queue to go back to, so submitit must not end it when a slot would be over."""
    code = (
        "from pathlib import Path; import submitit; from seatrial.slurm import local\n"
        "seen = []\n"
        "submitit.LocalExecutor.submit = lambda self, *_: seen.append(self.parameters['timeout_min'])\n"
        f"local.submit_local(Path({str(run.path)!r}), None); local.submit_local(Path({str(run.path)!r}), 60)\n"
        "print(seen[0] > 5 * 365 * 24 * 60, seen[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "60"], done.stderr
    environ = [entry for entry in events(run, "submitted") if entry["executor"] == "local"]
    assert environ[0]["host"]
