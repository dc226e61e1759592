"""Where the wall time of an attempt went. Pure. The definitions stand in docs/goodput.md."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Optional

from seatrial.judge import clock
from seatrial.judge.records import StepRecord

# Marks that the supervisor saw, in seconds since 1970. A save: step, when it began (None: when its step had ended),
# when it was finished. An evaluation: step, which, when it was finished.
Save = tuple[int, Optional[float], float]
Evaluation = tuple[int, str, float]


@dataclass(frozen=True)
class Shares:
    """Seconds of wall time by what they were spent on; their sum is the wall time."""

    startup: float = 0.0
    productive: float = 0.0
    replayed: float = 0.0
    saving: float = 0.0
    evaluating: float = 0.0
    idle: float = 0.0

    @property
    def total(self) -> float:
        return math.fsum(self.to_json().values())

    def to_json(self) -> dict[str, float]:
        """Return the ``seconds`` of an attempt's record."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Shares:
        """Inverse of ``to_json``. Raises KeyError, TypeError or ValueError for anything but finite seconds from 0."""
        values = {name: float(data[name]) for name in cls.__dataclass_fields__}
        if not all(0 <= value < math.inf for value in values.values()):
            raise ValueError(f"no seconds: {values}")
        return cls(**values)


@dataclass(frozen=True)
class Steps:
    """Training steps: done for the first time, and done again after a resume."""

    productive: int = 0
    replayed: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the ``steps`` of an attempt's record."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Steps:
        """Inverse of ``to_json``. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(int(data["productive"]), int(data["replayed"]))


@dataclass(frozen=True)
class _Line:
    """One iteration line: the steps after ``before`` up to ``step``, and the seconds that they took by themselves."""

    before: int
    step: int
    replayed: int
    own: float

    @property
    def count(self) -> int:
        return self.step - self.before


def attempt_shares(
    began: float, ended: float, steps: Sequence[StepRecord], saves: Iterable[Save] = (),
    evaluations: Iterable[Evaluation] = (), trained_before: int = 0,
) -> tuple[Shares, Steps]:  # fmt: skip
    """Return where the time from ``began`` to ``ended`` (seconds since 1970) went, and the steps it bought.

    ``steps``: the attempt's records, in the order they were printed. ``trained_before``: the highest step that an
    earlier attempt trained. Never raises for what the times say: whatever they are, no share is negative and the
    shares add up to the wall time (0 where it would be negative).
    """
    wall = max(0.0, ended - began)
    lines = _lines(steps, trained_before)
    ends = _ends(lines, clock.printed([record.time for record in steps], began, ended), began, wall)
    marks = _Marks(lines, ends, saves, evaluations, began, wall)
    at = marks.first if not lines else max(0.0, ends[0] - lines[0].own)
    startup, productive, replayed, saving, evaluating = at, 0.0, 0.0, 0.0, 0.0
    for line, end in zip(lines, ends):
        own = min(line.own, end - at)
        again = own * line.replayed / line.count
        saved, evaluated = marks.split(at, end, end - at - own, line.before, line.step)
        productive, replayed = productive + max(0.0, own - again), replayed + again
        saving, evaluating, at = saving + saved, evaluating + evaluated, end
    saved, evaluated = marks.split(at, wall, wall - at, lines[-1].step if lines else 0, None)
    again_steps = sum(line.replayed for line in lines)
    return _adding_up(wall, [startup, productive, replayed, saving + saved, evaluating + evaluated]), Steps(
        sum(line.count for line in lines) - again_steps, again_steps
    )


def _lines(records: Sequence[StepRecord], trained_before: int) -> list[_Line]:
    """With log_interval k a line stands for k steps; the first line after a start stands for one."""
    known = [time for record in records if (time := _step_seconds(record)) is not None]
    typical = median(known) if known else 0.0
    found: list[_Line] = []
    highest = trained_before
    for record in records:
        previous = found[-1].step if found else record.step
        before = previous if previous < record.step else record.step - 1
        time = _step_seconds(record)
        replayed = min(record.step, highest) - before
        own = (typical if time is None else time) * (record.step - before)
        found.append(_Line(before, record.step, max(0, replayed), own))
        highest = max(highest, record.step)
    return found


def _step_seconds(record: StepRecord) -> Optional[float]:
    time = record.step_time_ms
    return time / 1000 if time is not None and 0 <= time < math.inf else None


def _ends(lines: Sequence[_Line], times: Sequence[Optional[float]], began: float, wall: float) -> list[float]:
    """Return when each line was printed, in seconds after ``began``, never going back.

    A time that is missing, goes back or lies outside of the attempt gives way to the steps' own times, counted on from
    the line before, or back from the first line that has a time (from the attempt's end where none has).
    """
    inside = [None if time is None or not 0 <= time - began <= wall else time - began for time in times]
    known = next((index for index, time in enumerate(inside) if time is not None), len(lines) - 1)
    ends = [0.0] * len(lines)
    for index in range(known, -1, -1):
        time = inside[index] if index == known else max(0.0, ends[index + 1] - lines[index + 1].own)
        ends[index] = wall if time is None else time
    for index in range(known + 1, len(lines)):
        time, before = inside[index], ends[index - 1]
        ends[index] = time if time is not None and time >= before else min(wall, before + lines[index].own)
    return ends


class _Marks:
    """Saves and evaluations, in seconds after the attempt began."""

    def __init__(
        self, lines: Sequence[_Line], ends: Sequence[float], saves: Iterable[Save],
        evaluations: Iterable[Evaluation], began: float, wall: float,
    ) -> None:  # fmt: skip
        end_of = {line.step: end for line, end in zip(lines, ends)}
        windows = []
        for step, started, finished in saves:
            start = end_of.get(step, math.nan) if started is None else started - began
            windows.append((start, finished - began))
        self._saves = _union(windows, wall)
        # An evaluation that nobody timed may have taken all of its gap.
        self._evaluations = sorted((step, _or(finished - began, wall)) for step, _, finished in evaluations)
        self._steps = [step for step, _ in self._evaluations]
        marks = [start for start, _ in self._saves] + [end for _, end in self._evaluations]
        self.first = max(0.0, min([*marks, wall]))

    def split(self, start: float, end: float, rest: float, since: int, until: Optional[int]) -> tuple[float, float]:
        """Return saving and evaluating within a gap from ``start`` to ``end`` of which ``rest`` seconds were no step.

        ``since``, ``until``: an evaluation lies in it that follows a step from the one to before the other.
        """
        if rest <= 0:
            return 0.0, 0.0
        saving = min(rest, self._saved(start, end))
        low = bisect_left(self._steps, since)
        high = len(self._steps) if until is None else bisect_left(self._steps, until)
        done = min(end, max((finished for _, finished in self._evaluations[low:high]), default=start))
        evaluating = max(0.0, done - start - self._saved(start, done))
        return saving, min(rest - saving, evaluating)

    def _saved(self, start: float, end: float) -> float:
        first = max(0, bisect_left(self._saves, (start, start)) - 1)
        total = 0.0
        for since, until in self._saves[first:]:
            if since >= end:
                break
            total += max(0.0, min(until, end) - max(since, start))
        return total


def _union(windows: Iterable[tuple[float, float]], wall: float) -> list[tuple[float, float]]:
    """Return the windows within the attempt, sorted, where overlapping ones are one."""
    clipped = [(max(0.0, start), min(wall, end)) for start, end in windows if start < end]
    found: list[tuple[float, float]] = []
    for start, end in sorted(window for window in clipped if window[0] < window[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _or(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise


def _adding_up(wall: float, shares: list[float]) -> Shares:
    """Idle is the rest; what rounding made too much is taken from the greatest share."""
    over = math.fsum(shares) - wall
    if over > 0:
        greatest = shares.index(max(shares))
        shares[greatest] = max(0.0, shares[greatest] - over)
    return Shares(*[*shares, max(0.0, -over)])
