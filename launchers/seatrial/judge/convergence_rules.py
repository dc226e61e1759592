"""The rules that only a convergence run has: its end proven, its curve whole over all attempts, and what it met."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Optional

from seatrial.judge.evidence import Expectations, GateEvidence
from seatrial.judge.merge import Curve, merge_steps
from seatrial.judge.records import LM_LOSS, StepRecord, finite
from seatrial.judge.rules import EVALUATION, STEP_SET, spans
from seatrial.judge.run_goodput import Goodput
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, NOT_JUDGED, PASS, RuleResult

TARGET = "target step"
REPLAYED = "replayed steps"
VALIDATION = "validation curve"
SPIKES = "spikes"
GOODPUT = "goodput"

# The mean loss of what an attempt made again may lie so far from the first pass: as in a gate's resume check.
REPLAY_RELATIVE = 0.01
# A spike: above the median of the steps before by a tenth and by six of their usual deviations (1.4826 x MAD).
SPIKE_WINDOW, SPIKE_RELATIVE, SPIKE_DEVIATIONS = 100, 0.10, 6.0
_MOST_DISAGREEMENTS = 100


@dataclass(frozen=True)
class Spike:
    """A stretch of steps far above those before: its highest ``loss``, where, and the median ``before``."""

    step: int
    loss: float
    before: float


@dataclass(frozen=True)
class Voyage:
    """What is known of a convergence run beside what a gate has.

    ``decision``: what ended it, empty while nothing has; ``name``: the class that it ended under. ``evaluation_steps``:
    where it had to evaluate.
    """

    decision: Mapping[str, Any]
    goodput: Optional[Goodput] = None
    evaluation_steps: tuple[int, ...] = ()


def target(evidence: GateEvidence, expected: Expectations, voyage: Voyage) -> RuleResult:
    """The last step was made, its checkpoint is whole, and the supervisor decided that the run is done."""
    wanted = f"step {expected.steps}, its checkpoint whole, and the supervisor's decision: done"
    last = max((record.step for record in evidence.steps), default=0)
    found = evidence.checkpoints.get(expected.steps)
    whole = found is not None and found.whole and found.step == expected.steps
    decided = voyage.decision.get("decision")
    parts = [f"last step {last}", f"checkpoint {expected.steps}: {found.reason if found else 'not on disk'}"]
    parts.append(f"decision: {decided or 'none'}" + (f" ({voyage.decision.get('class')})" if decided == "stop" else ""))
    if decided is None:
        verdict = INCONCLUSIVE
    else:
        verdict = PASS if decided == "done" and whole and last == expected.steps else FAIL
    return evidence.result(TARGET, verdict, wanted, "; ".join(parts), "checkpoints")


def step_set(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Each step from 1 to N is on record in some attempt, and no other."""
    there = {record.step for record in evidence.steps}
    wanted = set(range(1, expected.steps + 1))
    missing, extra = wanted - there, there - wanted
    parts = [f"{len(wanted) - len(missing)} of {expected.steps} steps over all attempts"]
    parts += [f"missing: {spans(missing)}"] if missing else []
    parts += [f"beyond the target: {spans(extra)}"] if extra else []
    broken = sorted({*missing, *extra})
    verdict = INCONCLUSIVE if not there else FAIL if broken else PASS
    return evidence.result(STEP_SET, verdict, f"steps 1 to {expected.steps}, no gap", "; ".join(parts), "steps", broken)


def replayed(evidence: GateEvidence, curve: Curve) -> RuleResult:
    """What ran again trained as it had before: the mean loss of each stretch that an attempt made again is the same."""
    wanted = f"mean {LM_LOSS} of each stretch within {REPLAY_RELATIVE:.0%} of the pass before"
    if not curve.repeated:
        return evidence.result(REPLAYED, PASS, wanted, "no step ran twice", "steps")
    broken: list[int] = []
    parts = [f"{len(curve.repeated)} steps ran again"]
    differing = {difference.step for difference in curve.disagreements}
    parts.append(f"{len(differing)} of them with another loss" if differing else "all equal as printed")
    if curve.disagreements:
        largest = max(curve.disagreements, key=lambda one: one.relative)
        parts.append(f"farthest {largest.relative:.2%} at {largest.step} ({largest.name})")
    for steps, apart in _stretches(evidence.steps):
        if not apart <= REPLAY_RELATIVE:
            broken += steps
            parts.append(f"{spans(steps)}: mean {apart:.2%} apart")
    return evidence.result(REPLAYED, FAIL if broken else PASS, wanted, "; ".join(parts), "steps", broken)


