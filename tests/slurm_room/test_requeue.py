"""A person brings a run back: what is refused before anything is written, and that one job comes of it at most."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.judge.exclusions import path_for
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm import requeue as module
from seatrial.slurm.admission import Admission
from seatrial.slurm.commands import Done
from seatrial.slurm.requeue import Requeued, Wish, expand, requeue
from seatrial.slurm.requeue_rules import FORCED, Way, check_class, is_held, way_back
from seatrial.slurm.state_records import JobState
from seatrial.slurm.submit import prepare, submit
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from seatrial.supervise import classes
from seatrial.supervise.history import read_history
from tests.run.test_checkpoint import make, torchs_names
from tests.slurm_room.fakes import FakeCommands, Reply, Told, account_row, lines, queue_row

__all__ = ["torchs_names"]  # a fixture
NANO = "nemotron_3_nano_gb200"
DOWN = Reply(err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", rc=1)
REFUSED = Reply(err="sbatch: error: Batch job submission failed: Invalid node name specified\n", rc=1)
TIMED_OUT = Reply(err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", rc=1)
GONE = Reply(err="slurm_update error: Invalid job id specified\n", rc=1)
EMPTY = Reply()


@pytest.fixture
def run(fake: FakeCommands, tmp_path: Path) -> RunFolder:
    """A run that stopped after steps 8 and 16 were saved; node n2 failed. Its job is 7."""
    settings = {"profile.paths.runs": json.dumps(str(tmp_path / "runs"))}
    spec = resolve(NANO, "slurm-sandbox", "convergence", list(settings.items()))
    fake.script("sbatch", Reply("7\n"))
    folder = submit(spec, allow_dirty=True, slurm=fake.slurm()).folder
    for step in (8, 16, 24):
        make(folder.checkpoints, step)
    os.truncate(folder.checkpoints / "iter_0000024" / "__1_0.distcp", 1)
    attempt = folder.new_attempt()
    records.append_event(folder.events, "attempt_started", attempt=0)
    record = {"attempt": 0, "resume_step": 16, "saved_steps": [8, 16, 24], "failed_node": "n2", "class": "network"}
    records.write_json(attempt.record, record)
    decide(folder, "stop")
    answers(fake, folder)
    return folder


def decide(folder: RunFolder, decision: str) -> None:
    records.append_event(folder.events, "decision", decision=decision, exit_code=1, reason="so it ended")


def answers(fake: FakeCommands, folder: RunFolder, state: str = "FAILED", **replies: Any) -> None:
    """Script Slurm for a run whose job has ended; ``replies`` replace some of its answers."""
    row = account_row(7, folder.path.name, state, uid=os.getuid(), submitted=datetime.now().isoformat()[:19])
    usual = {
        "squeue": [EMPTY], "sacct": [Reply(lines(row))], "sbatch": [Reply("8\n")], "scancel": [EMPTY],
        "scontrol": [EMPTY],
    }  # fmt: skip
    for name, given in (usual | replies).items():
        fake.script(name, *given)


def waiting(folder: RunFolder, reason: str) -> Reply:
    now = datetime.now().isoformat()[:19]
    return Reply(
        lines(queue_row(7, folder.path.name, "PENDING", reason=reason, uid=os.getuid(), submitted=now, started="N/A"))
    )


def events(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return [event for event in records.read_lines(folder.events) if event["event"] == name]


def ask(fake: FakeCommands, folder: RunFolder, **wish: Any) -> Requeued:
    return requeue(folder, Wish("ada", **wish), fake.slurm())


def profile_file(folder: Path, **changes: str) -> str:
    """Write a profile like slurm-sandbox with other values; return its path."""
    text = (Path(__file__).resolve().parents[2] / "cluster_profiles" / "slurm-sandbox.yaml").read_text()
    for key, value in changes.items():
        assert f"\n{key}:" in text
        text = "".join(
            f"{key}: {value}\n" if line.startswith(f"{key}:") else line for line in text.splitlines(keepends=True)
        )
    path = folder / "larger.yaml"
    path.write_text(text)
    return str(path)


def only_releases(fake: FakeCommands) -> None:
    """What Slurm says of itself is looked at elsewhere; here it does not say."""
    fake.script("scontrol", DOWN)
    program = fake.bin / "scontrol"
    program.write_text(program.read_text().replace("\nd=", '\ncase "$*" in *release*) exit 0;; esac\nd=', 1))


def test_a_new_job_is_held_until_the_request_is_on_record(fake: FakeCommands, run: RunFolder) -> None:
    record = {"node": "n9", "expires": (datetime.now(timezone.utc) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}
    excluded = path_for(run.path.parent, "slurm-sandbox")
    excluded.parent.mkdir()
    records.append_line(excluded, record)
    records.append_line(excluded, {"node": "n8", "expires": "2020-01-01T00:00:00Z"})
    done = ask(fake, run, from_step=8, exclude=("n1",))
    assert (done.job, done.replaces, done.exclude) == ("8", "7", ("n1", "n9"))
    script = str(run.path / "batch.sh")
    assert fake.calls("sbatch")[-1] == ["--parsable", "--hold", "--dependency=singleton", "--exclude=n1,n9", script]
    assert fake.calls("scontrol")[-1] == ["release", "8"]
    asked = read_history(run).request
    assert (asked.from_step, asked.exclude, asked.open, asked.after_attempt) == (8, ("n1",), True, 0)
    names = [event["event"] for event in records.read_lines(run.events)]
    assert names[-2:] == ["submitted", "requeue_requested"]
    (event,) = [event for event in events(run, "submitted") if event["job_id"] == "8"]
    assert (event["replaces"], event["by"], event["executor"]) == ("7", "ada", "slurm")
    assert events(run, "requeue_requested")[0]["by"] == "ada"
    assert (run.path / "submitit" / "8_submitted.pkl").is_file(), "submitit could not start it"
    assert (run.path / "job_id").read_text() == "8\n"


Scene = Callable[[FakeCommands, RunFolder], None]


def spoil_code(fake: FakeCommands, folder: RunFolder) -> None:
    path = folder.path / "code" / "seatrial" / "errors.py"
    path.chmod(0o644)
    path.write_text("raise SystemExit\n")


def wait_for_gate(fake: FakeCommands, folder: RunFolder) -> None:
    spec = records.read_json(folder.spec)
    admission = Admission("after-gate", "gate-1", str(folder.path.parent / "gate-1")).to_json()
    records.write_json(folder.spec, spec | {"admission": admission})


def no_checkpoint(fake: FakeCommands, folder: RunFolder) -> None:
    for step in (8, 16):
        (folder.checkpoints / f"iter_{step:07d}" / ".metadata").unlink()


def gate(fake: FakeCommands, folder: RunFolder) -> None:
    records.write_json(folder.spec, records.read_json(folder.spec) | {"kind": "gate"})


def queue(reply: Reply, *more: Reply, sacct: Reply = EMPTY) -> Scene:
    return lambda fake, folder: answers(fake, folder, squeue=[reply, *more], sacct=[sacct])


def pending(reason: str) -> Scene:
    return lambda fake, folder: answers(fake, folder, squeue=[waiting(folder, reason)])


def state(word: str) -> Scene:
    def script(fake: FakeCommands, folder: RunFolder) -> None:
        row = queue_row(7, folder.path.name, word, uid=os.getuid(), submitted=datetime.now().isoformat()[:19])
        answers(fake, folder, squeue=[Reply(lines(row))])

    return script


def without_decision(then: Scene) -> Scene:
    def script(fake: FakeCommands, folder: RunFolder) -> None:
        decide(folder, "restart")
        then(fake, folder)

    return script


def one_more_job(fake: FakeCommands, folder: RunFolder) -> None:
    answers(fake, folder, squeue=[EMPTY, Reply("9 PENDING\n")])


REFUSALS: dict[str, tuple[Scene, dict[str, Any], str]] = {
    "it runs": (state("RUNNING"), {}, "its job 7 runs (RUNNING)"),
    "it starts": (state("CONFIGURING"), {}, "its job 7 runs (CONFIGURING)"),
    "it ends": (state("COMPLETING"), {}, "its job 7 is ending"),
    "Slurm is silent": (without_decision(queue(DOWN, sacct=DOWN)), {}, "nobody can say whether its job still runs"),
    "Slurm is silent about the rest": (queue(EMPTY, DOWN), {}, "nobody can say whether a job of it is left"),
    "just submitted": (without_decision(queue(EMPTY)), {}, "not listed yet"),
    "another job of it is there": (one_more_job, {}, "Slurm has a job of it already: 9 PENDING"),
    "complete": (lambda fake, folder: decide(folder, "done"), {}, "it is complete"),
    "a gate": (gate, {}, "a gate is not repeated"),
    "no such checkpoint": (lambda *_: None, {"from_step": 9}, "one of 16, 8"),
    "a checkpoint that is not whole": (lambda *_: None, {"from_step": 24}, "__1_0.distcp has 1 bytes"),
    "no whole checkpoint": (no_checkpoint, {}, "no checkpoint is whole"),
    "an unknown class": (lambda *_: None, {"force_class": "gpu_falt"}, "did you mean 'gpu_fault'?"),
    "a class for no person": (lambda *_: None, {"force_class": "complete"}, "not a class that a person can give"),
    "a bad checkpoint, and which": (
        lambda *_: None, {"force_class": "checkpoint_bad", "from_step": 8}, "says already which checkpoint",
    ),
    "changed code": (spoil_code, {}, "changed: seatrial/errors.py"),
    "its gate did not pass": (wait_for_gate, {}, "the gate gate-1 that it waits for has not passed"),
    "it waits and may start": (pending("Resources"), {"from_step": 8}, "what it starts from cannot change any more"),
    "it is held for another profile": (pending("JobHeldUser"), {"profile": "gb200-8gpu"}, "made for another profile"),
    "a profile that is none": (lambda *_: None, {"profile": "slurm-sandbx"}, "did you mean 'slurm-sandbox'?"),
    "hardware for a rehearsal": (lambda *_: None, {"profile": "gb200-8gpu"}, "device cuda for cpu"),
    "this machine for a cluster": (lambda *_: None, {"profile": "local-cpu"}, "executor local for slurm"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_leaves_all_as_it_was(fake: FakeCommands, run: RunFolder, name: str) -> None:
    set_up, wish, said = REFUSALS[name]
    set_up(fake, run)
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    with pytest.raises(SeatrialError) as caught:
        ask(fake, run, **wish)
    assert said in str(caught.value)
    after = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    assert before == {name: data for name, data in after.items() if name != "requeue.lock"}
    assert len(fake.calls("sbatch")) in (0, 1), "only the first submission"
    assert "8" not in json.dumps(fake.calls("scontrol"))


def test_a_complete_run_comes_back_from_a_step(fake: FakeCommands, run: RunFolder) -> None:
    decide(run, "done")
    assert ask(fake, run, from_step=8).job == "8"


def test_a_job_that_the_queue_has_forgotten_is_no_job(fake: FakeCommands, run: RunFolder) -> None:
    """Its supervisor died without a word, and accounting is off: the queue's answer is enough, once it is not new."""
    old = [json.loads(line) for line in run.events.read_text().splitlines()]
    old = [event | ({"submit_time": "2026-01-01T00:00:00+00:00"} if event["event"] == "submitted" else {})
           for event in old if event["event"] != "decision"]  # fmt: skip
    run.events.write_text("".join(json.dumps(event) + "\n" for event in old))
    answers(fake, run, sacct=[EMPTY])
    assert ask(fake, run).job == "8"


