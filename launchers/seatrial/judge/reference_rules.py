"""The rules that hold a run against a reference: how fast it was, and its loss curve. Pure.

A step that is missing is never a pass, and a value that is no number never lies within a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, Optional

from seatrial.judge import speed as rates
from seatrial.judge.evidence import Expectations, GateEvidence
from seatrial.judge.records import LM_LOSS, finite
from seatrial.judge.rules import spans
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, NOT_JUDGED, PASS, RuleResult
from seatrial.run.reference import LEAST_SPEED_TOLERANCE, Held

SPEED = "speed"
CURVE = "reference curve"
FINAL_STEPS = 10  # the mean of so many last losses is held against the reference's
_MOST_ROWS = 200


def speed(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Tokens a second and GPU after the warm-up are no fewer than the reference's, less the tolerance."""
    found = windows(evidence, expected)
    seen = "; ".join(window.words for window in found) or "no step times are known"
    held, problem = expected.held, _not_comparable(expected, of_speed=True)
    rate = held.reference.tokens_per_second_per_gpu if held.reference else None
    if any(window.mfu is not None for window in found):
        seen += f"; MFU of {_setting(evidence, expected).peak}"
    if rate is None or problem is not None:
        return _result(evidence, SPEED, *_without(held, problem or "the reference has no speed"), seen)
    allowed = max(LEAST_SPEED_TOLERANCE, held.tolerances.speed)
    least = rate * (1 - allowed)
    wanted = f"after warm-up at least {least:,.0f} tokens/s/GPU: {rate:,.0f} of {_name(held)} less {allowed:.0%}"
    whole = rates.after_warm_up(found)
    reached = whole.tokens_per_second_per_gpu if whole else None
    if reached is None:
        return _result(evidence, SPEED, INCONCLUSIVE, wanted, seen)
    return _result(evidence, SPEED, PASS if reached >= least else FAIL, wanted, f"{reached / rate - 1:+.1%}; {seen}")


def curve(evidence: GateEvidence, expected: Expectations) -> RuleResult:
    """Each step's loss, and the mean of the last ones, lie within a tolerance of the reference curve."""
    held, problem = expected.held, _not_comparable(expected, of_speed=False)
    reference = held.reference.steps if held.reference else {}
    steps = [step for step in sorted(reference) if step <= expected.steps]
    if problem is not None or not reference:
        return _result(evidence, CURVE, *_without(held, problem or "the reference has no curve"), "")
    pointwise, final = held.tolerances.pointwise, held.tolerances.final
    wanted = f"each step within {pointwise:.2%} of {_name(held)}, the mean of the last {FINAL_STEPS} within {final:.2%}"
    if not steps or steps[-1] != expected.steps:
        seen = f"the reference ends at step {max(reference)}, the run at {expected.steps}"
        return _result(evidence, CURVE, INCONCLUSIVE, wanted, seen)
    losses = {record.step: record.losses.get(LM_LOSS) for record in evidence.curve.steps}
    missing = [step for step in steps if step not in losses]
    away = {step: _away(losses[step], reference[step]) for step in steps if step in losses}
    broken = [step for step, distance in away.items() if not distance <= pointwise]
    parts = [f"{len(away)} of {len(steps)} steps compared"]
    if away:
        step = max(away, key=lambda at: away[at])
        parts.append(f"farthest {away[step]:.2%} at {step}")
    parts += [f"outside at {spans(broken)}"] if broken else []
    parts += [f"missing: {spans(missing)}"] if missing else []
    last = steps[-FINAL_STEPS:]
    ends = [losses.get(step) for step in last]
    known = [value for value in ends if value is not None and math.isfinite(value)]
    apart = (
        _away(sum(known) / len(known), fmean(reference[step] for step in last)) if len(known) == len(last) else math.inf
    )
    parts.append(f"last {len(last)}: {apart:.2%}" if apart < math.inf else f"last {len(last)}: not all known")
    failed = bool(broken) or (apart > final and len(known) == len(last))
    verdict = FAIL if failed else INCONCLUSIVE if missing or len(known) < len(last) else PASS
    return _result(evidence, CURVE, verdict, wanted, "; ".join(parts), broken or missing)


