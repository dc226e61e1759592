"""The rules of a drill: the fault was there, the run went on as it should, and trained as if nothing had been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Optional

from seatrial.judge.compare import LossDifference, compare_losses
from seatrial.judge.evidence import DrilledAttempt, DrillEvidence, Expectations, GateEvidence
from seatrial.judge.merge import merge_steps
from seatrial.judge.records import StepRecord
from seatrial.judge.rules import STEP_SET, spans
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, PASS, RuleResult

INJECTED = "drill: fault injected"
RECOVERED = "drill: recovered"
EQUAL = "drill: losses equal the undisturbed run's"
NAMES = (INJECTED, RECOVERED, EQUAL)

# GPUs sum in an order that may differ from run to run; what CPU ranks print is the same to the last digit.
HARDWARE_RELATIVE = 1e-6
STOP_SIGNAL, TRUNCATE, KILL_NODE = "stop-signal", "truncate-checkpoint", "kill-node"
# What an attempt is called (supervise.classes) that a fault has ended. Of a rank that was killed nothing else is known;
# what the others say of its end may be seen first.
_CLASSES: Mapping[str, tuple[str, ...]] = {
    "kill-rank": ("unknown", "network"),
    TRUNCATE: ("unknown", "network"),
    "hang": ("hang",),
    KILL_NODE: ("node_failure",),
    STOP_SIGNAL: ("cancelled", "unknown"),
}
_COMPLETE = "complete"


def step_set(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Each step from 1 to N is there, at most once an attempt; steps that a later attempt repeats are equal."""
    counts = Counter((record.attempt, record.step) for record in evidence.steps)
    there = {step for _, step in counts}
    missing = sorted(set(range(1, expected.steps + 1)) - there)
    extra = sorted(there - set(range(1, expected.steps + 1)))
    twice = sorted({step for (_, step), count in counts.items() if count > 1})
    replayed, differing = _replayed(evidence)
    parts = [f"{expected.steps - len(missing)} of {expected.steps} steps"]
    parts += [f"missing: {spans(missing)}"] if missing else []
    parts += [f"beyond the gate: {spans(extra)}"] if extra else []
    parts += [f"more than once in one attempt: {spans(twice)}"] if twice else []
    parts += [f"replayed: {spans(replayed)} ({len(differing)} with another loss)"] if replayed else []
    broken = sorted({*missing, *extra, *twice, *differing})
    verdict = INCONCLUSIVE if not there else FAIL if broken else PASS
    wanted = f"steps 1 to {expected.steps}, those that are replayed {_tolerance_words(evidence)}"
    return evidence.result(STEP_SET, verdict, wanted, "; ".join(parts), "steps", broken)


