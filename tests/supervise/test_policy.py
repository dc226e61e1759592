"""What follows an attempt: every class and rule as a table, and what no sequence of ends may bring about."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.supervise import classes, policy
from seatrial.supervise.history import past_of
from seatrial.supervise.policy import (
    DONE,
    EARLIER_CHECKPOINT,
    REQUEUE,
    REQUEUE_EXCLUDING,
    RESTART,
    RESTART_ON_SPARE,
    STOP,
    Budgets,
    Decision,
    Past,
    Slot,
    decide,
)

B = Budgets()
STOPS_AT_ONCE = (
    classes.CANCELLED, classes.NAN, classes.DATA_ERROR, classes.USER_ERROR, classes.RESUME_MISMATCH,
    classes.DEPENDENCY_FAILED,
)  # fmt: skip
QUIET = (classes.TIME_LIMIT, classes.PREEMPTED)
LOCAL = Slot(None, 0.0, can_requeue=False, may_exclude=False)
FULL = Slot(may_exclude=False)  # as many nodes are left out as may be
SPARE = Slot(spares=1)
LATE = Slot(seconds_left=100, needed=200)
SOON = Slot(seconds_left=300, needed=200)


def end(name: str, **more: Any) -> Past:
    return Past(name, how=more.pop("how", f"{name}: x"), **more)


def moved(name: str, **more: Any) -> Past:
    """An end that left a newer checkpoint."""
    return end(name, progress=True, farther=True, **more)


def at(name: str, *steps: int | None, **more: Any) -> list[Past]:
    return [end(name, step=step, **more) for step in steps]


NODE = {"node": "n3", "step": 5}

# (before, now, slot, action, class of the decision, words of its reason)
RULES: list[tuple[list[Past], Past, Slot, str, str, str]] = [
    # proven, or beyond another try
    ([], end(classes.COMPLETE), Slot(), DONE, classes.COMPLETE, "proven"),
    *[([], moved(name, step=7), Slot(), STOP, name, "") for name in STOPS_AT_ONCE],
    # slots that end: nobody's fault, unless none of them leaves a checkpoint
    ([], moved(classes.TIME_LIMIT), Slot(), REQUEUE, classes.TIME_LIMIT, "with a newer checkpoint"),
    ([], end(classes.TIME_LIMIT), Slot(), REQUEUE, classes.TIME_LIMIT, "1 of 2 slots without a newer checkpoint"),
    ([end(classes.TIME_LIMIT)], end(classes.TIME_LIMIT), Slot(), STOP, classes.NO_PROGRESS, "2 slots in a row"),
    ([end(classes.TIME_LIMIT)], moved(classes.TIME_LIMIT), Slot(), REQUEUE, classes.TIME_LIMIT, "newer"),
    ([moved(classes.TIME_LIMIT)], end(classes.TIME_LIMIT), Slot(), REQUEUE, classes.TIME_LIMIT, "1 of 2"),
    ([end(classes.TIME_LIMIT), *[end(classes.PREEMPTED)] * 3], end(classes.TIME_LIMIT), Slot(), STOP,
     classes.NO_PROGRESS, "2 slots"),
    ([], end(classes.TIME_LIMIT), LOCAL, RESTART, classes.TIME_LIMIT, "no queue"),
    ([end(classes.PREEMPTED)] * 18, end(classes.PREEMPTED), Slot(), REQUEUE, classes.PREEMPTED, "19 of 20"),
    ([end(classes.PREEMPTED)] * 19, end(classes.PREEMPTED), Slot(), STOP, classes.NO_PROGRESS, "20 preempted slots"),
    ([end(classes.TIME_LIMIT)], end(classes.PREEMPTED), Slot(), REQUEUE, classes.PREEMPTED, "1 of 20"),
    ([end(classes.PREEMPTED)] * 5, end(classes.TIME_LIMIT), Slot(), REQUEUE, classes.TIME_LIMIT, "1 of 2"),
    # failures that need no new node: at once in place, again in this allocation elsewhere, in the end no more
    ([], end(classes.NETWORK, step=5), Slot(), RESTART, classes.NETWORK, "failure 1 of 3"),
    ([], moved(classes.NETWORK, step=5), Slot(), RESTART, classes.NETWORK, "a newer checkpoint"),
    ([], end(classes.HANG, step=5), Slot(), RESTART, classes.HANG, ""),
    ([], end(classes.OOM_GPU, step=5), Slot(), RESTART, classes.OOM_GPU, ""),
    ([], end(classes.OOM_HOST, step=5), Slot(), RESTART, classes.OOM_HOST, ""),
    ([], end(classes.UNKNOWN, step=5), Slot(), RESTART, classes.UNKNOWN, ""),
    ([], end(classes.SUPERVISOR_ERROR), Slot(), RESTART, classes.SUPERVISOR_ERROR, ""),
    ([], end("what a later version calls it"), Slot(), RESTART, "what a later version calls it", ""),
    (at(classes.NETWORK, 5), end(classes.NETWORK, step=5), Slot(), REQUEUE, classes.NETWORK, "on other nodes"),
    (at(classes.NETWORK, 5), end(classes.NETWORK, step=5), LOCAL, RESTART, classes.NETWORK, "failure 2 of 3"),
    (at(classes.NETWORK, 5, 6, 7), end(classes.NETWORK, step=8), Slot(), STOP, classes.NO_PROGRESS, "4 failures"),
    ([*at(classes.NETWORK, 5, 6, 7), moved(classes.NETWORK)], end(classes.NETWORK, step=8), Slot(), RESTART,
     classes.NETWORK, "failure 1 of 3"),
    ([*at(classes.HANG, 5), *at(classes.NETWORK, 6), *at(classes.UNKNOWN, 7)], end(classes.GPU_FAULT, step=8), Slot(),
     STOP, classes.NO_PROGRESS, "the last: gpu_fault"),
    ([*at(classes.NETWORK, 5, 6, 7), end(classes.TIME_LIMIT)], end(classes.NETWORK, step=8), Slot(), STOP,
     classes.NO_PROGRESS, "4 failures"),
    # what is left of the slot must pay for a start
    ([], end(classes.NETWORK, step=5), LATE, REQUEUE, classes.NETWORK, "100 s are left"),
    ([], end(classes.NETWORK, step=5), SOON, RESTART, classes.NETWORK, ""),
    ([], end(classes.NETWORK, step=5), Slot(100, 200, can_requeue=False), RESTART, classes.NETWORK, ""),
    # the same failure at the same step
    *[(at(name, 7), end(name, step=7), Slot(), STOP, classes.CRASH_LOOP, "twice the same failure at step 7")
      for name in (classes.OOM_GPU, classes.OOM_HOST, classes.UNKNOWN, classes.HANG, classes.SUPERVISOR_ERROR,
                   classes.RESULT_VALIDATION)],
    (at(classes.UNKNOWN, 7), end(classes.UNKNOWN, step=8), Slot(), REQUEUE, classes.UNKNOWN, ""),
    (at(classes.UNKNOWN, 7), end(classes.UNKNOWN, step=7, how="other"), Slot(), REQUEUE, classes.UNKNOWN, ""),
    (at(classes.UNKNOWN, 7), moved(classes.UNKNOWN, step=7), Slot(), RESTART, classes.UNKNOWN, ""),
    (at(classes.UNKNOWN, None), end(classes.UNKNOWN), Slot(), STOP, classes.CRASH_LOOP, "before its first step"),
    ([*at(classes.HANG, 7), end(classes.PREEMPTED)], end(classes.HANG, step=7), Slot(), STOP, classes.CRASH_LOOP, ""),
    ([*at(classes.HANG, 7), *at(classes.NETWORK, 7)], end(classes.HANG, step=7), Slot(), REQUEUE, classes.HANG, ""),
    # a node that takes a start down whatever runs: the second time it goes, and only then the program is blamed
    (at(classes.UNKNOWN, None, node="n3"), end(classes.UNKNOWN, node="n3"), Slot(), REQUEUE_EXCLUDING,
     classes.UNKNOWN, "n3 is left out"),
    (at(classes.UNKNOWN, None, None, node="n3"), end(classes.UNKNOWN, node="n5"), Slot(), STOP,
     classes.CRASH_LOOP, "before its first step"),
    (at(classes.UNKNOWN, None, node="n3"), end(classes.UNKNOWN, node="n3"), FULL, STOP, classes.CRASH_LOOP, ""),
    (at(classes.UNKNOWN, None, node="n3"), end(classes.UNKNOWN, node="n3"), LOCAL, STOP, classes.CRASH_LOOP, ""),
    (at(classes.UNKNOWN, 7, node="n3"), end(classes.UNKNOWN, step=7, node="n3"), Slot(), STOP, classes.CRASH_LOOP, ""),
    (at(classes.OOM_GPU, None, node="n3"), end(classes.OOM_GPU, node="n3"), Slot(), STOP, classes.CRASH_LOOP, ""),
    # nodes
    ([], end(classes.GPU_FAULT, **NODE), Slot(), REQUEUE_EXCLUDING, classes.GPU_FAULT, "n3 is left out"),
    ([], end(classes.NODE_FAILURE, **NODE), Slot(), REQUEUE_EXCLUDING, classes.NODE_FAILURE, ""),
    ([], moved(classes.NODE_FAILURE, **NODE), Slot(), REQUEUE_EXCLUDING, classes.NODE_FAILURE, ""),
    ([], end(classes.NODE_FAILURE), Slot(), REQUEUE, classes.NODE_FAILURE, "not known"),
    # a spare of the allocation goes first, also where nobody may be excluded, or there is no queue
    ([], end(classes.NODE_FAILURE, **NODE), SPARE, RESTART_ON_SPARE, classes.NODE_FAILURE, "place of n3"),
    ([], end(classes.NODE_FAILURE), SPARE, RESTART_ON_SPARE, classes.NODE_FAILURE, "the lost node"),
    ([], end(classes.GPU_FAULT, **NODE), Slot(spares=1, may_exclude=False, can_requeue=False), RESTART_ON_SPARE,
     classes.GPU_FAULT, ""),
    ([], end(classes.GPU_FAULT, **NODE), Slot(100, 200, spares=1), REQUEUE_EXCLUDING, classes.GPU_FAULT, "n3"),
    (at(classes.HANG, 7, node="n3"), end(classes.HANG, step=7, node="n3"), SPARE, RESTART_ON_SPARE, classes.HANG, "n3"),
    (at(classes.HANG, 7, node="n3"), end(classes.HANG, step=7, node="n3"), Slot(), REQUEUE_EXCLUDING, classes.HANG, ""),
    (at(classes.HANG, 7, node="n3"), end(classes.HANG, step=7, node="n4"), SPARE, STOP, classes.CRASH_LOOP, ""),
    (at(classes.UNKNOWN, None, node="n3"), end(classes.UNKNOWN, node="n3"), SPARE, RESTART_ON_SPARE,
     classes.UNKNOWN, ""),
    ([], end(classes.UNKNOWN, **NODE), SPARE, RESTART, classes.UNKNOWN, ""),
    ([], end(classes.GPU_FAULT, **NODE), FULL, REQUEUE, classes.GPU_FAULT, "the most nodes already are"),
    ([], end(classes.GPU_FAULT, **NODE), LOCAL, RESTART, classes.GPU_FAULT, "no other node"),
    (at(classes.UNKNOWN, 5, node="n3"), end(classes.NETWORK, step=9, node="n3"), Slot(), REQUEUE_EXCLUDING,
     classes.NETWORK, ""),
    (at(classes.UNKNOWN, 5, node="n3"), end(classes.NETWORK, step=9, node="n4"), Slot(), RESTART, classes.NETWORK, ""),
    ([moved(classes.UNKNOWN, node="n3")], end(classes.NETWORK, step=9, node="n3"), Slot(), RESTART,
     classes.NETWORK, "",),
    # Megatron's rerun of a step: 16 asks for a resume, 17 has convicted the GPU
    ([], end(classes.RESULT_VALIDATION, exit_code=16, **NODE), Slot(), RESTART, classes.RESULT_VALIDATION, ""),
    ([], end(classes.RESULT_VALIDATION, exit_code=17, **NODE), Slot(), REQUEUE_EXCLUDING,
     classes.RESULT_VALIDATION, ""),
    # the disk: once more, without the unfinished checkpoint
    ([], end(classes.DISK_FULL, step=5), Slot(), RESTART, classes.DISK_FULL, "without the unfinished checkpoint"),
    (at(classes.DISK_FULL, 5), end(classes.DISK_FULL, step=5), Slot(), STOP, classes.DISK_FULL, "free space"),
    (at(classes.DISK_FULL, 5), moved(classes.DISK_FULL, step=9), Slot(), RESTART, classes.DISK_FULL, ""),
    # checkpoints that cannot be loaded: an earlier one, a few times
    ([], end(classes.CHECKPOINT_BAD), Slot(), EARLIER_CHECKPOINT, classes.CHECKPOINT_BAD, "cannot be loaded"),
    ([end(classes.CHECKPOINT_BAD, progress=True)] * 3, end(classes.CHECKPOINT_BAD, progress=True), Slot(), STOP,
     classes.CHECKPOINT_BAD, "4 checkpoints could not be loaded"),
    ([end(classes.CHECKPOINT_BAD, progress=True)] * 3, moved(classes.CHECKPOINT_BAD), Slot(), EARLIER_CHECKPOINT,
     classes.CHECKPOINT_BAD, ""),
    ([end(classes.CHECKPOINT_BAD)] * 3, end(classes.CHECKPOINT_BAD), Slot(), STOP, classes.NO_PROGRESS, ""),
]  # fmt: skip


@pytest.mark.parametrize(("before", "now", "slot", "action", "name", "words"), RULES)
def test_rules(before: list[Past], now: Past, slot: Slot, action: str, name: str, words: str) -> None:
    decision = decide(now, before, B, slot)
    assert (decision.action, decision.name) == (action, name), decision.reason
    assert words in decision.reason
    blamed = action in (REQUEUE_EXCLUDING, RESTART_ON_SPARE) and now.node is not None
    assert decision.exclude == ((now.node,) if blamed else ())


def test_every_class_is_in_the_table() -> None:
    # The last three are names for a decision alone.
    assert {now.name for _, now, *_ in RULES} >= set(classes.MEANINGS) - {classes.NO_PROGRESS, classes.CRASH_LOOP}


@pytest.mark.parametrize(
    ("failures", "spread", "delay"),
    [(1, 0.5, 0.0), (2, 0.5, 10.0), (3, 0.5, 20.0), (3, 0.0, 10.0), (3, 0.99, 29.8), (9, 0.5, 600.0), (40, 0.5, 600.0)],
)
def test_waits_double_and_differ_from_run_to_run(failures: int, spread: float, delay: float) -> None:
    before = at(classes.NETWORK, *range(failures - 1))
    slot = Slot(can_requeue=False, spread=spread)
    assert decide(end(classes.NETWORK, step=99), before, Budgets(failures=50), slot).delay_seconds == delay


def test_a_full_disk_is_given_time() -> None:
    assert decide(end(classes.DISK_FULL), [], B, Slot()).delay_seconds == 10.0


def test_budgets_are_the_profiles() -> None:
    found = Budgets.of({
        "failures_without_progress": 1, "slots_without_progress": 7, "preemptions_without_progress": 4,
        "backoff_seconds": 5, "longest_backoff_seconds": 50, "checkpoints_kept": 3,
    })  # fmt: skip
    assert found == Budgets(1, 7, 4, 5, 50)
    assert Budgets.of({}) == B


def test_a_gate_is_never_repeated() -> None:
    assert policy.decide_gate(end(classes.COMPLETE), "").action == DONE
    for name in set(classes.MEANINGS) - {classes.COMPLETE}:
        assert policy.decide_gate(moved(name), "rank 3 died").action == STOP


# Of every sequence. An adversary may pick all that an attempt can come to.

names = st.sampled_from(sorted(classes.MEANINGS)) | st.text(string.ascii_lowercase, max_size=3)
nodes = st.none() | st.sampled_from(["n1", "n2", "n3"])
steps = st.none() | st.integers(0, 2)
codes = st.none() | st.sampled_from([1, 16, 17, 137])
hows = st.sampled_from(["a", "b"])
going_on = names.filter(lambda name: name != classes.COMPLETE and name not in STOPS_AT_ONCE)
budgets = st.builds(
    Budgets, failures=st.integers(0, 4), slots=st.integers(1, 4), preemptions=st.integers(1, 5),
    backoff=st.floats(0, 1000), longest_backoff=st.floats(0, 1000),
)  # fmt: skip
slots = st.builds(
    Slot, seconds_left=st.none() | st.floats(-1e6, 1e6), needed=st.floats(0, 1e5), can_requeue=st.booleans(),
    may_exclude=st.booleans(), spread=st.floats(0, 1, exclude_max=True), spares=st.integers(0, 2),
)  # fmt: skip
pasts = st.builds(
    Past, name=names, how=hows, step=steps, node=nodes, progress=st.booleans(), farther=st.booleans(), exit_code=codes
)


@given(now=pasts, before=st.lists(pasts, max_size=6), budgets=budgets, slot=slots)
@settings(max_examples=500)
def test_decisions_are_total(now: Past, before: list[Past], budgets: Budgets, slot: Slot) -> None:
    decision = decide(now, before, budgets, slot)
    assert decision.action in policy.ACTIONS
    assert decision.reason
    assert decision.final == (decision.action in (DONE, STOP))
    assert 0 <= decision.delay_seconds <= 1.5 * budgets.longest_backoff
    if not slot.can_requeue:
        assert decision.action not in (REQUEUE, REQUEUE_EXCLUDING)
    if decision.action == RESTART_ON_SPARE:
        assert slot.spares > 0
        assert decision.exclude == ((now.node,) if now.node else ())
    else:
        assert bool(decision.exclude) == (decision.action == REQUEUE_EXCLUDING)
    if decision.exclude:
        assert slot.may_exclude or decision.action == RESTART_ON_SPARE
        assert decision.exclude == (now.node,)
    assert (decision.action == DONE) == (now.name == classes.COMPLETE)


@given(names=st.lists(going_on, max_size=60), budgets=budgets, data=st.data())
def test_a_run_that_gets_on_is_never_given_up(names: list[str], budgets: Budgets, data: st.DataObject) -> None:
    before: list[Past] = []
    for name in names:
        now = Past(name, data.draw(hows), data.draw(steps), data.draw(nodes), True, True, data.draw(codes))
        decision = decide(now, before, budgets, data.draw(slots))
        assert not decision.final, decision.reason
        before.append(now)


def without_progress(budgets: Budgets) -> int:
    """How many attempts without a newer checkpoint may be followed by another: every failure uses one of ``failures``
    up, a time limit or a preemption that is its budget's last one stops."""
    return budgets.failures + (budgets.slots - 1) + (budgets.preemptions - 1)


