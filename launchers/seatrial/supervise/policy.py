"""What to do after an attempt: a pure function of its class, of what went before, and of the budgets.

Two rules bound every run. A failure that left no newer whole checkpoint uses a budget up, so no sequence of failures
goes on for ever; one that did fills all budgets again, so a run that gets on is never given up for its count of
failures. Classes that another try cannot mend (NaN, data, user, a person's own word) stop at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from seatrial.supervise import classes

DONE, RESTART, REQUEUE, STOP = "done", "restart", "requeue", "stop"
REQUEUE_EXCLUDING, EARLIER_CHECKPOINT = "requeue_excluding", "earlier_checkpoint"
RESTART_ON_SPARE = "restart_on_spare"
ACTIONS = (DONE, RESTART, RESTART_ON_SPARE, REQUEUE, REQUEUE_EXCLUDING, EARLIER_CHECKPOINT, STOP)

_STOPS = {
    classes.CANCELLED: "a person ended it",
    classes.NAN: "the loss is no number: the same steps would give it again",
    classes.DATA_ERROR: "the data cannot be read as it is: another try reads the same",
    classes.USER_ERROR: "the program or its configuration is wrong: another try ends the same way",
    classes.RESUME_MISMATCH: "it did not go on from its checkpoint: training on would spoil the run",
    classes.DEPENDENCY_FAILED: "what it waited for has failed",
}
# Where the same failure at the same step shows that the next try meets it again; the others come from outside.
_REPEATS = (classes.OOM_GPU, classes.OOM_HOST, classes.UNKNOWN, classes.HANG, classes.RESULT_VALIDATION,
            classes.SUPERVISOR_ERROR)  # fmt: skip
_REPLACED_QUIETLY = (classes.TIME_LIMIT, classes.PREEMPTED)  # ends that are nobody's fault


@dataclass(frozen=True)
class Budgets:
    """How often what may happen without a newer whole checkpoint; times in seconds. Defaults are the profile's."""

    failures: int = 3
    slots: int = 2
    preemptions: int = 20
    backoff: float = 10.0
    longest_backoff: float = 600.0

    @classmethod
    def of(cls, recovery: Mapping[str, Any]) -> Budgets:
        """Return the budgets that a profile's ``recovery`` block states."""
        names = {
            "failures": "failures_without_progress", "slots": "slots_without_progress",
            "preemptions": "preemptions_without_progress", "backoff": "backoff_seconds",
            "longest_backoff": "longest_backoff_seconds",
        }  # fmt: skip
        return cls(**{name: recovery[key] for name, key in names.items() if recovery.get(key) is not None})


@dataclass(frozen=True)
class Past:
    """An attempt that has ended. ``how``: what failed, in words that are equal for equal failures. ``step``: where;
    None before the first. ``progress``: it left a whole checkpoint newer than those before (since one turned out bad);
    ``farther``: newer than any ever. ``exit_code``: the rank's."""

    name: str
    how: str = ""
    step: Optional[int] = None
    node: Optional[str] = None
    progress: bool = False
    farther: bool = False
    exit_code: Optional[int] = None


@dataclass(frozen=True)
class Slot:
    """What this allocation still offers. ``seconds_left``: until its end, None where it has none; ``needed``: what a
    new start in it takes until it pays. ``can_requeue``: there is a queue. ``may_exclude``: one more node may be left
    out. ``spread``: a number in [0, 1) that parts the tries of many runs. ``spares``: healthy nodes of the allocation
    that run no rank."""

    seconds_left: Optional[float] = None
    needed: float = 0.0
    can_requeue: bool = True
    may_exclude: bool = True
    spread: float = 0.5
    spares: int = 0


@dataclass(frozen=True)
class Decision:
    """``exclude``: nodes that the next attempt must not get. ``name``: the class that a stop is booked under."""

    action: str
    reason: str
    name: str
    exclude: tuple[str, ...] = ()
    delay_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as it stands in records and events."""
        return {
            "action": self.action, "reason": self.reason, "exclude": list(self.exclude),
            "delay_seconds": self.delay_seconds, "class": self.name,
        }  # fmt: skip

    @property
    def requeues(self) -> bool:
        """The job goes back to the queue."""
        return self.action in (REQUEUE, REQUEUE_EXCLUDING)

    @property
    def final(self) -> bool:
        """Nothing follows."""
        return self.action in (DONE, STOP)


def decide(now: Past, before: Sequence[Past], budgets: Budgets, slot: Slot) -> Decision:
    """Return what follows the attempt ``now``; ``before`` are those since a person last took a hand, oldest first."""
    if now.name == classes.COMPLETE:
        return Decision(DONE, "the target step is proven", now.name)
    if now.name in _STOPS:
        return Decision(STOP, _STOPS[now.name], now.name)
    stretch = _without_progress(now, before)
    if now.name in _REPLACED_QUIETLY:
        return _end_of_slot(now, stretch, budgets, slot)
    if now.name in _REPEATS and not now.progress and _is_again(now, before, slot):
        where = f"at step {now.step}" if now.step is not None else "before its first step"
        return Decision(STOP, f"twice the same failure {where}: {now.how or now.name}", classes.CRASH_LOOP)
    failures = sum(1 for one in stretch if one.name not in _REPLACED_QUIETLY)
    if failures > budgets.failures:
        words = f"{failures} failures without a newer checkpoint, {budgets.failures} are allowed; the last: {now.name}"
        return Decision(STOP, words, classes.NO_PROGRESS)
    if now.name == classes.CHECKPOINT_BAD and (bad := _bad_checkpoints(now, before)) > budgets.failures:
        return Decision(STOP, f"{bad} checkpoints could not be loaded since the run last got farther", now.name)
    return _retry(now, stretch, failures, budgets, slot)


def decide_gate(now: Past, reason: str) -> Decision:
    """Return what follows a gate's attempt: never another one, for a gate shows what one undisturbed start does."""
    if now.name == classes.COMPLETE:
        return Decision(DONE, "all steps are made and proven", now.name)
    return Decision(STOP, f"a gate is not repeated: {reason}", now.name)