@pytest.mark.parametrize(
    ("forced", "exclude"),
    [("gpu_fault", ("n2",)), ("node_failure", ("n2",)), ("network", ()), ("checkpoint_bad", ()), ("unknown", ())],
)
def test_what_a_person_says_it_was(fake: FakeCommands, run: RunFolder, forced: str, exclude: tuple[str, ...]) -> None:
    assert ask(fake, run, force_class=forced).exclude == exclude
    (event,) = events(run, "requeue_requested")
    assert (event["force_class"], event["exclude"]) == (forced, list(exclude))


def test_every_class_for_a_person_is_a_class() -> None:
    assert set(FORCED) < set(classes.MEANINGS)
    for named in FORCED:
        check_class(Wish("ada", force_class=named))


@pytest.mark.parametrize(
    ("replies", "cancelled", "requested"),
    [
        ({"sbatch": [REFUSED]}, [], 0),
        ({"scontrol": [GONE]}, [], 1),
        ({"scontrol": [DOWN]}, [], 1),
    ],
    ids=["not taken", "gone before its release", "not released"],
)
def test_what_fails_says_so(
    fake: FakeCommands, run: RunFolder, replies: dict[str, Any], cancelled: list[str], requested: int
) -> None:
    answers(fake, run, **replies)
    with pytest.raises(SeatrialError):
        ask(fake, run)
    assert len(events(run, "requeue_requested")) == requested
    assert len(events(run, "submitted")) == 1 + requested
    assert len(events(run, "requeue_failed")) == (0 if replies.get("scontrol") == [DOWN] else 1)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["", "on another profile"])