@given(budgets=budgets, data=st.data())
def test_a_run_that_never_gets_on_ends_within_its_budgets(budgets: Budgets, data: st.DataObject) -> None:
    before: list[Past] = []
    for _ in range(without_progress(budgets) + 1):
        now = Past(data.draw(names), data.draw(hows), data.draw(steps), data.draw(nodes), exit_code=data.draw(codes))
        if decide(now, before, budgets, data.draw(slots)).final:
            return
        before.append(now)
    raise AssertionError(f"it goes on after {len(before)} attempts")


def test_the_bound_is_reached() -> None:
    ends = [*[classes.PREEMPTED] * 19, classes.TIME_LIMIT, *[classes.NETWORK] * 3]
    assert len(ends) == without_progress(B) == 23
    before: list[Past] = []
    for name in ends:
        assert not decide(end(name), before, B, Slot()).final
        before.append(end(name))
    assert {decide(end(name), before, B, Slot()).action for name in (*QUIET, classes.NETWORK)} == {STOP}


def records_of(adversary: Iterator[dict[str, Any]], budgets: Budgets, most: int) -> tuple[list[Any], Decision]:
    """Return the records of a run whose attempts are the adversary's, up to the final decision or ``most`` of them."""
    found: list[dict[str, Any]] = []
    decision = Decision(RESTART, "", "")
    while not decision.final and len(found) < most:
        found.append({"decision": None, **next(adversary)})
        *before, now = past_of(found)
        decision = decide(now, before, budgets, Slot())
        found[-1]["decision"] = {"action": decision.action}
    return found, decision


