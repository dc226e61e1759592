"""Where the wall time of a run went, over its attempts and jobs. Pure. The definitions stand in docs/goodput.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from seatrial.judge import clock
from seatrial.judge.goodput import Shares
from seatrial.judge.history import AttemptRecord

_FINAL = ("done", "stop")


@dataclass(frozen=True)
class Goodput:
    """Seconds of a run's wall time by what they were spent on (their sum is ``wall``), and the steps they bought."""

    queue: float = 0.0
    startup: float = 0.0
    productive: float = 0.0
    replayed: float = 0.0
    saving: float = 0.0
    evaluating: float = 0.0
    idle: float = 0.0
    wall: float = 0.0
    steps_productive: int = 0
    steps_replayed: int = 0
    attempts: int = 0

    @property
    def with_queue(self) -> Optional[float]:
        """Productive / wall; None before anything took time."""
        return self.productive / self.wall if self.wall > 0 else None

    @property
    def without_queue(self) -> Optional[float]:
        """Productive / (wall - queue); None before a job started."""
        held = self.wall - self.queue
        return self.productive / held if held > 0 else None

    @property
    def shares(self) -> dict[str, float]:
        """Return the parts of ``wall``."""
        return {name: getattr(self, name) for name in ("queue", *Shares.__dataclass_fields__)}

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"with_queue": self.with_queue, "without_queue": self.without_queue}


def run_goodput(
    attempts: Sequence[AttemptRecord], events: Iterable[Mapping[str, Any]], now: Optional[float] = None
) -> Goodput:
    """Return where a run's time went, from its submission to its end, or to ``now`` where it goes on (seconds since
    1970).

    Queue: from the submission to the first job's start, and from each job's end to the next one's start.
    """
    times = _Times(attempts, list(events), now)
    done = [attempt.shares for attempt in attempts if attempt.shares is not None]
    sums = {name: math.fsum(getattr(share, name) for share in done) for name in Shares.__dataclass_fields__}
    queue = times.queue()
    # Between attempts, within a job: waits before a restart, the supervisor's own work. Clocks of several hosts may
    # make the parts longer than the whole; then the parts are believed.
    between = max(0.0, times.wall - queue - math.fsum(sums.values()))
    sums["idle"] += between
    return Goodput(
        queue=queue, wall=math.fsum([queue, *sums.values()]), attempts=len(attempts),
        steps_productive=sum(attempt.steps.productive for attempt in attempts),
        steps_replayed=sum(attempt.steps.replayed for attempt in attempts), **sums,
    )  # fmt: skip


class _Times:
    """When the run's jobs were submitted, started and left. A run of before these events has a job an attempt."""

    def __init__(
        self, attempts: Sequence[AttemptRecord], events: Sequence[Mapping[str, Any]], now: Optional[float]
    ) -> None:  # fmt: skip
        began = [attempt.started for attempt in attempts if attempt.started is not None]
        over = [attempt.ended for attempt in attempts if attempt.ended is not None and not attempt.live]
        submitted = [
            time for event in events if event.get("event") == "submitted"
            if (time := clock.of_record(event.get("submit_time") or event.get("time"))) is not None
        ]  # fmt: skip
        starts = sorted(_when(events, "supervisor_started"))
        # Slurm may start the job of a run that is over: what only ended again is no part of it.
        final = _when((event for event in events if event.get("decision") in _FINAL), "decision")
        settled = max([*final[-1:], *began], default=math.inf) if final and now is None else math.inf
        until = min((time for time in starts if time > settled), default=math.inf)
        self._starts = [time for time in starts if time < until] or sorted(began)
        ended = [time for time in _when(events, "supervisor_ended") if time <= until]
        self._left = [*ended, *over]
        first = [*submitted, *self._starts, *began]
        self._begin = min(first, default=now or 0.0)  # nothing has begun: nothing has taken time
        decided = [time for time in _when(events, "decision") if time <= until]
        marks = [*first, *self._left, *decided]
        self._end = max(marks, default=0.0) if now is None else max(now, self._begin)
        job_over = bool(self._starts) and any(time >= self._starts[-1] for time in ended)
        self._waits = now is not None and (job_over or not self._starts)

    @property
    def wall(self) -> float:
        return self._end - self._begin

    def queue(self) -> float:
        """Return the seconds without a job."""
        waited, left = [], self._begin
        for start, following in zip(self._starts, [*self._starts[1:], math.inf]):
            waited.append(max(0.0, start - left))
            left = max((time for time in self._left if start < time <= following), default=start)
        if self._waits:
            waited.append(max(0.0, self._end - left))
        return math.fsum(waited)


def _when(events: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    times = (clock.of_record(event.get("time")) for event in events if event.get("event") == name)
    return [time for time in times if time is not None]
