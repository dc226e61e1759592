"""From the records of several logs and attempts to one curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seatrial.judge.compare import LossDifference, compare_losses
from seatrial.judge.records import StepRecord


@dataclass(frozen=True)
class Curve:
    """One record a step, in order.

    ``repeated``: steps that ran more than once (the last one counts). ``disagreements``: where two passes over
    a step printed different losses (a: the earlier pass, b: the later).
    """

    steps: tuple[StepRecord, ...]
    repeated: tuple[int, ...] = ()
    disagreements: tuple[LossDifference, ...] = ()


def merge_logs(logs: Sequence[Sequence[StepRecord]]) -> tuple[StepRecord, ...]:
    """Return the step records of several logs (one per rank, attempt or both) in the order they were printed.

    Only the last rank prints iteration lines, so at most one log of an attempt has any. Logs are ordered by the
    time of their first line, or stand as given where a line has no time. What a log repeats of a log before it
    (the same print, seen by time, step and grad norm) counts once; repetition within one log is kept.
    """
    filled = [log for log in logs if log]
    if all(log[0].time is not None for log in filled):
        filled.sort(key=lambda log: log[0].time or "")
    records: list[StepRecord] = []
    known: set[tuple[object, ...]] = set()
    for log in filled:
        prints = [(record.time, record.step, repr(record.grad_norm), tuple(record.losses)) for record in log]
        records.extend(record for record, key in zip(log, prints) if record.time is None or key not in known)
        known.update(prints)
    return tuple(records)


def merge_steps(records: Iterable[StepRecord]) -> Curve:
    """Merge steps that ran again after a resume: the last value counts, disagreements are kept.

    ``records`` in the order they were printed, over all attempts.
    """
    latest: dict[int, StepRecord] = {}
    repeated: set[int] = set()
    disagreements: list[LossDifference] = []
    for record in records:
        earlier = latest.get(record.step)
        if earlier is not None:
            repeated.add(record.step)
            # The step before tells how exactly a recovered value is known.
            before = [latest[record.step - 1]] if record.step - 1 in latest else []
            comparison = compare_losses([*before, earlier], [*before, record], first_step=record.step - 1)
            disagreements.extend(found for found in comparison.differences if found.step == record.step)
        latest[record.step] = record
    steps = tuple(latest[step] for step in sorted(latest))
    return Curve(steps, tuple(sorted(repeated)), tuple(disagreements))
