"""The gate's rules on what training printed: steps, losses, gradients, evaluation, learning.

Each rule is a pure function of evidence and expectations. Missing evidence is INCONCLUSIVE, a broken rule FAIL.
The rules on what surrounds training (checkpoints, exits, dispatcher …) are in system_rules.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Optional

from seatrial.judge.compare import compare_losses
from seatrial.judge.evidence import RUN, Expectations, GateEvidence
from seatrial.judge.merge import merge_steps
from seatrial.judge.records import LM_LOSS, StepRecord
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, NOT_JUDGED, PASS, RuleResult

STEP_SET = "step set"
LOSSES = "losses"
GRAD_NORM = "grad norm"
SKIPPED = "skipped and NaN iterations"
EVALUATION = "validation and test loss"
LEARNING = "learning"
AGREEMENT = "logs agree with records"

# Steps averaged at each end by the learning rule (fewer in a gate of less than twice as many steps).
LEARNING_WINDOW = 10


def step_set(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Each step from 1 to N was printed exactly once, and no other."""
    counts = Counter(record.step for record in evidence.steps)
    wanted = range(1, expected.steps + 1)
    missing = [step for step in wanted if step not in counts]
    extra = sorted(step for step in counts if step not in wanted)
    repeated = sorted(step for step, count in counts.items() if count > 1)
    found = f"{expected.steps - len(missing)} of {expected.steps} steps"
    parts = [found]
    if missing:
        parts.append(f"missing: {spans(missing)}")
    if extra:
        parts.append(f"beyond the gate: {spans(extra)}")
    if repeated:
        differing = {difference.step for difference in evidence.curve.disagreements}
        parts.append(f"printed more than once: {spans(repeated)} ({len(differing)} with another loss)")
    broken = sorted({*missing, *extra, *repeated})
    verdict = INCONCLUSIVE if not counts else FAIL if broken else PASS
    return _result(evidence, STEP_SET, verdict, f"steps 1 to {expected.steps}, each once", "; ".join(parts), broken)