def injected(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """The fault was put in once, at its step: an event says so, and the steps of that attempt show it."""
    drill = _drill(evidence)
    wanted = f"{drill.fault} once, at step {drill.step}"
    if not drill.injected:
        return evidence.result(INJECTED, INCONCLUSIVE, wanted, "no event tells of it", "events")
    first = drill.injected[0]
    if len(drill.injected) > 1:
        return evidence.result(INJECTED, FAIL, wanted, f"{len(drill.injected)} faults were put in", "events")
    if (first.fault, first.step) != (drill.fault, drill.step):
        return evidence.result(INJECTED, FAIL, wanted, f"{first.fault} at step {first.step}", "events")
    hit = _attempt(drill, first.attempt)
    last = hit.last_step if hit is not None else None
    seen = f"{first.what}; the last step of attempt {first.attempt} was {last}"
    if hit is None or hit.name is None or last is None:
        return evidence.result(INJECTED, INCONCLUSIVE, wanted, f"{first.what}; nothing shows its end", "events")
    right = last >= drill.step if drill.fault == STOP_SIGNAL else last == drill.step - 1
    return evidence.result(INJECTED, PASS if right else FAIL, wanted, seen, "events")


def recovered(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """The attempt ended as its fault ends one, and the next went on from the newest checkpoint that was whole."""
    drill = _drill(evidence)
    hit = _attempt(drill, drill.injected[0].attempt) if drill.injected else None
    if hit is None or hit.name is None:
        seen = "nothing shows what it should recover from"
        return evidence.result(RECOVERED, INCONCLUSIVE, "the run goes on", seen, "log")
    start = _start(drill, expected.save_steps, hit)
    classes = _CLASSES.get(drill.fault, ())
    wanted = f"class {' or '.join(classes)}, then on from " + ("a checkpoint" if start is None else f"step {start + 1}")
    verdict, seen = _recovery(evidence, drill, hit, start, classes)
    return evidence.result(RECOVERED, verdict, wanted, f"attempt {hit.number}: {hit.name}; {seen}", "log")


def _recovery(
    evidence: GateEvidence, drill: DrillEvidence, hit: DrilledAttempt, start: Optional[int], classes: Sequence[str]
) -> tuple[str, str]:
    """Return the verdict on what followed the attempt ``hit``, and the words for it."""
    if hit.name == _COMPLETE:
        return INCONCLUSIVE, "it was over before the fault could end it: choose an earlier step"
    if hit.name not in classes:
        return FAIL, "which is not what the fault makes"
    then = _attempt(drill, hit.number + 1)
    if then is None:
        return FAIL, "no attempt followed"
    if then.name is None:
        return INCONCLUSIVE, f"attempt {then.number} left no record"
    seen = f"attempt {then.number}: checkpoint {then.resume_step}, first step {then.first_step}, {then.name}"
    if start is None or (then.resume_step, then.first_step) != (start, start + 1):
        return FAIL, seen
    node = drill.injected[0].node
    if drill.fault == KILL_NODE and drill.has_spares and (node in then.nodes or not then.nodes):
        return FAIL if then.nodes else INCONCLUSIVE, f"{seen}, on {', '.join(then.nodes) or 'unknown nodes'}"
    if drill.attempts[-1].number != then.number:
        return FAIL, f"{seen}; a further attempt was needed"
    if then.name != _COMPLETE:
        return INCONCLUSIVE if evidence.interrupted else FAIL, seen
    return PASS, seen


def equal(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Every loss of every step is the undisturbed run's; each step after the resume must be there to be compared."""
    drill = _drill(evidence)
    wanted = f"every loss of every step {_tolerance_words(evidence)}"
    then = _attempt(drill, (drill.injected[0].attempt or 0) + 1) if drill.injected else None
    if drill.reference_problem is not None:
        return evidence.result(EQUAL, INCONCLUSIVE, wanted, drill.reference_problem, "reference")
    if then is None or then.first_step is None:
        return evidence.result(EQUAL, INCONCLUSIVE, wanted, "no step was made after the fault", "steps")
    ours, theirs = evidence.curve.steps, merge_steps(drill.reference_steps).steps
    compared = compare_losses(theirs, ours, relative=_relative(evidence))
    after = set(range(then.first_step, expected.steps + 1))
    made = {record.step for record in ours if record.attempt >= then.number}
    missing = after - (made & set(compared.compared))
    differing = sorted({difference.step for difference in compared.differences})
    parts = [f"{len(compared.compared)} steps compared, {len(after) - len(missing)} of them after the resume"]
    if compared.first is not None:
        parts.append(f"different at {spans(differing)}, first {_told(compared.first)}")
    parts += [f"not to be compared: {spans(missing)}"] if missing else []
    verdict = FAIL if differing else INCONCLUSIVE if missing or not after else PASS
    return evidence.result(EQUAL, verdict, wanted, "; ".join(parts), "reference", differing or missing)


RULES = (injected, recovered, equal)


def _start(drill: DrillEvidence, saves: Sequence[int], hit: DrilledAttempt) -> Optional[int]:
    """Return the newest checkpoint that the fault leaves whole."""
    if drill.fault == STOP_SIGNAL:
        return hit.last_step if hit.last_step in hit.saved_steps else None
    before = sorted(step for step in saves if step < drill.step)
    back = 2 if drill.fault == TRUNCATE else 1
    return before[-back] if len(before) >= back else None


def _replayed(evidence: GateEvidence) -> tuple[list[int], list[int]]:
    """Return the steps that a later attempt made again, and those of them with another loss."""
    curves: dict[int, list[StepRecord]] = {}
    for record in evidence.steps:
        curves.setdefault(record.attempt, []).append(record)
    again: set[int] = set()
    differing: set[int] = set()
    numbers = sorted(curves)
    for n, later in enumerate(numbers):
        for earlier in numbers[:n]:
            compared = compare_losses(curves[earlier], curves[later], relative=_relative(evidence))
            again |= set(compared.compared)
            differing |= {difference.step for difference in compared.differences}
    return sorted(again), sorted(differing)


def _relative(evidence: GateEvidence) -> float:
    return 0.0 if evidence.rehearsal else HARDWARE_RELATIVE


def _tolerance_words(evidence: GateEvidence) -> str:
    if evidence.rehearsal:
        return "equal as printed, on the same layout"
    return f"equal within {HARDWARE_RELATIVE:g} relative: GPUs may sum in another order"


def _told(difference: LossDifference) -> str:
    a, b = ("none" if value is None else f"{value:.6E}" for value in (difference.a, difference.b))
    return f"{difference.step}: {difference.name} {a} undisturbed, {b} here"


def _attempt(drill: DrillEvidence, number: Optional[int]) -> Optional[DrilledAttempt]:
    return next((one for one in drill.attempts if one.number == number), None)


def _drill(evidence: GateEvidence) -> DrillEvidence:
    assert evidence.drill is not None
    return evidence.drill
