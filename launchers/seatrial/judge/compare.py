"""Are two loss curves the same? Step by step, at the precision that the log prints and no finer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from seatrial.judge.parse import exponent
from seatrial.judge.records import StepRecord

# Half a unit in the last place of float32, relative: Megatron sums the first two steps' losses in float32.
_HALF_ULP_FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class LossDifference:
    """A loss of one step that differs by more than ``tolerance`` (absolute). None: that curve has no such value."""

    step: int
    name: str
    a: Optional[float]
    b: Optional[float]
    tolerance: float

    @property
    def relative(self) -> float:
        """|a - b| / |a|; infinite where either is missing, non-finite, or a is 0."""
        if self.a is None or self.b is None or not math.isfinite(self.a - self.b) or self.a == 0:
            return math.inf
        return abs(self.a - self.b) / abs(self.a)


@dataclass(frozen=True)
class LossComparison:
    """``compared``: steps that both curves have; ``only_a``/``only_b``: steps that one lacks."""

    compared: tuple[int, ...]
    differences: tuple[LossDifference, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]

    @property
    def equal(self) -> bool:
        """True only where at least one step was compared, none is missing and no loss differs."""
        return bool(self.compared) and not (self.differences or self.only_a or self.only_b)

    @property
    def first(self) -> Optional[LossDifference]:
        """The first divergence."""
        return self.differences[0] if self.differences else None


def compare_losses(
    a: Iterable[StepRecord],
    b: Iterable[StepRecord],
    *,
    first_step: Optional[int] = None,
    last_step: Optional[int] = None,
    relative: float = 0.0,
) -> LossComparison:
    """Compare two merged curves (at most one record a step), from ``first_step`` to ``last_step`` inclusive.

    Printed values must be equal as printed, or differ by at most ``relative`` times the larger one. A value recovered
    from a printed mean is known less well (see ``recovery_error``) and is given that much room, no more.
    A missing or non-finite value is a difference.
    """
    curve_a, curve_b = _by_step(a, first_step, last_step), _by_step(b, first_step, last_step)
    both = sorted(curve_a.keys() & curve_b.keys())
    differences = []
    for step in both:
        at_a, at_b = curve_a[step], curve_b[step]
        for name in sorted(at_a.losses.keys() | at_b.losses.keys()):
            room = recovery_error(curve_a, step, name) + recovery_error(curve_b, step, name)
            if relative == 0 and at_a.recovered and at_b.recovered and _same_before(curve_a, curve_b, step, name):
                room = 0.0  # equal losses were printed as equal means after equal first steps
            difference = _difference(step, name, at_a.losses.get(name), at_b.losses.get(name), room, relative)
            if difference is not None:
                differences.append(difference)
    return LossComparison(
        compared=tuple(both),
        differences=tuple(differences),
        only_a=tuple(sorted(curve_a.keys() - curve_b.keys())),
        only_b=tuple(sorted(curve_b.keys() - curve_a.keys())),
    )


def recovery_error(curve: Mapping[int, StepRecord], step: int, name: str) -> float:
    """Return how far a loss may lie from the value that Megatron would have printed; 0 unless it was recovered.

    own = 2 x mean - first, each rounded to 7 digits (unit u): 2 x u/2 + u/2; the value that it is compared with
    adds u/2; the float32 sum adds half a unit in its last place. u is that of the largest value involved.
    """
    record = curve[step]
    value = record.losses.get(name)
    if not record.recovered or value is None or not math.isfinite(value):
        return 0.0
    before = curve[step - 1].losses.get(name, value) if step - 1 in curve else value
    largest = max(abs(value), abs(before)) if math.isfinite(before) else abs(value)
    unit = 10.0 ** (exponent(largest) - 6)
    # The last factor covers decimal values held as binary floats.
    return (2.0 * unit + _HALF_ULP_FLOAT32 * 2.0 * largest) * (1 + 1e-6)


def _same_before(a: Mapping[int, StepRecord], b: Mapping[int, StepRecord], step: int, name: str) -> bool:
    """Tell whether both curves have the step before with one and the same loss."""
    if step - 1 not in a or step - 1 not in b:
        return False
    value = a[step - 1].losses.get(name)
    return value is not None and value == b[step - 1].losses.get(name)


def _by_step(
    records: Iterable[StepRecord], first_step: Optional[int], last_step: Optional[int]
) -> Mapping[int, StepRecord]:
    return {
        record.step: record
        for record in records
        if (first_step is None or record.step >= first_step) and (last_step is None or record.step <= last_step)
    }


def _difference(
    step: int, name: str, a: Optional[float], b: Optional[float], room: float, relative: float
) -> Optional[LossDifference]:
    if a is None or b is None or not math.isfinite(a) or not math.isfinite(b):
        return LossDifference(step, name, a, b, 0.0)
    tolerance = room + relative * max(abs(a), abs(b))
    return LossDifference(step, name, a, b, tolerance) if abs(a - b) > tolerance else None
