"""What a supervisor does about its own failures, those of the disk, and those of the supervisor before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import temporary_prefix
from seatrial.supervise import exit_codes
from tests.run.test_checkpoint import make as make_checkpoint
from tests.run.test_checkpoint import torchs_names  # noqa: F401 - the look-alikes need their names
from tests.supervise.harness import (
    STEPS,
    change_fate,
    events,
    make_run,
    pids_of,
    record,
    request,
    running,
    start,
    steps,
    supervise,
    wait_for,
)

SLOW: dict[str, Any] = {"all": {"pace": 1, "final": False}}
# Faults of our own, put where no input can cause them.
BREAK_FOLLOWER = (
    "from seatrial.supervise.follow import LogFollower\n"
    "poll = LogFollower.poll\n"
    "LogFollower.poll = lambda self: 1 / 0 if self.seen.last_step else poll(self)"
)
BREAK_CLOSE = "from seatrial.supervise.follow import LogFollower\nLogFollower.close = lambda self: 1 / 0"
BREAK_JUDGE = "import seatrial.supervise.main as main\nmain.judge_folder = lambda *_: 1 / 0"


@pytest.mark.parametrize("fault", [BREAK_FOLLOWER, BREAK_CLOSE], ids=["while following", "at the end"])
def test_a_broken_supervisor_ends_the_ranks_and_says_so(tmp_path: Path, fault: str) -> None:
    fate: dict[str, Any] = SLOW if fault is BREAK_FOLLOWER else {}
    folder = make_run(tmp_path, fate, kind="gate")
    code, log = supervise(folder, before=fault)
    assert code == exit_codes.SUPERVISOR_ERROR
    assert "ZeroDivisionError" in log
    assert "ZeroDivisionError" in events(folder, "supervisor_failed")[0]["traceback"]
    failed = record(folder)
    assert (failed["outcome"], failed["exit_code"]) == ("failed", exit_codes.SUPERVISOR_ERROR)
    assert failed["reason"] == "the supervisor broke: ZeroDivisionError: division by zero"
    assert not any(running(pid) for pid in pids_of(folder))
    assert records.read_json(folder.verdict)["verdict"] == "FAIL"
    assert events(folder, "decision")[-1]["exit_code"] == exit_codes.SUPERVISOR_ERROR


def test_a_broken_judge_is_no_pass(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {}, kind="gate")
    make_checkpoint(folder.checkpoints, STEPS)
    assert supervise(folder, before=BREAK_JUDGE)[0] == exit_codes.SUPERVISOR_ERROR
    assert record(folder)["outcome"] == "completed"
    assert not folder.verdict.exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ('{"kind": "gate"}', "the spec lacks run_id"),
        ("[]", "the spec lacks"),
        ("{", "cannot read the spec"),
        (None, "not a run folder"),
    ],
)
def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, spec: str | None, message: str) -> None:
    folder = make_run(tmp_path, {})
    if spec is None:
        folder.spec.unlink()
    else:
        folder.spec.write_text(spec)
    code, log = supervise(folder)
    assert code == exit_codes.MISTAKE
    assert message in log
    assert "Traceback" not in log
    assert not folder.events.exists()


def test_an_argument_of_the_runs_own_in_the_spec_is_one_message(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    spec = records.read_json(folder.spec)
    spec["arguments"] += ["--save", "/elsewhere"]
    records.write_json(folder.spec, spec)
    code, log = supervise(folder)
    assert (code, record(folder)["exit_code"]) == (exit_codes.MISTAKE, exit_codes.MISTAKE)
    assert "Traceback" not in log
    assert "only the run itself sets this" in record(folder)["reason"]


def test_ranks_that_cannot_start_are_one_message(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    code, log = supervise(folder, program=["/no/such/python"])
    assert (code, record(folder)["exit_code"]) == (exit_codes.MISTAKE, exit_codes.MISTAKE)
    assert "Traceback" not in log
    assert "cannot start a rank" in record(folder)["reason"]
    assert record(folder)["ranks"][0] == {
        "rank": 0, "code": None, "record": False, "wait_status": None, "killed_by_supervisor": False,
        "how": "was never started",
    }  # fmt: skip


def test_a_full_disk_delays_records_but_loses_none(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"pace": 0.5}})
    make_checkpoint(folder.checkpoints, STEPS)
    folder.metrics.symlink_to("/dev/full")
    process = start(folder)
    wait_for(lambda: b"iteration        3/" in folder.attempt(0).rank_log(2).read_bytes() if pids_of(folder) else False)
    folder.metrics.unlink()  # somebody made room
    output, _ = process.communicate(timeout=600)
    assert process.returncode == exit_codes.DONE
    assert b"will go on trying: [Errno 28]" in output
    assert steps(folder) == [1, 2, 3, 4]


def test_what_a_full_disk_never_took_is_in_the_batch_log(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    make_checkpoint(folder.checkpoints, STEPS)
    folder.metrics.symlink_to("/dev/full")
    code, log = supervise(folder)
    assert code == exit_codes.DONE
    lines = [line.partition("not written to metrics.jsonl: ")[2] for line in log.splitlines()]
    assert [json.loads(line)["step"] for line in lines if '"step"' in line] == [1, 2, 3, 4]


def test_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"pace": 1}})
    make_checkpoint(folder.checkpoints, STEPS)
    first = start(folder)
    wait_for(lambda: steps(folder))
    code, log = supervise(folder)
    assert code == exit_codes.BUSY
    assert "another supervisor" in log
    assert first.wait(30) == exit_codes.DONE
    assert len(folder.attempts()) == 1
    assert steps(folder) == [1, 2, 3, 4]


def test_a_killed_supervisors_attempt_is_closed_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = make_run(tmp_path, SLOW)
    first = start(folder)
    wait_for(lambda: len(steps(folder)) >= 2)
    first.kill()
    first.communicate()
    wait_for(lambda: not any(running(pid) for pid in pids_of(folder)))
    # Its last line was torn, and a step is in the log that it did not come to record.
    log = folder.attempt(0).rank_log(2)
    line = log.read_text().splitlines()[0]
    with log.open("a") as stream:
        stream.write(line.replace("iteration        1/", "iteration        3/") + "\n")
    folder.metrics.write_bytes(folder.metrics.read_bytes()[:-20])
    make_checkpoint(folder.checkpoints, 3)
    change_fate(folder, {})
    spec = records.read_json(folder.spec)
    spec["profile"]["recovery"]["failures_without_progress"] = 1
    records.write_json(folder.spec, spec)
    code, _ = supervise(folder)
    lost, resumed = record(folder, 0), record(folder, 1)
    assert (lost["outcome"], lost["last_step"]) == ("failed", 3)
    assert "ended without a record" in lost["reason"]
    assert (resumed["resume_step"], resumed["first_step"]) == (3, 4)
    assert (resumed["why"], resumed["checkpoint_why"]) == ("requeued after unknown", "the newest whole one")
    assert steps(folder)[:4] == [1, 2, 3, 4]
    assert [s["attempt"] for s in records.read_lines(folder.metrics)][:4] == [0, 0, 0, 1]
    assert code == exit_codes.NOT_DONE  # the test's ranks save nothing at step 4


@pytest.mark.parametrize(
    ("event", "job", "named"),
    [("batch_host_lost", "7", "node_failure"), ("tended", "7", "node_failure"), ("tended", "6", "unknown")],
)
def test_whoever_saw_that_the_host_was_lost_is_believed(tmp_path: Path, event: str, job: str, named: str) -> None:
    """The job was put back into the queue, which is all that Slurm says of it; the lost attempt keeps its job."""
    folder = make_run(tmp_path, {}, failures=1)
    folder.new_attempt()
    records.append_event(folder.events, "attempt_started", attempt=0, why="the first attempt", job={"id": "7"})
    records.append_event(folder.events, "ranks_started", attempt=0, nodes=["n1", "n2", "n3"])
    records.append_event(folder.events, event, job_id=job, host="n1")
    supervise(folder)
    lost = record(folder, 0)
    assert (lost["class"], lost["job"]) == (named, {"id": "7", "host": None})
    assert (lost["failed_node"] == "n1") is (named == "node_failure")


def test_a_stopped_run_is_resumed_from_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"steps": 2, "final": False}})
    supervise(folder)
    make_checkpoint(folder.checkpoints, 2)
    (make_checkpoint(folder.checkpoints, 3) / ".metadata").unlink()
    change_fate(folder, {})
    assert supervise(folder)[0] == exit_codes.NOT_DONE  # it was decided to stop: only a person brings it back
    assert len(folder.attempts()) == 1
    request(folder)
    supervise(folder)
    plan = records.read_json(folder.attempt(1).plan)["arguments"]
    assert plan[plan.index("--ckpt-step") + 1] == "2"
    assert plan[plan.index("--load") + 1] == str(folder.checkpoints)
    assert "--exit-on-missing-checkpoint" in plan
    assert steps(folder) == [1, 2, 3, 4]
    begun = events(folder, "attempt_started")[1]
    assert begun["passed_over"] == ["iter_0000003: .metadata is missing"]


def test_nothing_is_written_over_when_no_checkpoint_is_whole(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"steps": 2, "final": False}})
    supervise(folder)
    (make_checkpoint(folder.checkpoints, 2) / "metadata.json").unlink()
    saved = {**record(folder), "saved_steps": [2]}
    records.write_json(folder.attempt(0).record, saved)
    request(folder)
    code, log = supervise(folder)
    assert code == exit_codes.MISTAKE
    assert "no checkpoint is whole" in log
    assert len(folder.attempts()) == 1


def test_a_completed_run_is_not_trained_again(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    make_checkpoint(folder.checkpoints, STEPS)
    assert supervise(folder)[0] == exit_codes.DONE
    assert supervise(folder)[0] == exit_codes.DONE
    assert len(folder.attempts()) == 1


def test_a_stop_before_the_ranks_start_starts_none(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    before = (
        "import os, signal, seatrial.supervise.carry as carry\n"
        "choose = carry.choose_start\n"
        "carry.choose_start = lambda *what: os.kill(os.getpid(), signal.SIGUSR2) or choose(*what)"
    )
    assert supervise(folder, before=before)[0] == exit_codes.STOPPED
    assert "before it began" in record(folder)["reason"]
    assert pids_of(folder) == []


@pytest.mark.parametrize("failures", [0, 1], ids=["stopped", "carried on, then stopped"])
def test_what_killed_ranks_left_on_the_host_goes_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    folder = make_run(tmp_path, {"1": {"steps": 2, "exit": "kill"}, "all": {"final": False}}, failures=failures)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    mine, others = (temporary / f"{temporary_prefix(name)}1-abc" for name in (folder.path.name, "another run"))
    for one in (mine, others):
        one.mkdir()
    assert supervise(folder)[0] == 137
    assert [path.name for path in temporary.iterdir()] == [others.name]
