"""The attempts of a run as its folder tells them, whatever of it is missing or torn. Changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Optional

from seatrial.judge import clock
from seatrial.judge.collect import read_steps
from seatrial.judge.goodput import Shares, Steps, attempt_shares
from seatrial.judge.records import StepRecord
from seatrial.run import records
from seatrial.run.layout import Attempt, RunFolder

_ENDED = ("outcome", "reason", "exit_code", "class", "class_why", "first_step", "last_step")
_DECIDED = ("action", "class", "reason", "exclude", "delay_seconds", "exit_code", "decision")


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt. ``data``: its record.json, and what events say where that lacks a key; an absent key is not known.

    ``started``, ``ended``: seconds since 1970, None where nobody knows. ``live``: it goes on. ``shares``: None where
    its times are not known.
    """

    number: int
    data: Mapping[str, Any] = field(default_factory=dict)
    started: Optional[float] = None
    ended: Optional[float] = None
    live: bool = False
    shares: Optional[Shares] = None
    steps: Steps = field(default_factory=Steps)


def read_events(folder: RunFolder) -> Sequence[Mapping[str, Any]]:
    """Return the events, oldest first; what is none is passed over."""
    return records.read_objects(folder.events)


def read_history(
    folder: RunFolder, events: Optional[Sequence[Mapping[str, Any]]] = None, now: Optional[float] = None
) -> list[AttemptRecord]:
    """Return the attempts, oldest first.

    ``now``: seconds since 1970; given, the last attempt goes on where it has no end on record. Time shares that are
    not on record are made up from metrics.jsonl and the events.
    """
    return list(_Reader(folder, read_events(folder) if events is None else events, now).attempts())


class _Reader:
    def __init__(self, folder: RunFolder, events: Sequence[Mapping[str, Any]], now: Optional[float]) -> None:
        self._folder, self._events, self._now = folder, events, now
        self._steps: Optional[dict[int, list[StepRecord]]] = None

    def attempts(self) -> Iterator[AttemptRecord]:
        attempts = self._folder.attempts()
        for attempt in attempts:
            yield self._attempt(attempt, attempt is attempts[-1])

    def _attempt(self, attempt: Attempt, last: bool) -> AttemptRecord:
        number = attempt.number
        data = records.read_object(attempt.record) or self._told(number, "attempt_record").get("record") or {}
        over = bool(data) or bool(self._told(number, "attempt_ended"))
        data = _together(self._from_events(number), data)
        started = clock.of_record(data.get("started"))
        if started is None:
            started = clock.of_record(self._told(number, "attempt_started").get("time"))
        ended = clock.of_record(data.get("ended"))
        live = last and not over and self._now is not None
        if ended is None and started is not None:
            ended = self._now if live else self._last_sign(number, started)
        shares, steps = _recorded(data)
        if shares is None and started is not None and ended is not None:
            shares, steps = self._shares(number, started, ended)
        return AttemptRecord(number, data, started, ended, live, shares, steps or Steps())

    def _of(self, number: int) -> list[Mapping[str, Any]]:
        return [event for event in self._events if event.get("attempt") == number]

    def _told(self, number: int, name: str) -> Mapping[str, Any]:
        """Return the newest event of that name about the attempt, or an empty one."""
        return next((event for event in reversed(self._of(number)) if event.get("event") == name), {})

    def _from_events(self, number: int) -> dict[str, Any]:
        started, ended = self._told(number, "attempt_started"), self._told(number, "attempt_ended")
        found: dict[str, Any] = {}
        for event in takewhile(lambda event: event is not started, self._events if started else ()):
            if event.get("event") == "supervisor_started":
                found["job"] = {"id": event.get("job_id"), "restart": event.get("restart_count")}
                found["nodes"] = event.get("nodes")
        found.update((key, started[key]) for key in ("why", "resume_step", "passed_over") if key in started)
        found.update((key, ended[key]) for key in _ENDED if key in ended)
        decision = self._decision(number)
        if decision:
            found["decision"] = {key: decision[key] for key in _DECIDED if key in decision}
            if decision.get("class"):
                found["class"] = decision["class"]
        return found

    def _decision(self, number: int) -> Mapping[str, Any]:
        """Return the decision about the attempt; the first after its end where decisions name no attempt."""
        named = self._told(number, "decision")
        if named:
            return named
        seen = False
        for event in self._events:
            if event.get("event") == "attempt_ended":
                seen = event.get("attempt") == number
            elif event.get("event") == "decision" and seen and event.get("attempt") is None:
                return event
        return {}

    def _last_sign(self, number: int, started: float) -> float:
        """Return when the attempt last wrote something: a later supervisor's words about it are not its own."""
        after = iter(self._events)
        for event in after:
            if event.get("event") == "attempt_started" and event.get("attempt") == number:
                break
        own = takewhile(lambda event: event.get("event") not in ("supervisor_started", "attempt_ended"), after)
        times = [clock.of_record(event.get("time")) for event in own if event.get("attempt") == number]
        steps = [clock.printed([step.time], started, math.inf)[0] for step in self._records().get(number, [])[-1:]]
        return max([started, *(time for time in times + steps if time is not None)])

    def _shares(self, number: int, started: float, ended: float) -> tuple[Shares, Steps]:
        steps = self._records()
        before = max((step.step for n, own in steps.items() if n < number for step in own), default=0)
        saves, evaluations = [], []
        for event in self._of(number):
            time, step = clock.of_record(event.get("time")), event.get("step")
            if time is None or not isinstance(step, int):
                continue
            if event.get("event") == "checkpoint_saved":
                saves.append((step, None, time))
            elif event.get("event") == "evaluation":
                evaluations.append((step, str(event.get("which")), time))
        return attempt_shares(started, ended, steps.get(number, []), saves, evaluations, before)

    def _records(self) -> dict[int, list[StepRecord]]:
        """Read once, and only where it is needed: a long run's are tens of megabytes."""
        if self._steps is None:
            self._steps = {}
            for step in read_steps(self._folder.metrics):
                self._steps.setdefault(step.attempt, []).append(step)
        return self._steps


def _together(told: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record; what it lacks or does not know (a supervisor wrote it for a lost one) as events tell it."""
    known = {key: value for key, value in record.items() if value not in (None, "unknown", [])}
    data = {**record, **told, **known}
    if isinstance(told.get("decision"), dict) and isinstance(record.get("decision"), dict):
        data["decision"] = {**told["decision"], **record["decision"]}
    return data


def _recorded(data: Mapping[str, Any]) -> tuple[Optional[Shares], Optional[Steps]]:
    try:
        return Shares.from_json(data["seconds"]), Steps.from_json(data["steps"])
    except (KeyError, TypeError, ValueError):
        return None, None