def validation(evidence: GateEvidence, voyage: Voyage) -> RuleResult:
    """Every evaluation that was due on the way was made, and its loss is finite."""
    wanted = f"a finite validation loss at each of {len(voyage.evaluation_steps)} steps"
    if not voyage.evaluation_steps:
        return evidence.result(VALIDATION, NOT_JUDGED, "no evaluation is due on the way", "", "log")
    rows = dict(validation_curve(evidence))
    missing = [step for step in voyage.evaluation_steps if step not in rows]
    bad = [step for step, loss in rows.items() if loss is None]
    known = [(step, loss) for step, loss in sorted(rows.items()) if loss is not None]
    parts = [f"{len(voyage.evaluation_steps) - len(missing)} of them"]
    if known:
        least = min(known, key=lambda row: row[1])
        parts.append(f"{known[0][1]:.6g} at {known[0][0]}, {known[-1][1]:.6g} at {known[-1][0]}, least at {least[0]}")
    parts += [f"none at {spans(missing)}"] if missing else []
    parts += [f"not finite at {spans(bad)}"] if bad else []
    verdict = FAIL if bad else INCONCLUSIVE if missing else PASS
    return evidence.result(VALIDATION, verdict, wanted, "; ".join(parts), "log", bad or missing)


def spiky(evidence: GateEvidence, found: Sequence[Spike]) -> RuleResult:
    """Spikes are listed, and nobody is judged for them: the other rules say whether the run came back from them."""
    wanted = f"listed: over the median of {SPIKE_WINDOW} steps before by {SPIKE_RELATIVE:.0%} and 6 deviations"
    told = [f"{spike.step} ({spike.before:.4g} to {spike.loss:.4g})" for spike in found[:8]]
    more = f" … ({len(found)} in all)" if len(found) > len(told) else ""
    return evidence.result(
        SPIKES, NOT_JUDGED, wanted, ", ".join(told) + more or "none", "steps", (one.step for one in found)
    )


def goodput(evidence: GateEvidence, voyage: Voyage) -> RuleResult:
    """Where the time went, for whoever reads the verdict."""
    spent = voyage.goodput
    share = spent.with_queue if spent is not None else None
    if spent is None or share is None:
        return evidence.result(GOODPUT, NOT_JUDGED, "told", "not known", "record")
    held = spent.without_queue
    seen = f"{share:.2%} of the wall time" + (f", {held:.2%} without the queue" if held is not None else "")
    seen += f"; {spent.attempts} attempts, {spent.steps_replayed} steps replayed"
    return evidence.result(GOODPUT, NOT_JUDGED, "told", seen, "record")


def validation_curve(evidence: GateEvidence) -> list[tuple[int, Optional[float]]]:
    """Return step and validation loss, the last one of each step; None: no finite one."""
    found: dict[int, Optional[float]] = {}
    for record in evidence.evaluations:
        if record.which in ("interval", "validation"):
            found[record.iteration] = finite(record.losses.get(LM_LOSS))
    return sorted(found.items())


def spikes(steps: Sequence[StepRecord]) -> list[Spike]:
    """Return the spikes of a merged curve. Steps of one excursion make one spike; no number makes none."""
    found: list[Spike] = []
    before: list[float] = []
    level: Optional[tuple[float, float]] = None  # of the calm steps before: median, limit; anew every tenth step
    inside = False
    for index, record in enumerate(steps):
        loss = record.losses.get(LM_LOSS)
        if loss is None or not math.isfinite(loss):
            continue
        if len(before) >= SPIKE_WINDOW // 2 and (level is None or index % 10 == 0):
            level = _level(before)
        if level is None or loss <= level[1]:
            before.append(loss)
            del before[:-SPIKE_WINDOW]
            inside = False
            continue
        if inside and loss > found[-1].loss:
            found[-1] = Spike(record.step, loss, found[-1].before)
        elif not inside:
            found.append(Spike(record.step, loss, level[0]))
        inside = True
    return found


def details(evidence: GateEvidence, voyage: Voyage, curve: Curve, found: Sequence[Spike]) -> dict[str, Any]:
    """Return what verdict.json tells beside the rules."""
    told = [
        {"step": one.step, "name": one.name, "earlier": finite(one.a), "later": finite(one.b)}
        for one in curve.disagreements[:_MOST_DISAGREEMENTS]
    ]
    return {
        "validation": [list(row) for row in validation_curve(evidence)],
        "spikes": [{"step": one.step, "loss": one.loss, "before": one.before} for one in found],
        "passes": {"repeated": len(curve.repeated), "disagreements": told},
        "goodput": voyage.goodput.to_json() if voyage.goodput is not None else None,
    }


def _level(before: Sequence[float]) -> tuple[float, float]:
    middle = median(before)
    deviation = 1.4826 * median(abs(value - middle) for value in before)
    return middle, middle + max(SPIKE_RELATIVE * abs(middle), SPIKE_DEVIATIONS * deviation)


def _stretches(steps: Sequence[StepRecord]) -> Iterable[tuple[list[int], float]]:
    """Yield the steps that an attempt made again, and how far their mean loss lies from the pass before (relative)."""
    latest: dict[int, float] = {}
    for attempt in sorted({record.attempt for record in steps}):
        own = {r.step: r.losses.get(LM_LOSS) for r in merge_steps(r for r in steps if r.attempt == attempt).steps}
        again = {step: value for step, value in own.items() if step in latest and value is not None}
        if again:
            first = sum(latest[step] for step in again)  # fsum refuses losses gone wild
            yield sorted(again), abs(sum(again.values()) - first) / abs(first) if first else math.inf
        latest.update((step, value) for step, value in own.items() if value is not None and math.isfinite(value))


NEEDED = (TARGET, STEP_SET, REPLAYED, EVALUATION)
