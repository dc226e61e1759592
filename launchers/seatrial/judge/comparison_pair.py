"""One curve held against another: where they first leave the band, and what of them cannot be compared. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from seatrial.judge.compare import LossDifference, compare_losses
from seatrial.judge.curves import RunCurve, gaps
from seatrial.judge.records import LM_LOSS, StepRecord
from seatrial.judge.rules import spans
from seatrial.run.records import encode_float

SAME, DIFFERENT, INCOMPLETE, NOTHING = "same", "different", "incomplete", "nothing to compare"
_BESIDES = ("grad norm", "learning rate")  # told, and no part of the verdict


@dataclass(frozen=True)
class Tolerance:
    """b is the same as a where |a - b| <= ``absolute`` + ``relative`` x |a|; both 0: bit for bit as printed.

    ``window``: the means of so many steps are compared besides; 1: none. ``first``, ``last``: the steps that are asked
    about, inclusive; None: all that there are. ``losses``: the names that count; none: all that lines print.
    """

    relative: float = 0.01
    absolute: float = 1e-6
    window: int = 10
    first: Optional[int] = None
    last: Optional[int] = None
    losses: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        return self.relative == 0 and self.absolute == 0

    def band(self, a: float) -> float:
        return self.absolute + self.relative * abs(a)

    def asks_for(self, step: int) -> bool:
        return (self.first is None or step >= self.first) and (self.last is None or step <= self.last)


@dataclass(frozen=True)
class _Held:
    """``compared``: steps that both have, with a number in at least one. ``unknown``: those where neither has one."""

    compared: tuple[int, ...]
    unknown: tuple[int, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    outside: tuple[LossDifference, ...]
    largest: Optional[LossDifference] = None


def compare_pair(a: RunCurve, b: RunCurve, tolerance: Tolerance) -> dict[str, Any]:
    """Return how ``b`` stands to ``a`` as plain data: a member of the ``pairs`` of a comparison, less the indices."""
    steps_a, steps_b = (_asked(curve.steps, tolerance) for curve in (a, b))
    held = _hold(steps_a, steps_b, tolerance)
    interval = min((curve.interval for curve in (a, b) if curve.steps), default=1)
    either = {record.step for record in (*steps_a, *steps_b)}
    lacking = gaps(either, interval, tolerance.first, tolerance.last)
    evaluations = _evaluations(a, b, tolerance)
    outside = sorted([*held.outside, *evaluations.outside], key=lambda found: found.step)
    complete = not (held.only_a or held.only_b or held.unknown or evaluations.unknown or lacking)
    if outside:
        verdict = DIFFERENT
    elif not held.compared:
        verdict = NOTHING
    else:
        verdict = SAME if complete else INCOMPLETE
    return {
        "compared": len(held.compared), "only_a": spans(held.only_a), "only_b": spans(held.only_b),
        "neither": lacking, "not_comparable": spans(held.unknown), "verdict": verdict,
        "first_divergence": _told(outside[0], tolerance) if outside else None,
        "differing": len({found.step for found in held.outside}), "largest": _largest(held.largest),
        "evaluations": {
            "compared": len(set(evaluations.compared)), "only_a": spans(evaluations.only_a),
            "only_b": spans(evaluations.only_b), "not_comparable": spans(evaluations.unknown),
            "differing": len({found.step for found in evaluations.outside}),
        },
        "windows": _windows(steps_a, steps_b, held.compared, tolerance),
        "besides": [_beside(name, steps_a, steps_b, tolerance) for name in _BESIDES],
    }  # fmt: skip


def _asked(steps: Iterable[StepRecord], tolerance: Tolerance) -> list[StepRecord]:
    names = tolerance.losses
    asked = [record for record in steps if tolerance.asks_for(record.step)]
    if not names:
        return asked
    return [replace(record, losses={name: record.losses[name] for name in names if name in record.losses})
            for record in asked]  # fmt: skip


def _hold(steps_a: Sequence[StepRecord], steps_b: Sequence[StepRecord], tolerance: Tolerance) -> _Held:
    """Compare the losses of two curves. Each must have each loss that one of them has at any step, lm loss at least.

    Megatron leaves a NaN loss out of its line: a value that is missing, NaN or infinite is no number. Where one curve
    has a number and the other none, they differ; where neither has one, nobody knows.
    """
    found = compare_losses(steps_a, steps_b)
    names = set(tolerance.losses) or {LM_LOSS}.union(*(record.losses for record in (*steps_a, *steps_b)))
    curve_a, curve_b = ({record.step: record.losses for record in steps} for steps in (steps_a, steps_b))
    compared, unknown = [], []
    for step in found.compared:
        known = [_is_number(curve_a[step].get(name)) or _is_number(curve_b[step].get(name)) for name in names]
        if any(known):
            compared.append(step)
        if not all(known):
            unknown.append(step)
    differences = [one for one in found.differences if _is_number(one.a) or _is_number(one.b)]
    return _Held(
        tuple(compared), tuple(unknown), found.only_a, found.only_b,
        tuple(one for one in differences if _is_outside(one, tolerance)),
        max((one for one in differences if one.relative < math.inf), key=lambda one: one.relative, default=None),
    )  # fmt: skip


def _is_outside(found: LossDifference, tolerance: Tolerance) -> bool:
    if found.a is None or found.b is None or not math.isfinite(found.a - found.b):
        return True
    return abs(found.a - found.b) > found.tolerance + tolerance.band(found.a)


def _evaluations(a: RunCurve, b: RunCurve, tolerance: Tolerance) -> _Held:
    """Compare the evaluations of each kind as curves of their own; a loss is named with its kind."""
    kinds = sorted({record.which for record in (*a.evaluations, *b.evaluations)})
    held = [_hold_evaluations(a, b, which, tolerance) for which in kinds]

    def all_of(part: str) -> tuple[Any, ...]:
        return tuple(one for kind in held for one in getattr(kind, part))

    return _Held(all_of("compared"), all_of("unknown"), all_of("only_a"), all_of("only_b"), all_of("outside"))


def _hold_evaluations(a: RunCurve, b: RunCurve, which: str, tolerance: Tolerance) -> _Held:
    kind = "validation" if which == "interval" else f"final {which}"
    curves = [
        [
            StepRecord(record.iteration, 0, losses={f"{kind} {name}": value for name, value in record.losses.items()
                                                    if not tolerance.losses or name in tolerance.losses})
            for record in curve.evaluations
            if record.which == which and tolerance.asks_for(record.iteration)
        ]
        for curve in (a, b)
    ]  # fmt: skip
    names = tuple(f"{kind} {name}" for name in tolerance.losses or (LM_LOSS,))
    return _hold(curves[0], curves[1], replace(tolerance, losses=names))


def _windows(
    steps_a: Sequence[StepRecord], steps_b: Sequence[StepRecord], common: Sequence[int], tolerance: Tolerance
) -> Optional[dict[str, Any]]:
    """Compare means of lm loss over windows of steps: noise of single steps goes, a drift stays.

    Windows are counted from step 1, and hold the steps where both have a number.
    """
    if tolerance.window < 2 or tolerance.exact:
        return None
    curve_a, curve_b = ({record.step: record.losses.get(LM_LOSS) for record in steps} for steps in (steps_a, steps_b))
    filled: dict[int, list[tuple[int, float, float]]] = {}
    for step in common:
        a, b = curve_a[step], curve_b[step]
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b):
            filled.setdefault((step - 1) // tolerance.window, []).append((step, a, b))
    outside = []
    for rows in filled.values():
        # A loss gone wild may be so large that the sum of two is none.
        a, b = (sum(row[side] / len(rows) for row in rows) for side in (1, 2))
        if abs(a - b) > tolerance.band(a):
            outside.append({"first": rows[0][0], "last": rows[-1][0], "a": a, "b": b,
                            "difference": _finite(abs(a - b)), "tolerance": _finite(tolerance.band(a))})  # fmt: skip
    return {
        "steps": tolerance.window, "compared": len(filled), "differing": len(outside),
        "first": outside[0] if outside else None,
    }  # fmt: skip


def _beside(
    name: str, steps_a: Sequence[StepRecord], steps_b: Sequence[StepRecord], tolerance: Tolerance
) -> dict[str, Any]:
    """Compare a number that is no loss in the same way; all of a learning rate is less than the absolute band."""
    curves = [[replace(record, losses=dict(_number(name, record)), recovered=False) for record in steps]
              for steps in (steps_a, steps_b)]  # fmt: skip
    tolerance = replace(tolerance, losses=(name,), absolute=0 if name == "learning rate" else tolerance.absolute)
    held = _hold(curves[0], curves[1], tolerance)
    first = held.outside[0] if held.outside else None
    return {"name": name, "compared": len(held.compared), "differing": len(held.outside),
            "first": _told(first, tolerance) if first else None}  # fmt: skip


def _number(name: str, record: StepRecord) -> Iterator[tuple[str, float]]:
    value = record.grad_norm if name == "grad norm" else record.learning_rate
    if value is not None:
        yield name, value


def _told(found: LossDifference, tolerance: Tolerance) -> dict[str, Any]:
    apart = None if found.a is None or found.b is None else _finite(abs(found.a - found.b))
    band = tolerance.band(found.a) if found.a is not None and math.isfinite(found.a) else tolerance.absolute
    return {
        "step": found.step, "name": found.name, "a": encode_float(found.a), "b": encode_float(found.b),
        "difference": apart, "tolerance": _finite(found.tolerance + band),
    }  # fmt: skip


def _largest(found: Optional[LossDifference]) -> Optional[dict[str, Any]]:
    return None if found is None else {"step": found.step, "name": found.name, "relative": found.relative}


def _finite(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None


def _is_number(value: Optional[float]) -> bool:
    return value is not None and math.isfinite(value)
