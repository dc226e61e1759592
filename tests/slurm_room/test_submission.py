"""Submitting exactly once, whatever sbatch says and does."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.slurm.client import JobId, SubmissionUnclear
from seatrial.slurm.commands import Done
from seatrial.slurm.submission import Commands, parse_id, submit
from tests.slurm_room.fakes import FakeCommands, Reply, lines

RUN = "nano-gate-20261201-000000-abcdef"
SBATCH = ["sbatch", "batch.sh"]
TIMED_OUT = Reply(err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", rc=1)
STANDBY = Reply(err="sbatch: error: Batch job submission failed: Slurm backup controller in standby mode\n", rc=1)
REFUSED = Reply(err="sbatch: error: Batch job submission failed: Invalid partition name specified\n", rc=1)
ODD = Reply(err="sbatch: error: plugin said no\n", rc=1)
DOWN = Reply(err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", rc=1)
NO_ACCOUNTING = Reply(err="Slurm accounting storage is disabled\n", rc=1)
OTHER = (99, 1_800_000_000, "", "another-run")


def queue(*numbers: int) -> Reply:
    return Reply(lines(OTHER, *((number, 1_800_000_000 + number, RUN, RUN) for number in numbers)))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply("123\n"), JobId("123")),
        (Reply("123;red\n"), JobId("123", "red")),
        (Reply("123\n", "sbatch: warning: account is nearly out of hours; error: none\n"), JobId("123")),
        (Reply("Welcome to Red.\n  Job 9 is yours\n123;red\n"), JobId("123", "red")),
        (Reply("123"), JobId("123")),
    ],
)
def test_code_0_and_a_number_are_a_job(fake: FakeCommands, reply: Reply, expected: JobId) -> None:
    fake.script("sbatch", reply)
    job = fake.slurm().submit(SBATCH, RUN)
    assert job == expected and not job.adopted
    assert fake.calls("sbatch") == [["--parsable", "batch.sh"]]


@pytest.mark.parametrize("text", ["", "Submitted batch job 12\n", "0\n", "12;\n", "-1\n", "12 13\n", "1e3\n"])
def test_other_output_is_no_number(text: str) -> None:
    assert parse_id(text) is None


# sbatch's replies, squeue's, sacct's -> the job's number or the error, and how often sbatch ran.
CASES = {
    "accepted although the socket timed out": ([TIMED_OUT], [queue(7)], [NO_ACCOUNTING], "7", 1),
    "shows up only at the third look": ([TIMED_OUT], [queue(), queue(), queue(7)], [Reply()], "7", 1),
    "known to accounting only": ([TIMED_OUT], [queue()], [Reply(lines((7, 1_800_000_000, RUN)))], "7", 1),
    "truly absent: sent once more": ([TIMED_OUT, Reply("8\n")], [queue()], [Reply()], "8", 2),
    "absent twice": ([TIMED_OUT, TIMED_OUT, Reply("8\n")], [queue()], [Reply()], SeatrialError, 2),
    "sent again, accepted and again unclear": ([TIMED_OUT], [queue()] * 4 + [queue(9)], [Reply()], "9", 2),
    "the controller fails over": ([STANDBY, STANDBY, STANDBY, Reply("8\n")], [DOWN, queue()], [Reply()], "8", 4),
    "the controller stays away": ([STANDBY], [queue()], [NO_ACCOUNTING], SeatrialError, 7),
    "accepted by the first controller, answered by the second": ([STANDBY], [queue(7)], [Reply()], "7", 1),
    "refused": ([REFUSED], [queue(7)], [Reply()], SeatrialError, 1),
    "an error nobody knows": ([ODD], [queue()], [Reply()], SeatrialError, 1),
    "an error nobody knows, but the job is there": ([ODD], [queue(7)], [Reply()], "7", 1),
    "code 0 and no number": ([Reply("accepted\n")], [queue(7)], [Reply()], "7", 1),
    "sbatch is killed": ([Reply(rc="killed")], [queue(7)], [Reply()], "7", 1),
    "nobody answers": ([TIMED_OUT], [DOWN], [Reply()], SubmissionUnclear, 1),
    "nobody answers, and accounting knows it": ([TIMED_OUT], [DOWN], [Reply(lines((7, 1, RUN)))], "7", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_faults(fake: FakeCommands, name: str) -> None:
    sbatch, squeue, sacct, expected, calls = CASES[name]
    fake.script("sbatch", *sbatch)
    fake.script("squeue", *squeue)
    fake.script("sacct", *sacct)
    said: list[str] = []
    slurm = fake.slurm(say=said.append)
    if isinstance(expected, str):
        job = slurm.submit(SBATCH, RUN)
        assert job.number == expected and job.adopted == (expected in ("7", "9"))
    else:
        with pytest.raises(expected) as caught:
            slurm.submit(SBATCH, RUN)
        assert type(caught.value) is expected
        words = next(line for line in sbatch[0].err.splitlines() if line)
        assert words in str(caught.value) and caught.value.rule and caught.value.fix
    assert len(fake.calls("sbatch")) == calls and sum("sending it again" in words for words in said) == calls - 1


def test_a_hanging_sbatch_is_ended_and_its_job_found(fake: FakeCommands) -> None:
    fake.script("sbatch", Reply("", rc="hang"))
    fake.script("squeue", queue(7))
    assert fake.slurm(submit_seconds=0.3).submit(SBATCH, RUN) == JobId("7")
    assert len(fake.calls("sbatch")) == 1


def test_earlier_jobs_of_the_run_are_not_taken_for_this_one(fake: FakeCommands) -> None:
    fake.script("sbatch", TIMED_OUT)
    fake.script("squeue", queue(5, 7))
    fake.script("sacct", Reply(lines((4, 1, RUN))))
    assert fake.slurm().submit(SBATCH, RUN, known=["4", "5"]) == JobId("7")
    fake.script("squeue", queue(5))
    fake.script("sbatch", TIMED_OUT, Reply("8\n"))
    assert fake.slurm().submit(SBATCH, RUN, known=["4", "5"]) == JobId("8")


def test_of_two_accepted_ones_the_older_stays(fake: FakeCommands) -> None:
    fake.script("sbatch", TIMED_OUT)
    fake.script("squeue", queue(7, 8))
    fake.script("scancel", Reply())
    assert fake.slurm().submit(SBATCH, RUN).number == "7"
    assert fake.calls("scancel") == [["--state=PENDING", "8"]]


def test_the_look_goes_to_the_same_cluster_and_user(fake: FakeCommands) -> None:
    fake.script("sbatch", TIMED_OUT)
    fake.script("squeue", queue(7))
    assert fake.slurm().submit(["sbatch", "--clusters=red", "b"], RUN, cluster="red") == JobId("7", "red")
    assert {"--clusters=red", "--user=1000", "--states=all"} <= set(fake.calls("squeue")[0])


def test_from_inside_an_allocation(fake: FakeCommands) -> None:
    """Nothing of the outer job reaches sbatch, and it still finds its cluster."""
    fake.script("sbatch", Reply("1\n"))
    outer = {
        "SLURM_CONF": "/etc/x.conf", "SLURM_JOB_ID": "5", "SLURM_CPU_BIND": "none", "SBATCH_ACCOUNT": "a", "HOME": "/h",
    }  # fmt: skip
    fake.slurm(outer).submit(SBATCH, RUN)
    seen = fake.environment("sbatch")
    assert seen["SLURM_CONF"] == "/etc/x.conf" and seen["HOME"] == "/h"
    assert [name for name in seen if name.startswith(("SLURM_", "SBATCH_"))] == ["SLURM_CONF"]


@pytest.mark.parametrize("run_id", ["", "a b", "a,b", "-x", "a\nb", "é", "x" * 201, "a;b", "$(x)"])
def test_names_that_are_no_run_ids_are_refused(fake: FakeCommands, run_id: str) -> None:
    with pytest.raises(SeatrialError, match="not a name"):
        fake.slurm().submit(SBATCH, run_id)


def test_without_sbatch_nothing_is_looked_for() -> None:
    from seatrial.slurm.client import Slurm

    with pytest.raises(SeatrialError, match="no command 'sbatch'") as caught:
        Slurm({"PATH": "/nonexistent"}).submit(SBATCH, RUN)
    assert not isinstance(caught.value, SubmissionUnclear)


def test_an_interrupted_submission_is_unclear() -> None:
    def interrupted(argv: Sequence[str]) -> Done:
        raise KeyboardInterrupt

    commands = Commands(interrupted, interrupted, lambda _: None, lambda: 0.0)
    with pytest.raises(SubmissionUnclear, match="interrupted"):
        submit(SBATCH, RUN, commands, user="1000")


texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from([TIMED_OUT.err, STANDBY.err, REFUSED.err, ODD.err, "123\n", "sbatch: warning: x\n", "7;red\n"]),
)
ends = st.tuples(st.sampled_from([0, 1, 2, 127, -9, -15, None]), texts, texts)


@given(
    st.lists(st.tuples(st.booleans(), ends), min_size=1, max_size=8),
    st.lists(st.one_of(st.just("truth"), ends), min_size=1, max_size=12),
)
def test_at_most_one_job_whatever_is_printed(
    sends: list[tuple[bool, tuple[int | None, str, str]]], looks: list[object]
) -> None:
    """sbatch makes a job or not and then says anything; squeue tells the truth or fails in any way."""
    made: list[int] = []
    counts = {"sent": 0, "looked": 0}

    def sbatch(argv: Sequence[str]) -> Done:
        makes, (code, out, err) = sends[min(counts["sent"], len(sends) - 1)]
        counts["sent"] += 1
        honest = parse_id(out)
        if code == 0 and honest is not None:
            makes = True
        if "Invalid partition" in err + out and code not in (0, None):
            makes = False  # the controller's own answer is believed
        if makes:
            made.append(100 + len(made) if code != 0 or honest is None else int(honest[0]))
        return Done(code, out, err, "sbatch")

    def ask(argv: Sequence[str]) -> Done:
        look = looks[min(counts["looked"], len(looks) - 1)]
        counts["looked"] += 1
        if argv[0] == "squeue" and (look == "truth" or look[0] == 0):  # type: ignore[index]
            return Done(0, lines(OTHER, *((number, 1, "", RUN) for number in made)), "", "squeue")
        return Done(1, "", "no answer", argv[0])

    commands = Commands(sbatch, ask, lambda _: None, lambda: 0.0)
    try:
        job = submit(SBATCH, RUN, commands, user="1000")
    except SubmissionUnclear:
        pass
    except SeatrialError:
        assert not made
    else:
        assert [job.number] == [str(number) for number in made]
    assert len(made) <= 1


def test_the_time_of_a_good_submission_is_sbatch_alone(fake: FakeCommands) -> None:
    fake.script("sbatch", Reply("1\n"))
    slurm = fake.slurm()
    slurm.submit(SBATCH, RUN)
    assert slurm.slept == []  # type: ignore[attr-defined]
    assert not (fake.bin / "squeue").exists() and os.environ.get("SLURM_CONF") is None
