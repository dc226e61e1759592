"""The gate's rule on its resume check: a second pass from an earlier checkpoint ends where the first one did. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from seatrial.judge.compare import compare_losses
from seatrial.judge.evidence import Expectations, GateEvidence, SecondPass
from seatrial.judge.merge import merge_steps
from seatrial.judge.records import LM_LOSS, StepRecord, finite
from seatrial.judge.rules import spans
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, NOT_JUDGED, PASS, RuleResult

RESUME_CHECK = "resume check"
ABSOLUTE, RELATIVE = 1e-6, 0.01  # of the final loss: |first - second| <= 1e-6 + 1% of the first


def resume_check(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """The steps after an earlier checkpoint, made again in another root, are all there and end with the same loss."""
    start, last = expected.resume_from, expected.steps
    if start is None:
        return _result(evidence, NOT_JUDGED, "not asked for", "no second pass was asked for")
    wanted = f"steps {start + 1} to {last} again from checkpoint {start}; final loss within 1e-6 + 1% of the first pass"
    second = evidence.second_pass
    if second is None or (second.name is None and not second.steps):
        return _result(evidence, INCONCLUSIVE, wanted, "no second pass is on record")
    curve = _curve(second.steps)
    steps = range(start + 1, last + 1)
    missing = [step for step in steps if finite(curve.get(step)) is None]
    extra = sorted(step for step in curve if step not in steps)
    if second.interrupted is not None:
        return _result(evidence, INCONCLUSIVE, wanted, second.interrupted, missing)
    if second.name != "complete":
        seen = f"the second pass did not end well: {second.reason or 'it left no record'}"
        return _result(evidence, INCONCLUSIVE if second.name is None else FAIL, wanted, seen, missing)
    if extra or second.loaded != start:
        seen = f"it began with checkpoint {second.loaded}; steps that are not asked for: {spans(extra) or 'none'}"
        return _result(evidence, FAIL, wanted, seen, extra)
    if missing:
        return _result(evidence, FAIL, wanted, f"no finite {LM_LOSS} at {spans(missing)} of the second pass", missing)
    ends = (_curve(evidence.steps).get(last), curve[last])
    if finite(ends[0]) is None:
        return _result(evidence, INCONCLUSIVE, wanted, f"the first pass has no finite {LM_LOSS} at {last}", [last])
    return _held(evidence, second, wanted, start, last)


def _held(evidence: GateEvidence, second: SecondPass, wanted: str, start: int, last: int) -> RuleResult:
    """Hold the final loss against the first pass, and tell of every step."""
    rows = passes(evidence, start, last)
    gaps = [row["step"] for row in rows if row["first"] is None]
    first, again = float(rows[-1]["first"]), float(rows[-1]["second"])
    allowed = ABSOLUTE + RELATIVE * abs(first)
    within = abs(first - again) <= allowed
    exact = compare_losses(evidence.curve.steps, merge_steps(second.steps).steps, first_step=start + 1)
    other = sorted({difference.step for difference in exact.differences})
    seen = f"final loss {first:.6E}, then {again:.6E}: apart {abs(first - again):.2E}, allowed {allowed:.2E}; "
    seen += f"{len(rows)} steps, {len(rows) - len(other)} of them equal as printed"
    largest = max((row for row in rows if row["first"] is not None), key=lambda row: abs(row["first"] - row["second"]))
    if other:
        seen += f", farthest apart at {largest['step']} ({largest['first']:.6E}, {largest['second']:.6E})"
    verdict = FAIL if not within else INCONCLUSIVE if gaps else PASS
    return _result(evidence, verdict, wanted, seen, gaps if within else [last])


def passes(evidence: GateEvidence, start: int, last: int) -> list[dict[str, Any]]:
    """Return step, loss of the first and of the second pass, for every step; None where there is no finite one."""
    first, second = _curve(evidence.steps), _curve(evidence.second_pass.steps if evidence.second_pass else ())
    return [
        {"step": step, "first": finite(first.get(step)), "second": finite(second.get(step))}
        for step in range(start + 1, last + 1)
    ]


def _curve(steps: tuple[StepRecord, ...]) -> Mapping[int, Optional[float]]:
    return {record.step: record.losses.get(LM_LOSS) for record in merge_steps(steps).steps}


def _result(
    evidence: GateEvidence, verdict: str, wanted: str, seen: str, steps: Any = ()
) -> RuleResult:  # fmt: skip
    return evidence.result(RESUME_CHECK, verdict, wanted, seen, "second pass", steps)