def windows(evidence: GateEvidence, expected: Expectations) -> tuple[rates.Window, ...]:
    """Return how fast the run was; nothing where a step that was expected is missing."""
    return rates.windows(evidence.curve.steps, _setting(evidence, expected))


def details(evidence: GateEvidence, expected: Expectations) -> dict[str, Any]:
    """Return ``speed`` and ``curve`` of verdict.json."""
    setting = _setting(evidence, expected)
    batch = next((r.global_batch_size for r in reversed(evidence.steps) if r.global_batch_size), None)
    tokens = batch * setting.sequence_length if batch and setting.sequence_length else None
    found = rates.to_json(windows(evidence, expected), setting, tokens)
    reference = expected.held.reference
    found["reference"] = None
    if reference is not None and reference.tokens_per_second_per_gpu is not None:
        found["reference"] = {"name": reference.name, "tokens_per_second_per_gpu": reference.tokens_per_second_per_gpu}
    return {"speed": found, "curve": _rows(evidence, expected)}


def _rows(evidence: GateEvidence, expected: Expectations) -> Optional[dict[str, Any]]:
    reference = expected.held.reference
    if reference is None or not reference.steps:
        return None
    losses = {record.step: record.losses.get(LM_LOSS) for record in evidence.curve.steps}
    steps = [step for step in sorted(reference.steps) if step <= expected.steps]
    every = -(-len(steps) // _MOST_ROWS) or 1
    shown = sorted({*steps[::every], *steps[-1:]})
    return {
        "reference": reference.name,
        "steps": [[step, reference.steps[step], finite(losses.get(step))] for step in shown],
    }


def _not_comparable(expected: Expectations, *, of_speed: bool) -> Optional[str]:
    """Return why the run cannot be held against the reference; None: it can."""
    held = expected.held
    if held.problem is not None:
        return held.problem
    reference = held.reference
    if reference is None:
        return None
    pairs: Mapping[str, tuple[Any, Any]] = {
        "tokens per step": (reference.tokens_per_step, expected.tokens_per_step),
        "rehearsal": (reference.rehearsal, expected.device == "cpu") if expected.device else (None, None),
        **({"GPUs": (reference.gpus, expected.world_size), "GPU type": (reference.gpu_type, expected.gpu_type)}
           if of_speed else {}),
    }  # fmt: skip
    for what, (theirs, ours) in pairs.items():
        if theirs is not None and ours is not None and theirs != ours:
            return f"{_name(held)} has {what} {theirs}, this run {ours}"
    if not held.asked and (reference.arguments is None or reference.arguments != held.arguments):
        return f"the arguments are not those of {_name(held)}"
    return None


def _without(held: Held, why: str) -> tuple[str, str]:
    """Return verdict and expectation where there is nothing to hold the run against."""
    if held.problem is not None or (held.asked and held.reference is not None):
        return INCONCLUSIVE, f"held against {_name(held)}, but {why}"
    return NOT_JUDGED, "no reference" if held.reference is None else f"not held against a reference: {why}"


def _setting(evidence: GateEvidence, expected: Expectations) -> rates.Setting:
    gpu = next((line.gpu for line in reversed(evidence.evidence_lines) if line.gpu), expected.gpu_type)
    device = next((line.device for line in reversed(evidence.evidence_lines) if line.device), expected.device)
    peak, words = rates.peak_of(gpu, device)
    return rates.Setting(expected.world_size, expected.sequence_length, peak, words)


def _away(value: Optional[float], reference: float) -> float:
    """Return |value - reference| / |reference|; infinite for what is no number."""
    if value is None or not math.isfinite(value) or reference == 0:
        return math.inf
    return abs(value - reference) / abs(reference)


def _name(held: Held) -> str:
    return held.reference.name if held.reference else "the reference"


def _result(
    evidence: GateEvidence, rule: str, verdict: str, wanted: str, seen: str, steps: Iterable[int] = ()
) -> RuleResult:
    return evidence.result(rule, verdict, wanted, seen, "steps", steps)
