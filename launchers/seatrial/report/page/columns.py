"""From step records to the columns that a page holds: whole where they fit, thinned where they do not. Pure."""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from seatrial.judge.records import LM_LOSS, StepRecord
from seatrial.judge.rules import stretches
from seatrial.judge.speed import tokens_per_second

MOST_VALUES = 700_000  # of a page: 3.7 MB as base64
_MOST_LOSSES = 12
_LARGEST = 3.4e38  # of a Float32
_LARGEST_STEP = 2**53  # that a browser counts to
GRAD_NORM, LEARNING_RATE, STEP_TIME, TOKENS = "grad norm", "learning rate", "step time (ms)", "tokens/s/GPU"


@dataclass(frozen=True)
class Columns:
    """Values by step. NaN is a gap: no value, or one of ``not_finite`` (name -> steps and what was seen).

    ``steps`` ascend; where steps have no record, one without any value stands for them. ``of``: how many records these
    were made from; more than ``shown`` where they were thinned. ``gaps``: those rows that stand for steps
    without a record.
    """

    steps: Sequence[int]
    values: Mapping[str, Sequence[float]]
    not_finite: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    of: int = 0
    shown: int = 0
    gaps: frozenset[int] = frozenset()

    @property
    def losses(self) -> list[str]:
        """The names of the losses, that of the language model first."""
        return [name for name in self.values if name not in (GRAD_NORM, LEARNING_RATE, STEP_TIME, TOKENS)]

    def missing(self, most: int = 20) -> str:
        """Return the steps that have no record, of many stretches the first; empty where there are none."""
        stretches = [(self.steps[row], self.steps[row + 1] - 1) for row in sorted(self.gaps)]
        if len(self.steps) > 1 and self.steps[0] > self.steps[1] - self.steps[0]:
            stretches.insert(0, (1, self.steps[0] - 1))
        words = ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in stretches[:most])
        return f"{words} and {len(stretches) - most} more gaps" if len(stretches) > most else words

    def to_json(self) -> dict[str, Any]:
        """Return the steps as runs of [first, count, stride], each column as base64 of little-endian Float32."""
        return {"x": _spans(self.steps), "columns": {name: encoded(column) for name, column in self.values.items()}}


def columns_of(
    records: Sequence[StepRecord], gpus: int | None, sequence_length: int | None, most: int = MOST_VALUES
) -> Columns:
    """Return the columns of a merged curve. ``most``: values that there is room for."""
    kept = [record for record in records if 0 <= record.step <= _LARGEST_STEP]
    names: dict[str, None] = dict.fromkeys([LM_LOSS] if any(LM_LOSS in one.losses for one in kept) else [])
    for record in kept:
        names.update(dict.fromkeys(record.losses))
    losses = list(names)[:_MOST_LOSSES]
    readers: dict[str, Callable[[StepRecord], float | None]] = {name: _loss(name) for name in losses} | {
        GRAD_NORM: lambda one: one.grad_norm, LEARNING_RATE: lambda one: one.learning_rate,
        STEP_TIME: lambda one: one.step_time_ms, TOKENS: lambda one: tokens_per_second(one, gpus, sequence_length),
    }  # fmt: skip
    return made([one.step for one in kept], {name: [read(one) for one in kept] for name, read in readers.items()}, most)


def made(numbers: Sequence[int], columns: Mapping[str, Sequence[float | None]], most: int = MOST_VALUES) -> Columns:
    """Return columns by ascending ``numbers`` of steps; a column without any value is left out."""
    whole = {name: column for name, column in columns.items() if any(value is not None for value in column)}
    odd = {
        name: found
        for name, column in whole.items()
        if (found := [(step, f"{value}") for step, value in zip(numbers, column, strict=True) if _is_odd(value)])
    }
    rows = _rows(whole, len(numbers), most)
    steps = [numbers[row] for row in rows]
    values = {name: [_float(column[row]) for row in rows] for name, column in whole.items()}
    return _with_gaps(Columns(steps, values, odd, len(numbers), len(rows)))


def encoded(values: Iterable[float]) -> str:
    """Return base64 of little-endian Float32: seven digits, as Megatron prints them."""
    column = array("f", values)
    if sys.byteorder == "big":
        column.byteswap()
    return base64.b64encode(column.tobytes()).decode()


def steps_words(steps: Iterable[int], most: int = 12) -> str:
    """Return steps for people, of many the first: ``4-7, 9 and 12 more``."""
    spans = stretches(steps)
    words = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:most])
    left = sum(b - a + 1 for a, b in spans[most:])
    return f"{words} and {left} more" if left else words


def _loss(name: str) -> Callable[[StepRecord], float | None]:
    return lambda one: one.losses.get(name)


def _is_odd(value: float | None) -> bool:
    return value is not None and not abs(value) < _LARGEST  # true of NaN


def _float(value: float | None) -> float:
    return math.nan if value is None or _is_odd(value) else value


def _rows(columns: Mapping[str, Sequence[float | None]], count: int, most: int) -> Sequence[int]:
    """Return which rows stay: all that fit; else, of each share of neighbours, the least and the greatest loss."""
    room = max(64, most // max(1, len(columns)))
    if count <= room or not columns:
        return range(count)
    first = [_float(value) for value in next(iter(columns.values()))]
    shares = room // 2
    kept = {0, count - 1}
    for share in range(shares):
        rows = range(count * share // shares, count * (share + 1) // shares)
        finite = [row for row in rows if not math.isnan(first[row])] or rows[:1]
        kept |= {min(finite, key=first.__getitem__), max(finite, key=first.__getitem__)}
    return sorted(kept)


def _with_gaps(columns: Columns) -> Columns:
    """Put a row without any value where records are missing, so that no line is drawn across."""
    jumps = [after - before for before, after in zip(columns.steps, columns.steps[1:], strict=False)]
    typical = median(jumps) if jumps else 1
    # Thinned rows stand at uneven distances; only a jump that no share of neighbours explains is a gap.
    most = 1.5 * typical if columns.shown == columns.of else 8 * typical
    cut = {row for row, jump in enumerate(jumps) if jump > most}
    rows: list[int | None] = []
    steps: list[int] = []
    for row, step in enumerate(columns.steps):
        rows.append(row)
        steps.append(step)
        if row in cut:
            rows.append(None)
            steps.append(step + 1)
    values = {
        name: [math.nan if row is None else column[row] for row in rows] for name, column in columns.values.items()
    }
    gaps = frozenset(place for place, row in enumerate(rows) if row is None)
    return Columns(steps, values, columns.not_finite, columns.of, columns.shown, gaps)


def _spans(steps: Sequence[int]) -> list[list[int]]:
    spans: list[list[int]] = []
    for step in steps:
        if spans:
            first, count, stride = spans[-1]
            if count == 1:
                spans[-1] = [first, 2, step - first]
                continue
            if step == first + count * stride:
                spans[-1][1] += 1
                continue
        spans.append([step, 1, 1])
    return spans
