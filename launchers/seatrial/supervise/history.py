"""What the attempts so far came to, read from their records: the memory that every decision rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import classes
from seatrial.supervise.policy import EARLIER_CHECKPOINT, Past
from seatrial.supervise.slot import Longest


@dataclass(frozen=True)
class Request:
    """What a person asked for with ``seatrial requeue``. ``from_step`` None: the newest whole checkpoint.

    ``after_attempt``: the last attempt before it, -1 for none. ``open``: no attempt has begun since.
    """

    from_step: Optional[int] = None
    exclude: tuple[str, ...] = ()
    force_class: Optional[str] = None
    after_attempt: int = -1
    open: bool = False


@dataclass(frozen=True)
class History:
    """``records``: of every attempt, oldest first. ``counted``: of those since a person last took a hand.

    ``saved``: steps whose save some attempt has seen finished. ``trained``: the highest step that was trained.
    ``evaluations``: (step, which) that were seen. ``decision``: the last one, unless an attempt has begun since.
    """

    records: Sequence[Mapping[str, Any]] = ()
    counted: Sequence[Mapping[str, Any]] = ()
    saved: frozenset[int] = frozenset()
    trained: int = 0
    evaluations: frozenset[tuple[int, str]] = frozenset()
    longest: Longest = field(default_factory=Longest)
    decision: Mapping[str, Any] = field(default_factory=dict)
    request: Request = Request()


def read_history(folder: RunFolder) -> History:
    """Return the history of a run. Every attempt must have its record (lost.close_lost_attempts sees to that)."""
    found = [record for attempt in folder.attempts() if (record := records.read_object(attempt.record)) is not None]
    events = records.read_objects(folder.events)
    request = _request(events)
    told = [event for event in events if event.get("event") in ("decision", "attempt_started")]
    return History(
        records=found,
        counted=[record for record in found if int(record.get("attempt", 0)) > request.after_attempt],
        saved=frozenset(step for record in found for step in record.get("saved_steps") or []),
        trained=max((int(record.get("last_step") or 0) for record in found), default=0),
        evaluations=frozenset(
            (int(event["step"]), str(event.get("which"))) for event in events
            if event.get("event") == "evaluation" and isinstance(event.get("step"), int)
        ),
        longest=Longest.of(record["longest"] for record in found if isinstance(record.get("longest"), dict)),
        # What ended a run is no word on the attempts after a person brought it back, should the last of them be lost.
        decision=told[-1] if told and told[-1].get("event") == "decision" else {},
        request=request,
    )  # fmt: skip


def past_of(found: Sequence[Mapping[str, Any]]) -> list[Past]:
    """Return what the policy needs of attempts' records, oldest first.

    Progress is a whole checkpoint newer than any before. Where one turned out bad and an earlier one was taken up,
    it counts from there again; ``farther`` never does.
    """
    past: list[Past] = []
    mark = farthest = -1
    for record in found:
        newest = record.get("newest_checkpoint")
        newest = newest if isinstance(newest, int) else -1
        start = record.get("resume_step")
        start = start if isinstance(start, int) else -1
        mark, farthest = max(mark, start), max(farthest, start)
        past.append(Past(
            name=str(record.get("class") or classes.UNKNOWN), how=str(record.get("how") or ""),
            step=record.get("failed_step"), node=record.get("failed_node"),
            progress=newest > mark, farther=newest > farthest, exit_code=record.get("exit_code"),
        ))  # fmt: skip
        mark, farthest = max(mark, newest), max(farthest, newest)
        if (record.get("decision") or {}).get("action") == EARLIER_CHECKPOINT:
            mark = -1
    return past


def _request(events: Sequence[Mapping[str, Any]]) -> Request:
    """Return the newest request by hand. Taken up: an attempt has begun since."""
    made: list[int] = []
    for n, event in enumerate(events):
        if event.get("event") == "requeue_requested":
            made.append(n)
        elif event.get("event") == "requeue_failed" and made:
            begun = any(one.get("event") == "attempt_started" for one in events[made[-1] : n])
            made = made if begun else made[:-1]  # it came to nothing
    if not made:
        return Request()
    at = made[-1]
    asked = events[at]
    started = [event for event in events[:at] if event.get("event") == "attempt_started"]
    return Request(
        asked.get("from_step"), tuple(asked.get("exclude") or ()), asked.get("force_class"),
        max((int(event["attempt"]) for event in started), default=-1),
        not any(event.get("event") == "attempt_started" for event in events[at:]),
    )  # fmt: skip