def losses(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Every loss field that occurs anywhere, and every one that must, is there and finite at each step."""
    names = sorted({LM_LOSS, *expected.required_losses, *(n for r in evidence.steps for n in r.losses)})
    problems, broken = [], set()
    for name in names:
        absent = [record.step for record in evidence.steps if name not in record.losses]
        bad = [r.step for r in evidence.steps if name in r.losses and not math.isfinite(r.losses[name])]
        # Megatron leaves a NaN loss out of the line, so an absent one is no gap in the evidence but a failure.
        problems += [f"no {name!r} at {spans(absent)}"] if absent else []
        problems += [f"{name!r} not finite at {spans(bad)}"] if bad else []
        broken |= {*absent, *bad}
    verdict = FAIL if broken else _if_complete(evidence, expected)
    seen = "; ".join(problems) or f"finite at each of {len(evidence.steps)} printed steps"
    return _result(evidence, LOSSES, verdict, f"finite at every step: {', '.join(names)}", seen, broken)


def grad_norm(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """The gradient norm is there and finite at each step."""
    absent = [record.step for record in evidence.steps if record.grad_norm is None]
    bad = [r.step for r in evidence.steps if r.grad_norm is not None and not math.isfinite(r.grad_norm)]
    if len(absent) == len(evidence.steps):
        return _result(evidence, GRAD_NORM, INCONCLUSIVE, "finite at every step", "never printed", absent)
    parts = [f"absent at {spans(absent)}"] if absent else []
    parts += [f"not finite at {spans(bad)}"] if bad else []
    norms = [record.grad_norm for record in evidence.steps if record.grad_norm is not None]
    seen = "; ".join(parts) or f"finite at each of {len(norms)} printed steps, largest {max(norms):g}"
    verdict = FAIL if parts else _if_complete(evidence, expected)
    return _result(evidence, GRAD_NORM, verdict, "finite at every step", seen, {*absent, *bad})


def skipped(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """No iteration was skipped and none was NaN, by the loop's own counts."""
    hit = [r.step for r in evidence.steps if r.skipped or r.nan]
    unknown = [r.step for r in evidence.steps if r.skipped is None or r.nan is None]
    total = (sum(r.skipped or 0 for r in evidence.steps), sum(r.nan or 0 for r in evidence.steps))
    seen = f"{total[0]} skipped, {total[1]} NaN"
    if unknown:
        seen += f"; counts not printed at {spans(unknown)}"
    verdict = FAIL if hit else INCONCLUSIVE if unknown else _if_complete(evidence, expected)
    return _result(evidence, SKIPPED, verdict, "0 skipped, 0 NaN", seen, hit or unknown)


def evaluation(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Validation and test ran after the last step, and every evaluation's losses are finite."""
    bad = [
        record
        for record in evidence.evaluations
        if not any(name.startswith(LM_LOSS) for name in record.losses)
        or not all(math.isfinite(value) for value in record.losses.values())
    ]
    parts, missing = [], []
    for which in ("validation", "test"):
        final = [r for r in evidence.evaluations if (r.which, r.iteration) == (which, expected.steps)]
        missing += [] if final else [which]
        parts += [f"{which} {name} {value:g}" for r in final[-1:] for name, value in r.losses.items()]
    parts += [f"no {which} at step {expected.steps}" for which in missing]
    for which in sorted({record.which for record in bad}):
        parts.append(f"{which} not finite at {spans(r.iteration for r in bad if r.which == which)}")
    verdict = FAIL if bad else INCONCLUSIVE if missing else PASS
    wanted = f"finite validation and test loss at step {expected.steps}"
    return _result(evidence, EVALUATION, verdict, wanted, "; ".join(parts), {r.iteration for r in bad}, "log")


def learning(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """The mean of the last losses is at most ``learning_ratio`` times the mean of the first."""
    curve = {record.step: record.losses.get(LM_LOSS) for record in evidence.curve.steps}
    size = min(LEARNING_WINDOW, expected.steps // 2)
    ends = (range(1, size + 1), range(expected.steps - size + 1, expected.steps + 1))
    wanted = f"mean {LM_LOSS} of the last {size} steps at most {expected.learning_ratio:g} x the first {size}'s"
    unknown = [step for end in ends for step in end if not _finite(curve.get(step))]
    if unknown or size == 0:
        return _result(evidence, LEARNING, INCONCLUSIVE, wanted, f"no finite loss at {spans(unknown)}", unknown)
    first, last = (sum(curve[step] or 0.0 for step in end) / size for end in ends)
    learned = last <= expected.learning_ratio * first
    ratio = f"{last / first:.4f}" if first else "undefined"
    return _result(
        evidence, LEARNING, PASS if learned else FAIL, wanted, f"{first:.6g} to {last:.6g}, ratio {ratio}",
        () if learned else ends[1],
    )  # fmt: skip


def agreement(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """The rank logs, read again, say what the step records say (runs only: they have both)."""
    wanted = "rank logs and step records tell the same"
    if evidence.scope != RUN:
        return _result(evidence, AGREEMENT, NOT_JUDGED, wanted, "only a log is judged", ())
    if evidence.logged_steps is None or not evidence.steps:
        gone = "rank logs" if evidence.logged_steps is None else "step records"
        return _result(evidence, AGREEMENT, INCONCLUSIVE, wanted, f"no {gone}", ())
    records, logged = evidence.curve, merge_steps(evidence.logged_steps)
    comparison = compare_losses(records.steps, logged.steps)
    by_step = {record.step: record for record in logged.steps}
    other = [r.step for r in records.steps if r.step in by_step and _counts(r) != _counts(by_step[r.step])]
    # A loss that is NaN in both is no disagreement (rule "losses" fails it).
    differing = [d.step for d in comparison.differences if repr(d.a) != repr(d.b)]
    again = set(records.repeated) ^ set(logged.repeated)
    broken = sorted({*differing, *other, *comparison.only_a, *comparison.only_b, *again})
    parts = [f"{len(comparison.compared)} steps in both"]
    for text, steps in (
        ("only in the records", comparison.only_a), ("only in the logs", comparison.only_b),
        ("different at", sorted({*differing, *other})), ("repeated in one of them", sorted(again)),
    ):  # fmt: skip
        parts += [f"{text}: {spans(steps)}"] if steps else []
    return _result(evidence, AGREEMENT, FAIL if broken else PASS, wanted, "; ".join(parts), broken)


def spans(steps: Iterable[int]) -> str:
    """Return ``steps`` for people: "2-60, 73"; the first few spans and a count where there are many."""
    found = stretches(steps)
    words = [str(a) if a == b else f"{a}-{b}" for a, b in found]
    shown = ", ".join(words[:8])
    return shown if len(words) <= 8 else f"{shown} … ({sum(b - a + 1 for a, b in found)} steps)"


def stretches(steps: Iterable[int]) -> list[tuple[int, int]]:
    """Return ``steps``, in any order, as first and last of each stretch without a gap."""
    found: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found


def _if_complete(evidence: GateEvidence, expected: Expectations) -> str:
    """PASS where every expected step was printed: nothing is known of a step that was not."""
    printed = {record.step for record in evidence.steps}
    return PASS if printed.issuperset(range(1, expected.steps + 1)) else INCONCLUSIVE


def _finite(value: Optional[float]) -> bool:
    return value is not None and math.isfinite(value)


def _counts(record: StepRecord) -> tuple[object, ...]:
    return (repr(record.grad_norm), record.skipped, record.nan, record.consumed_samples)


def _result(
    evidence: GateEvidence,
    rule: str,
    verdict: str,
    expected: str,
    seen: str,
    steps: Iterable[int],
    place: str = "steps",
) -> RuleResult:
    return evidence.result(rule, verdict, expected, seen, place, steps)