def test_a_request_that_cannot_be_written_takes_all_back(
    fake: FakeCommands, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    before = {name: (run.path / name).read_bytes() for name in ("spec.json", "batch.sh")}
    monkeypatch.setattr(module, "_request", full)
    wish = {}
    if elsewhere:
        prepare(RunSpec.from_json(records.read_json(run.spec)))
        answers(fake, run, sbatch=[EMPTY, EMPTY, Reply("8\n")])
        only_releases(fake)
        wish = {"profile": profile_file(tmp_path, partition="long")}
    with pytest.raises(OSError, match="No space"):
        ask(fake, run, **wish)
    assert [call[-1] for call in fake.calls("scancel")] == ["8"]
    assert not any("release" in call for call in fake.calls("scontrol"))
    assert not read_history(run).request.open
    assert before == {name: (run.path / name).read_bytes() for name in before}
    assert not (run.path / "spec-000.json").exists()


@pytest.mark.parametrize(
    ("reason", "exclude", "told", "request_written"),
    [
        ("job requeued in held state", ("n1",), [["show"], ["update", "ExcNodeList=n[3-4],n1"], ["release"]], True),
        ("launch failed requeued held", (), [["release"]], True),
        ("JobHeldUser", (), [["release"]], True),
        ("Resources", ("n1",), [["show"], ["update", "ExcNodeList=n[3-4],n1"]], False),
        ("Resources", (), [], False),
        ("JobHeldAdmin", (), [], False),
    ],
)
def test_a_job_that_waits(
    fake: FakeCommands, run: RunFolder, reason: str, exclude: tuple[str, ...], told: list[list[str]],
    request_written: bool,
) -> None:  # fmt: skip
    shown = Reply("JobId=7 JobName=x JobState=PENDING ReqNodeList=(null) ExcNodeList=n[3-4]\n")
    answers(fake, run, squeue=[waiting(run, reason)], scontrol=[shown if exclude else EMPTY, EMPTY])
    done = ask(fake, run, exclude=exclude)
    assert done.job == "7"
    calls = fake.calls("scontrol")
    assert len(calls) == len(told)
    for call, words in zip(calls, told, strict=True):
        assert set(words) <= set(call), call
    assert bool(events(run, "requeue_requested")) is request_written
    assert len(events(run, "submitted")) == 1
    if reason == "JobHeldAdmin":
        assert "an administrator holds it" in done.words


def test_two_at_once_give_one_job(fake: FakeCommands, run: RunFolder) -> None:
    """Whichever comes second meets the first one's lock, or its job."""
    now = datetime.now().isoformat()[:19]
    row = queue_row(8, run.path.name, "PENDING", uid=os.getuid(), submitted=now, started="N/A")
    slow = fake.bin / "sbatch"
    slow.write_text(slow.read_text().replace("rc=$(cat", "sleep 1\nrc=$(cat", 1))
    outcomes: list[object] = []

    def attempt() -> None:
        try:
            outcomes.append(ask(fake, run))
        except SeatrialError as error:
            outcomes.append(error)

    both = [threading.Thread(target=attempt) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sorted(type(one).__name__ for one in outcomes) == ["Busy", "Requeued"]
    (refused,) = [one for one in outcomes if isinstance(one, SeatrialError)]
    assert "another seatrial requeue" in str(refused)
    assert len(fake.calls("sbatch")) == 1
    answers(fake, run, squeue=[Reply(lines(row))])
    assert "waits in the queue already" in ask(fake, run).words
    assert len(events(run, "submitted")) == 2


@pytest.mark.parametrize(
    ("state", "final", "on_slurm", "wish", "age", "expected"),
    [
        ("FAILED", True, True, {}, 5.0, Way.SUBMIT),
        ("UNKNOWN", False, True, {}, 500.0, Way.SUBMIT),
        ("UNKNOWN", False, True, {}, 5.0, None),
        ("UNKNOWN", False, False, {}, 500.0, None),
        ("RUNNING", False, False, {}, 5.0, None),
        ("FAILED", True, False, {}, 5.0, Way.SUBMIT),
        ("FAILED", True, False, {"exclude": ("n1",)}, 5.0, None),
        ("REQUEUE_HOLD", False, True, {}, 5.0, Way.RELEASE),
        ("PENDING", False, True, {}, 5.0, Way.LEAVE),
        ("PENDING", False, True, {"force_class": "hang"}, 5.0, None),
        ("PENDING", False, True, {"profile": "p"}, 5.0, None),
    ],
)
def test_the_way(
    state: str, final: bool, on_slurm: bool, wish: dict[str, Any], age: float, expected: Way | None
) -> None:
    job = JobState(state, final, "why", "squeue", "7")
    if expected is not None:
        assert way_back(job, Wish("ada", **wish), "convergence", on_slurm, age) is expected
        return
    with pytest.raises(SeatrialError):
        way_back(job, Wish("ada", **wish), "convergence", on_slurm, age)


@pytest.mark.parametrize(
    ("reason", "held"),
    [
        ("job_requeued_in_held_state", True), ("launch failed requeued held", True), ("JobHeldUser", True),
        ("JobHoldMaxRequeue", True), ("JobHeldAdmin", False), ("Resources", False), ("Dependency", False),
    ],
)  # fmt: skip
def test_held(reason: str, held: bool) -> None:
    assert is_held("PENDING", reason) is held


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (["n1"], ("n1",)),
        (["n1,n2", "n1"], ("n1", "n2")),
        (["n[1-2],m", "n3"], ("n1", "n2", "m", "n3")),
        ([" n1 , "], ("n1",)),
        ([], ()),
    ],
)
def test_nodes_are_expanded(words: list[str], nodes: tuple[str, ...]) -> None:
    slurm = Told(replies={"scontrol": Done(0, "n1\nn2\nm\n", "", "scontrol")})
    assert expand(words, slurm) == nodes
    assert all(list(argv)[-1] == "n[1-2],m" for argv in slurm.asked)


def test_nodes_that_slurm_cannot_read() -> None:
    slurm = Told(replies={"scontrol": Done(1, "", "Invalid hostlist: n[1\n", "scontrol")})
    with pytest.raises(SeatrialError, match="not a list of nodes: Invalid hostlist"):
        expand(["n[1"], slurm)


# -- another profile