def goes_back_for_ever(budgets: Budgets, checkpoints: int) -> int:
    """How many attempts may be followed by another while none gets farther than the run has been: a checkpoint that
    cannot be loaded takes it back, ``failures`` times; after each it may come up again by as many checkpoints as there
    are, and before each of these, and after the last one, be as long without one as the budgets allow."""
    newer = (budgets.failures + 1) * checkpoints
    return newer + (newer + 1) * without_progress(budgets)


@given(
    budgets=st.builds(
        Budgets, failures=st.integers(0, 2), slots=st.integers(1, 2), preemptions=st.integers(1, 2),
    ),
    highest=st.integers(0, 3),
    data=st.data(),
)  # fmt: skip
@settings(max_examples=300)
def test_no_adversary_makes_a_run_go_back_and_forth_for_ever(
    budgets: Budgets, highest: int, data: st.DataObject
) -> None:
    kinds = st.sampled_from([classes.CHECKPOINT_BAD, classes.CHECKPOINT_BAD, classes.NETWORK, classes.TIME_LIMIT])

    def adversary() -> Iterator[dict[str, Any]]:
        # It has been as far as it ever gets; from now on it may have any checkpoint, load any, and end any way.
        yield {"class": classes.NETWORK, "newest_checkpoint": highest, "resume_step": None}
        while True:
            yield {
                "class": data.draw(kinds | names), "how": data.draw(hows), "failed_step": data.draw(steps),
                "failed_node": data.draw(nodes), "newest_checkpoint": data.draw(st.none() | st.integers(0, highest)),
                "resume_step": data.draw(st.none() | st.integers(0, highest)),
            }  # fmt: skip

    most = 1 + goes_back_for_ever(budgets, highest + 1) + 1
    found, decision = records_of(adversary(), budgets, most)
    assert decision.final, f"it goes on after {len(found)} attempts"


@pytest.mark.parametrize("retrained", [True, False])
def test_checkpoints_that_cannot_be_loaded_end_a_run(retrained: bool) -> None:
    def adversary() -> Iterator[dict[str, Any]]:
        yield {"class": classes.TIME_LIMIT, "newest_checkpoint": 600}
        while True:
            yield {"class": classes.CHECKPOINT_BAD, "resume_step": 600, "newest_checkpoint": 600}
            if retrained:  # from 400 on, and 600 turns out bad again
                yield {"class": classes.TIME_LIMIT, "resume_step": 400, "newest_checkpoint": 600}

    found, decision = records_of(adversary(), B, 50)
    assert decision.action == STOP
    assert [record["class"] for record in found].count(classes.CHECKPOINT_BAD) == B.failures + 1
