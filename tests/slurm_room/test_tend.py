"""Runs are brought back by `seatrial tend`: what is on record, and what failing questions and commands change."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge.exclusions import path_for
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.requeue_queue import only_one
from seatrial.slurm.submit import submit
from seatrial.slurm.tend import Outcome, tend
from seatrial.spec.resolve import resolve
from seatrial.supervise.history import read_history
from tests.slurm_room.fakes import FakeCommands, Reply, account_row, lines, queue_row
from tests.slurm_room.test_requeue import DOWN, EMPTY, GONE, NANO, REFUSED, events, spoil_code, wait_for_gate

AGO = 3600.0  # that a run's job ended, and its records were last written


@pytest.fixture
def run(fake: FakeCommands, tmp_path: Path) -> RunFolder:
    """A run whose job 7 has ended, an hour ago, in its first attempt, and nobody decided anything."""
    return lost_run(fake, tmp_path)


def lost_run(fake: FakeCommands, root: Path, job: int = 7) -> RunFolder:
    settings = {"profile.paths.runs": json.dumps(str(root / "runs"))}
    spec = resolve(NANO, "slurm-sandbox", "convergence", list(settings.items()))
    fake.script("sbatch", Reply(f"{job}\n"))
    folder = submit(spec, allow_dirty=True, slurm=fake.slurm()).folder
    folder.new_attempt()
    records.append_event(folder.events, "supervisor_started", job_id=str(job), restart_count=0, cluster="sandbox")
    records.append_event(folder.events, "attempt_started", attempt=0)
    age(folder)
    answers(fake, ended(folder, "FAILED", job))
    return folder


def age(folder: RunFolder, seconds: float = 2 * AGO) -> None:
    """Let all that is on record have happened long ago."""
    found = []
    for event in records.read_lines(folder.events):
        for key in ("time", "submit_time"):
            if key in event:
                event[key] = (datetime.fromisoformat(event[key]) - timedelta(seconds=seconds)).isoformat()
        found.append(event)
    folder.events.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in found))
    os.utime(folder.events, (time.time() - AGO, time.time() - AGO))


def ended(folder: RunFolder, state: str, job: int = 7, ago: float = AGO) -> list[object]:
    now = time.time()
    return account_row(
        job, folder.path.name, state, uid=os.getuid(), user="root", submitted=int(now - 2 * AGO), ended=int(now - ago)
    )


def answers(fake: FakeCommands, *accounts: list[object], **replies: Any) -> None:
    """Script Slurm, which knows of these jobs; ``replies`` replace some of its answers."""
    usual = {
        "squeue": [EMPTY], "sacct": [Reply(lines(*accounts))], "sbatch": [Reply("8\n")], "scancel": [EMPTY],
        "scontrol": [EMPTY],
    }  # fmt: skip
    for name, given in (usual | replies).items():
        fake.script(name, *given)


def queued(folder: RunFolder, state: str, job: int = 7, reason: str = "None", **more: Any) -> Reply:
    own = {"uid": os.getuid(), "user": "root", "submitted": int(time.time() - 2 * AGO)}
    return Reply(lines(queue_row(job, folder.path.name, state, reason=reason, **own, **more)))


def one(fake: FakeCommands, folder: RunFolder, **options: Any) -> Outcome:
    (outcome,) = tend([folder], fake.slurm(), **options)
    return outcome


def snapshot(folder: RunFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.path.rglob("*")) if path.is_file()}


def test_it_is_submitted_again_and_no_hand_of_a_person_is_on_record(fake: FakeCommands, run: RunFolder) -> None:
    excluded = path_for(run.path.parent, "slurm-sandbox")
    excluded.parent.mkdir()
    expires = (datetime.now(timezone.utc) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    records.append_line(excluded, {"node": "n9", "expires": expires})
    records.write_json(run.attempt(0).record, {"attempt": 0, "decision": {"action": "requeue", "exclude": ["n2"]}})
    found = one(fake, run)
    assert (found.action, found.done, found.needs_person) == ("submit", True, False)
    assert (found.job_id, found.replaces, found.state) == ("8", "7", "FAILED")
    assert "submitted as job 8, without n2, n9: job 7 ended (FAILED) without a decision" in found.words
    script = str(run.path / "batch.sh")
    assert fake.calls("sbatch")[-1] == ["--parsable", "--hold", "--dependency=singleton", "--exclude=n2,n9", script]
    assert fake.calls("scontrol")[-1] == ["release", "8"]
    sent = events(run, "submitted")[-1]
    assert (sent["job_id"], sent["replaces"], sent["by"]) == ("8", "7", "tend")
    (event,) = events(run, "tended")
    assert (event["action"], event["job_id"], event["replaces"]) == ("submit", "8", "7")
    assert not events(run, "requeue_requested"), "its budgets would count anew"
    assert not events(run, "requeue_failed")
    assert (run.path / "submitit" / "8_submitted.pkl").is_file(), "submitit could not start it"


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(fake: FakeCommands, run: RunFolder) -> None:
    before = snapshot(run)
    found = one(fake, run, dry_run=True)
    assert (found.action, found.done, found.failed) == ("submit", False, False)
    spoil_code(fake, run)
    assert "changed: seatrial/errors.py" in one(fake, run, dry_run=True).words
    after = snapshot(run)
    assert {path for path in after if before.get(path) != after[path]} == {str(run.path / "code/seatrial/errors.py")}
    assert before.keys() == after.keys()
    assert len(fake.calls("sbatch")) == 1, "only the first submission"
    assert not fake.calls("scancel")


def test_a_request_by_a_person_outlives_its_lost_job(fake: FakeCommands, run: RunFolder) -> None:
    """Brought back by hand from an older step, and that job was lost before it began: the wish still counts."""
    records.append_event(run.events, "decision", decision="stop", reason="crash loop")
    records.append_event(run.events, "requeue_requested", from_step=8, exclude=["n5"], by="ada")
    age(run)
    assert one(fake, run).words.startswith("submitted as job 8, without n5")
    request = read_history(run).request
    assert (request.open, request.from_step) == (True, 8)


def test_all_runs_are_asked_about_at_once(fake: FakeCommands, tmp_path: Path) -> None:
    runs = [lost_run(fake, tmp_path / str(n), n) for n in range(11, 15)]
    torn = RunFolder.create(tmp_path / "torn")
    torn.spec.write_text('{"kind": "conv')
    records.append_event(runs[0].events, "decision", decision="done", reason="complete", exit_code=0)
    answers(
        fake, ended(runs[2], "CANCELLED", 13), ended(runs[3], "NODE_FAIL", 14, ago=20),
        squeue=[queued(runs[1], "RUNNING", 12), Reply("12 n1\n")],
        scontrol=[Reply("NodeName=n1 State=MIXED\n")],
    )  # fmt: skip
    found = tend([*runs, torn], fake.slurm())
    assert [one.action for one in found] == ["nothing", "nothing", "nothing", "wait", "person"]
    assert [one.state for one in found] == ["ENDED", "RUNNING", "CANCELLED", "NODE_FAIL", "UNKNOWN"]
    assert "cannot read the spec" in found[-1].words
    assert [len(fake.calls(name)) for name in ("squeue", "sacct", "scontrol")] == [2, 1, 1]
    assert "--jobs=12,13,14" in fake.calls("squeue")[0], "not the one that is done"


@pytest.mark.parametrize(
    ("replies", "said"),
    [
        ({"squeue": [DOWN], "sacct": [DOWN], "scontrol": [DOWN]}, "Unable to contact slurm controller"),
        ({"squeue": [EMPTY], "sacct": [DOWN]}, "Unable to contact"),
        ({"squeue": [DOWN], "scontrol": [DOWN], "sacct": [EMPTY]}, "Unable to contact"),
        ({"squeue": [Reply(rc="killed")], "scontrol": [DOWN], "sacct": [EMPTY]}, "squeue ended with -9"),
    ],
    ids=["nobody answers", "accounting is silent", "the queue is silent", "squeue is killed"],
)
def test_a_failed_question_is_not_a_failed_job(
    fake: FakeCommands, run: RunFolder, replies: dict[str, Any], said: str
) -> None:
    answers(fake, **replies)
    before = snapshot(run)
    found = one(fake, run)
    assert (found.action, found.needs_person) == ("unknown", False)
    assert said in found.words
    assert snapshot(run) == before
    assert len(fake.calls("sbatch")) == 1


def test_what_slurm_has_forgotten_is_brought_back_only_here(fake: FakeCommands, run: RunFolder) -> None:
    answers(fake, scontrol=[Reply("ClusterName             = red\n"), EMPTY])
    found = one(fake, run)
    assert (found.action, found.needs_person) == ("nothing", False)
    assert "it ran on cluster sandbox, which is not here" in found.words
    answers(fake, scontrol=[DOWN])
    assert "does not say which cluster this is" in one(fake, run).words
    answers(fake, scontrol=[*2 * [Reply("ClusterName             = sandbox\n")], EMPTY])
    assert one(fake, run).done
    assert len(events(run, "submitted")) == 2


def needs_token(fake: FakeCommands, folder: RunFolder) -> None:
    spec = records.read_json(folder.spec)
    spec["profile"]["env"]["pass"] = ["PATH", "A_TOKEN"]
    records.write_json(folder.spec, spec)


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        (needs_token, "the ranks need A_TOKEN from the shell"),
        (spoil_code, "changed: seatrial/errors.py"),
        (wait_for_gate, "the gate gate-1 that it waits for has not passed"),
        (lambda fake, folder: answers(fake, ended(folder, "FAILED"), sbatch=[REFUSED]), "Invalid node name"),
        (lambda fake, folder: answers(fake, ended(folder, "FAILED"), scontrol=[GONE]), "gone before it could start"),
        (lambda fake, folder: answers(fake, ended(folder, "FAILED"), squeue=[EMPTY, EMPTY, Reply("9 PENDING\n")]),
         "Slurm has a job of it already: 9 PENDING"),
        (lambda fake, folder: answers(fake, ended(folder, "FAILED"), squeue=[EMPTY, EMPTY, DOWN]),
         "nobody can say whether a job of it is left"),
    ],
    ids=[
        "a variable is unset", "code changed", "its gate failed", "refused", "gone at once", "another job",
        "the queue falls silent",
    ],
)  # fmt: skip
def test_what_fails_says_so_and_needs_a_person(fake: FakeCommands, run: RunFolder, scene: Any, said: str) -> None:
    scene(fake, run)
    found = one(fake, run)
    assert (found.action, found.done, found.failed, found.needs_person) == ("submit", False, True, True)
    assert said in found.words and "\n" not in found.words
    assert not events(run, "tended")
    assert not events(run, "requeue_failed"), "it would take back what a person asked for"


def test_a_record_that_cannot_be_written_leaves_no_job(
    fake: FakeCommands, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "append_event", full)
        found = one(fake, run)
    assert found.failed and "No space left" in found.words
    assert [call[-1] for call in fake.calls("scancel")] == ["8"]
    assert len(events(run, "submitted")) == 1
    assert one(fake, run).done, "the next one brings it back"


def test_a_job_that_went_back_to_the_queue_may_have_been_cancelled_there(fake: FakeCommands, run: RunFolder) -> None:
    (run.path / "batch-7.log").write_text("ready\n")
    records.append_event(run.events, "returned", done=True, words="requeued")
    age(run)
    answers(fake, scontrol=[Reply("ClusterName             = sandbox\n")])
    found = one(fake, run)
    assert (found.action, "it may have been cancelled" in found.words) == ("person", True), found
    records.append_event(run.events, "supervisor_started", job_id="7")
    age(run)
    assert one(fake, run, dry_run=True).action == "submit"


@pytest.mark.parametrize("spoilt", [{"job_id": "none"}, {}], ids=["no number", "no job"])
def test_a_spoilt_run_keeps_no_other_from_being_tended(
    fake: FakeCommands, run: RunFolder, tmp_path: Path, spoilt: dict[str, str]
) -> None:
    other = lost_run(fake, tmp_path / "other", 17)
    records.append_event(other.events, "submitted", executor="slurm", **spoilt)
    answers(fake, ended(run, "FAILED"))
    found = tend([other, run], fake.slurm())
    assert [(one.action, one.done, one.needs_person) for one in found] == [
        ("person", False, True), ("submit", True, False),
    ]  # fmt: skip


def test_a_job_that_was_not_released_is_released_next_time(fake: FakeCommands, run: RunFolder) -> None:
    answers(fake, ended(run, "FAILED"), scontrol=[DOWN])
    found = one(fake, run)
    assert found.failed and "job 8 is there, but held" in found.words
    answers(fake, squeue=[queued(run, "PENDING", 8, "JobHeldUser", started="N/A")])
    found = one(fake, run)
    assert (found.action, found.done) == ("release", True)
    assert fake.calls("scontrol")[-1] == ["release", "8"]
    # Held again, it is by somebody else.
    found = one(fake, run)
    assert not found.done


def test_two_submissions_that_nobody_takes_up_are_enough(fake: FakeCommands, run: RunFolder) -> None:
    for number in (8, 9):
        answers(fake, ended(run, "FAILED", number - 1), sbatch=[Reply(f"{number}\n")])
        assert one(fake, run).job_id == str(number)
        age(run)
    answers(fake, ended(run, "FAILED", 9), sbatch=[Reply("10\n")])
    found = one(fake, run, named=True)
    assert (found.action, found.needs_person) == ("person", True)
    assert "of 2 submissions in a row none came to start" in found.words
    records.append_event(run.events, "supervisor_started", job_id="9")
    age(run)
    assert one(fake, run).job_id == "10"


def test_a_job_without_its_batch_host_is_requeued_once(fake: FakeCommands, run: RunFolder) -> None:
    down = Reply("NodeName=n1 State=DOWN+NOT_RESPONDING\n")
    runs = queued(run, "RUNNING", started=int(time.time() - 2 * AGO))

    def script() -> None:
        answers(fake, squeue=[runs, Reply("7 n1\n"), runs, Reply("7 n1\n")], scontrol=[down, down, EMPTY])

    script()
    found = one(fake, run)
    assert (found.action, found.done) == ("requeue", True)
    assert "its batch host n1 is down" in found.words
    assert fake.calls("scontrol")[-1] == ["requeue", "7"]
    (event,) = events(run, "tended")
    assert (event["action"], event["job_id"], event["host"]) == ("requeue", "7", "n1")
    os.utime(run.events, (time.time() - AGO, time.time() - AGO))
    script()
    found = one(fake, run)
    assert (found.action, found.done, found.needs_person) == ("person", False, True)
    assert len(events(run, "tended")) == 1


def test_a_node_of_which_nobody_knows_is_no_lost_host(fake: FakeCommands, run: RunFolder) -> None:
    answers(fake, squeue=[queued(run, "RUNNING"), Reply("7 n1\n")], scontrol=[DOWN])
    found = one(fake, run)
    assert (found.action, found.needs_person) == ("nothing", False)
    assert "nobody can say how its batch host n1 is" in found.words


def test_a_run_that_is_being_brought_back_is_left_alone(fake: FakeCommands, run: RunFolder) -> None:
    with only_one(run):
        found = one(fake, run)
    assert (found.action, found.done, found.needs_person) == ("wait", False, False)
    assert "another command brings it back" in found.words
    assert len(events(run, "submitted")) == 1


def test_what_has_changed_since_the_first_look_counts(fake: FakeCommands, run: RunFolder) -> None:
    answers(fake, ended(run, "FAILED"), squeue=[EMPTY, queued(run, "PENDING", reason="BeginTime", started="N/A")])
    found = one(fake, run)
    assert (found.action, found.done, found.state) == ("nothing", False, "PENDING")
    assert len(fake.calls("sbatch")) == 1


def test_two_at_once_give_one_job(fake: FakeCommands, run: RunFolder) -> None:
    slow = fake.bin / "sbatch"
    slow.write_text(slow.read_text().replace("rc=$(cat", "sleep 1\nrc=$(cat", 1))
    outcomes: list[Outcome] = []
    both = [threading.Thread(target=lambda: outcomes.append(one(fake, run))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sorted(found.done for found in outcomes) == [False, True]
    assert not any(found.needs_person for found in outcomes)
    assert len(fake.calls("sbatch")) == 1
    assert len(events(run, "submitted")) == 2