def _without_progress(now: Past, before: Sequence[Past]) -> list[Past]:
    """Return the newest attempts that left no newer checkpoint, newest first."""
    found: list[Past] = []
    for one in (now, *reversed(before)):
        if one.progress:
            break
        found.append(one)
    return found


def _bad_checkpoints(now: Past, before: Sequence[Past]) -> int:
    """Count those since the run got farther than ever; going back and coming so far again is no way on."""
    count = 0
    for one in (now, *reversed(before)):
        if one.farther:
            break
        count += one.name == classes.CHECKPOINT_BAD
    return count


def _is_again(now: Past, before: Sequence[Past], slot: Slot) -> bool:
    """Whether the failure before was the same one at the same step (slots that ended between do not count).

    A failure that nobody knows, before the first step, and a hang may be the node's, where that was the same both times
    and can be left out: a program that fails so will do it without that node, too, and then it shows.
    """
    last = next((one for one in reversed(before) if one.name not in _REPLACED_QUIETLY), None)
    if last is None or (last.name, last.how, last.step) != (now.name, now.how, now.step):
        return False
    suspect = now.name == classes.HANG or (now.name == classes.UNKNOWN and now.step is None)
    may_be_the_node = suspect and now.node is not None and now.node == last.node
    return not (may_be_the_node and (slot.spares > 0 or (slot.can_requeue and slot.may_exclude)))


def _end_of_slot(now: Past, stretch: Sequence[Past], budgets: Budgets, slot: Slot) -> Decision:
    count = sum(1 for one in stretch if one.name == now.name)
    limit, what = (
        (budgets.slots, "slots") if now.name == classes.TIME_LIMIT else (budgets.preemptions, "preempted slots")
    )
    if count >= limit:
        words = f"{count} {what} in a row without a newer checkpoint: the save comes after the slot's end"
        return Decision(STOP, words, classes.NO_PROGRESS)
    saved = "with a newer checkpoint" if now.progress else f"{count} of {limit} {what} without a newer checkpoint"
    if not slot.can_requeue:
        return Decision(RESTART, f"{saved}; there is no queue here, so it goes on at once", now.name)
    return Decision(REQUEUE, saved, now.name)


def _retry(now: Past, stretch: Sequence[Past], failures: int, budgets: Budgets, slot: Slot) -> Decision:
    count = f"failure {failures} of {budgets.failures} without a newer checkpoint" if failures else "a newer checkpoint"
    kind = sum(1 for one in stretch if one.name == now.name)
    if now.name == classes.CHECKPOINT_BAD:
        return Decision(EARLIER_CHECKPOINT, f"the checkpoint cannot be loaded; {count}", now.name)
    if now.name == classes.DISK_FULL:
        if kind > 1:
            return Decision(STOP, "the disk is full again: somebody must free space", now.name)
        return _restart(now, f"once more, without the unfinished checkpoint; {count}", max(1, failures), budgets, slot)
    if _blames_node(now, stretch):
        return _without_node(now, count, budgets, slot, failures)
    if kind > 1 and slot.can_requeue:
        return Decision(REQUEUE, f"again in this allocation, so on other nodes if there are; {count}", now.name)
    return _restart(now, f"needs no new node; {count}", failures, budgets, slot)


def _blames_node(now: Past, stretch: Sequence[Past]) -> bool:
    """Whether the node is at fault: by the class itself, or because it was the first to fail twice in a row."""
    if now.name in classes.OF_THE_NODE or (now.name == classes.RESULT_VALIDATION and now.exit_code == 17):
        return True
    return now.node is not None and sum(1 for one in stretch if one.node == now.node) > 1


def _without_node(now: Past, count: str, budgets: Budgets, slot: Slot, failures: int) -> Decision:
    if slot.spares > 0:
        words = f"a spare takes the place of {now.node or 'the lost node'}; {count}"
        restart = _restart(now, words, failures, budgets, slot)
        if restart.action == RESTART:
            return replace(restart, action=RESTART_ON_SPARE, exclude=(now.node,) if now.node else ())
    if not slot.can_requeue:
        return _restart(now, f"there is no other node; {count}", failures, budgets, slot)
    if now.node is None:
        return Decision(REQUEUE, f"the node is not known; {count}", now.name)
    if not slot.may_exclude:
        return Decision(REQUEUE, f"{now.node} would be left out, but the most nodes already are; {count}", now.name)
    return Decision(REQUEUE_EXCLUDING, f"{now.node} is left out; {count}", now.name, exclude=(now.node,))


def _restart(now: Past, why: str, failures: int, budgets: Budgets, slot: Slot) -> Decision:
    if slot.can_requeue and slot.seconds_left is not None and slot.seconds_left < slot.needed:
        left = f"{max(0.0, slot.seconds_left):.0f} s are left of the slot, a start pays after {slot.needed:.0f} s"
        return Decision(REQUEUE, f"{why}; {left}", now.name)
    # The first try at once: most failures pass. Later ones wait, each twice as long, and not all at the same time.
    delay = 0.0 if failures <= 1 else budgets.backoff * 2 ** min(failures - 2, 20)
    if now.name == classes.DISK_FULL:
        delay = max(delay, budgets.backoff)
    delay = min(delay, budgets.longest_backoff) * (0.5 + slot.spread)
    return Decision(RESTART, why, now.name, delay_seconds=math.floor(delay * 10) / 10)
