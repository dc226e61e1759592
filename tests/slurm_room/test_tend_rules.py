"""What is done about a run: a table, and what no mixture of facts may ever lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.slurm.batch_host import batch_hosts, is_lost
from seatrial.slurm.client import JobId
from seatrial.slurm.commands import Done
from seatrial.slurm.state_records import ENDS, UNKNOWN, WAITING, JobState
from seatrial.slurm.tend_rules import MOST_UNBEGUN, MOST_UNTAKEN, Action, Case, Host, Patience, tended
from tests.slurm_room.fakes import Told

DAY = 86400.0
N, W, U, P = Action.NOTHING, Action.WAIT, Action.UNKNOWN, Action.PERSON
LOST, FINE, UNTOLD = Host("n1", True), Host("n1", False), Host("n1", None)
AWAY = ("squeue: Unable to contact slurm controller; scontrol: the same",)


def job(state: str, reason: str = "", source: str = "squeue", **more: Any) -> JobState:
    return JobState(state, state in ENDS, reason, source, "7", **more)


def case(state: JobState, **facts: Any) -> Case:
    """A run of which all is long ago, unless told otherwise."""
    return Case(**{"kind": "convergence", "job": state, "age": 9000.0, "silent": 900.0, "gone": 900.0, **facts})


def forgotten(*notes: str, **facts: Any) -> Case:
    return case(job(UNKNOWN, "Slurm has no job 7 of this run (any more)", "nobody", notes=notes), gone=None, **facts)


RUNNING = job("RUNNING")
TABLE: dict[str, tuple[Case, Action, str]] = {
    "done": (case(job("COMPLETED"), settled="done: 40 steps"), N, "it has ended: done: 40 steps"),
    "done, and its job is unknown": (forgotten(settled="done"), N, "it has ended"),
    "never submitted": (case(job(UNKNOWN), executor=""), N, "no job of it is on record"),
    "somebody else's": (case(job("FAILED"), owner="1001"), N, "user 1001 submitted it"),
    # Its job is there.
    "runs": (case(RUNNING), N, "its job is RUNNING"),
    "runs, host is well": (case(RUNNING, host=FINE), N, "its job is RUNNING"),
    "runs, nobody knows its host": (case(RUNNING, host=UNTOLD), N, "nobody can say how its batch host n1 is"),
    "runs without its host": (case(RUNNING, host=LOST), Action.REQUEUE, "batch host n1 is down"),
    "runs without its host, and writes": (case(RUNNING, host=LOST, silent=5.0), W, "written just now"),
    "runs without its host, requeued": (case(RUNNING, host=LOST, requeued=True), P, "requeued already"),
    "a gate without its host": (case(RUNNING, host=LOST, kind="gate"), P, "a gate is not repeated"),
    "ends": (case(job("COMPLETING")), N, "its job is COMPLETING"),
    "requeued by Slurm": (case(job("REQUEUED", "BeginTime")), N, "its job is REQUEUED (BeginTime)"),
    "waits": (case(job("PENDING", "Resources")), N, "its job is PENDING (Resources)"),
    "held": (case(job("PENDING", "JobHeldUser", needs_action="it is held: release it")), P, "release it"),
    "held by an administrator": (case(job("PENDING", "JobHeldAdmin", needs_action="ask why")), P, "ask why"),
    "held after a failed launch": (
        case(job("PENDING", "launch failed requeued held", needs_action="exclude that node")), P, "exclude that node",
    ),
    "held, and new": (case(job("PENDING", "JobHeldUser", needs_action="x"), age=5.0), W, "submitted now"),
    "held by tend itself": (
        case(job("PENDING", "JobHeldUser", needs_action="x"), held_by_tend=True), Action.RELEASE, "not released yet",
    ),
    "submitted by tend, and waits": (case(job("PENDING", "Priority"), held_by_tend=True), N, "PENDING"),
    "submitted by tend, held by an administrator": (
        case(job("PENDING", "JobHeldAdmin", needs_action="ask why"), held_by_tend=True), P, "ask why",
    ),
    "its gate has failed": (
        case(job("PENDING", "DependencyNeverSatisfied", needs_action="dependency_failed: cancel it")), P, "cancel it",
    ),
    "a gate that is held": (case(job("PENDING", "JobHeldUser", needs_action="x"), kind="gate"), N, "PENDING"),
    "accounting alone answers": (case(job("RUNNING", source="sacct", notes=AWAY)), U, "Unable to contact"),
    "accounting alone knows an end": (
        case(replace(job("PREEMPTED", source="sacct", notes=AWAY), final=False)), U, "nobody can say",
    ),
    # Its job has ended.
    "cancelled": (case(job("CANCELLED")), N, "a person cancelled job 7: seatrial requeue RUN"),
    **{
        state: (case(job(state)), Action.SUBMIT, f"job 7 ended ({state}) without a decision")
        for state in sorted(ENDS - {"CANCELLED", "DEADLINE", "REVOKED"})
    },
    "past its deadline": (case(job("DEADLINE")), P, "seatrial requeue RUN"),
    "another cluster's": (case(job("REVOKED")), P, "REVOKED"),
    "a gate": (case(job("NODE_FAIL"), kind="gate"), N, "a gate is not repeated"),
    "just now": (case(job("PREEMPTED"), gone=59.0), W, "it may come back by itself"),
    "by a clock that is ahead": (case(job("FAILED"), gone=-5.0), W, "it may come back by itself"),
    "nobody says when": (case(job("FAILED"), gone=None, silent=5.0), W, "it may come back by itself"),
    "long ago": (case(job("FAILED"), silent=15 * DAY), N, "silent for 15 days: name it"),
    "long ago, and named": (case(job("FAILED"), silent=15 * DAY, named=True), Action.SUBMIT, "job 7"),
    "not taken up once": (case(job("FAILED"), untaken=1, unbegun=1), Action.SUBMIT, "job 7"),
    "not taken up twice": (case(job("FAILED"), untaken=2, unbegun=2, named=True), P, "none came to start"),
    "taken up, and no attempt": (case(job("FAILED"), unbegun=5), P, "after 5 submissions in a row no attempt began"),
    # Slurm has forgotten it.
    "forgotten": (forgotten(), Action.SUBMIT, "Slurm no longer knows its job 7"),
    "forgotten, without accounting": (
        forgotten("sacct: Slurm accounting storage is disabled"), Action.SUBMIT, "no longer knows its job 7",
    ),
    "a question failed": (forgotten(*AWAY), U, "Unable to contact"),
    "one of two questions failed": (forgotten("sacct: Connection refused"), U, "Connection refused"),
    "submitted just now": (forgotten(age=100.0), W, "does not list it yet"),
    "nobody knows when submitted": (forgotten(age=None), W, "does not list it yet"),
    "its supervisor writes": (forgotten(silent=200.0), W, "written just now"),
    "cancelled, by its log": (forgotten(said="CANCELLED"), N, "its batch log says CANCELLED"),
    "preempted, by its log": (forgotten(said="PREEMPTED"), Action.SUBMIT, "no longer knows"),
    "it never began": (forgotten(begun=False), P, "it may have been cancelled"),
    "on another cluster": (forgotten(cluster="red"), N, "cluster red, which is not here"),
    "on some cluster": (forgotten(cluster="?"), P, "whether it was this Slurm's"),
    "on some cluster, and named": (forgotten(cluster="?", named=True), Action.SUBMIT, "no longer knows"),
    "forgotten long ago": (forgotten(silent=20 * DAY), N, "name it"),
    "a forgotten gate": (forgotten(kind="gate"), N, "a gate is not repeated"),
    # On a machine without Slurm.
    "its supervisor is gone": (case(job("FAILED"), executor="local", gone=None), Action.START, "supervisor is gone"),
    "on another machine": (
        case(job(UNKNOWN, "it runs on host b, not here"), executor="local"), N, "it runs on host b, not here",
    ),
    "it runs here": (case(job("RUNNING", source="process"), executor="local"), N, "RUNNING"),
    "in an allocation": (case(job("FAILED"), executor="here"), N, "somebody's allocation"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_a_rule(name: str) -> None:
    facts, action, words = TABLE[name]
    what = tended(facts)
    assert (what.action, words in what.words) == (action, True), what


CASES = st.builds(
    Case, kind=st.sampled_from(["gate", "convergence"]),
    job=st.builds(
        JobState, state=st.sampled_from([*sorted(ENDS | WAITING), UNKNOWN, "RUNNING", "COMPLETING", "SUSPENDED"]),
        final=st.booleans(), reason=st.sampled_from(["", "JobHeldUser", "JobHeldAdmin", "Resources", "held state"]),
        source=st.sampled_from(["squeue", "sacct", "scontrol", "nobody", "run folder", "process"]),
        job_id=st.just("7"), needs_action=st.sampled_from([None, "look"]), notes=st.sampled_from([(), AWAY]),
    ).map(lambda job: replace(job, final=job.final and job.state in ENDS)),
    settled=st.sampled_from([None, None, None, "done"]), executor=st.sampled_from(["slurm", "local", "here", ""]),
    age=st.none() | st.floats(-10, 1e7), silent=st.none() | st.floats(-10, 1e7), gone=st.none() | st.floats(-10, 1e7),
    begun=st.booleans(), said=st.sampled_from(["", "CANCELLED", "PREEMPTED"]), untaken=st.integers(0, 4),
    unbegun=st.integers(0, 7), host=st.sampled_from([None, LOST, FINE, UNTOLD]), held_by_tend=st.booleans(),
    requeued=st.booleans(), cluster=st.sampled_from(["", "?", "red"]), owner=st.sampled_from(["", "1001"]),
    named=st.booleans(),
)  # fmt: skip


@given(CASES)
def test_no_facts_bring_back_what_must_not_be(one: Case) -> None:
    what, job, patience = tended(one), one.job, Patience()
    assert what.words
    if not what.action.acts:
        return
    assert one.settled is None and one.kind != "gate" and not one.owner
    assert job.state != "CANCELLED"
    if what.action in (Action.SUBMIT, Action.START):
        assert (job.final and job.state in ENDS) or (job.state == UNKNOWN and not job.notes)
        assert one.executor == ("slurm" if what.action is Action.SUBMIT else "local")
        assert one.untaken < MOST_UNTAKEN and one.unbegun < MOST_UNBEGUN
        since = one.silent if job.state == UNKNOWN or one.gone is None else one.gone
        assert since is not None and since >= patience.grace
        assert one.named or one.silent is None or one.silent <= patience.old_days * DAY
    if job.state == UNKNOWN:
        assert one.begun and one.said != "CANCELLED" and one.cluster != "red"
        assert one.silent is not None and one.silent >= patience.silence
    if what.action is Action.REQUEUE:
        assert job.state not in WAITING | ENDS and one.host == LOST and not one.requeued
    if what.action is Action.RELEASE:
        assert job.state in WAITING and one.held_by_tend


@given(CASES)
def test_what_was_brought_back_is_not_brought_back_again(one: Case) -> None:
    """The job that comes of it is new: not listed yet, waiting, running or just ended, whatever else was so."""
    if tended(one).action not in (Action.SUBMIT, Action.START):
        return
    for state in (job("PENDING", "Priority"), RUNNING, job("FAILED"), job(UNKNOWN, "not listed yet", "nobody")):
        after = replace(one, job=state, age=1.0, silent=1.0, gone=1.0 if state.final else None, host=None)
        assert not tended(after).action.acts


@pytest.mark.parametrize(
    ("state", "lost"),
    [
        ("DOWN+NOT_RESPONDING", True), ("DOWN*", True), ("DOWN*+DRAIN", True), ("DOWN+DRAIN+NOT_RESPONDING", True),
        ("DOWN", False), ("DOWN+DRAIN", False), ("MIXED", False), ("MIXED+NOT_RESPONDING", False), ("MIXED*", False),
        ("IDLE+FAIL", False), ("IDLE+FAIL+NOT_RESPONDING", False), ("", False),
    ],
)  # fmt: skip
def test_a_node_is_lost(state: str, lost: bool) -> None:
    assert is_lost(state) is lost


def hosts(queue: Done, nodes: Done) -> tuple[dict[JobId, Host], list[list[str]]]:
    slurm = Told(replies={"squeue": queue, "scontrol": nodes})
    return batch_hosts([JobId("7"), JobId("8"), JobId("9")], slurm), [list(words) for words in slurm.asked]


def test_all_hosts_are_asked_for_at_once() -> None:
    queue = Done(0, "7 n1\n8 n2\n9 n/a\n", "", "squeue")
    shown = (
        "NodeName=n1 Arch=aarch64 OS=Linux 6.1 #1 SMP State=DOWN+NOT_RESPONDING Reason=Not responding [root@x]\n"
        "NodeName=n2 Arch=aarch64 State=ALLOCATED ThreadsPerCore=1\n"
    )
    found, asked = hosts(queue, Done(0, shown, "", "scontrol"))
    assert found == {JobId("7"): Host("n1", True), JobId("8"): Host("n2", False)}
    assert [words[0] for words in asked] == ["squeue", "scontrol"]
    assert "--jobs=7,8,9" in asked[0] and asked[1][-1] == "n1,n2"


def test_a_failed_question_is_not_a_lost_host() -> None:
    failed = Done(1, "NodeName=n1 State=DOWN*\n", "Unable to contact slurm controller", "x")
    queue = Done(0, "7 n1\n", "", "squeue")
    assert hosts(queue, failed)[0] == {JobId("7"): Host("n1", None)}
    assert hosts(failed, failed)[0] == {}
