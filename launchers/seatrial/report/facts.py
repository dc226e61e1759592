"""What a run folder says of its run, read cheaply: the spec, and only the ends of the growing files."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from seatrial.report.decisions import BEGINNINGS, FINAL, since
from seatrial.run.fields import at
from seatrial.run.layout import RunFolder
from seatrial.run.records import decode_float

LM_LOSS = "lm loss"
_FIRST_BLOCK = 64 * 1024
_STEPS_BYTES = 16 * 1024
_STEPS = 12  # enough for a typical step time
_EVENTS = ("submitted", "supervisor_started", "supervisor_ended", "decision", "verdict", *BEGINNINGS)


@dataclass(frozen=True)
class Facts:
    """A run as its folder tells it.

    ``total``: the target step. ``submitted``, ``decision``: the newest such events, or empty. ``steps``: the last
    records of metrics.jsonl. ``stepped_at``: when the last one was written, in seconds since 1970. ``attempt``: the
    number of the newest attempt, None before the first. ``group``: the id of its group, None where it is of none.
    ``ended``: its supervisor decided to end it (done or stop) and nothing began after that: no attempt, no job, no
    request to bring it back. ``verdict``: of a run that ended. ``unreadable``: why there is no spec.
    """

    path: Path
    recipe: str = ""
    kind: str = ""
    profile: str = ""
    created: str = ""
    host: str = ""
    total: int | None = None
    submitted: Mapping[str, Any] = field(default_factory=dict)
    attempt: int | None = None
    group: str | None = None
    steps: tuple[Mapping[str, Any], ...] = ()
    stepped_at: float | None = None
    decision: Mapping[str, Any] = field(default_factory=dict)
    ended: bool = False
    verdict: str | None = None
    last_event: Mapping[str, Any] = field(default_factory=dict)
    unreadable: str = ""

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def step(self) -> int:
        """The last step on record; 0 before the first."""
        step = self.steps[-1].get("step") if self.steps else 0
        return step if isinstance(step, int) else 0

    @property
    def loss(self) -> float | None:
        """The last step's language model loss."""
        return loss_of(self.steps[-1]) if self.steps else None

    @property
    def step_seconds(self) -> float | None:
        """A typical step: the median of the last ones, so that one with an evaluation does not count."""
        times = [decode_float(step.get("step_time_ms")) for step in self.steps]
        known = [time for time in times if time is not None]
        return median(known) / 1000 if known else None

    @property
    def eta_seconds(self) -> float | None:
        """The time that the steps left take, without evaluations, saves and restarts."""
        if self.total is None or self.step_seconds is None:
            return None
        return max(0, self.total - self.step) * self.step_seconds


def loss_of(step: Mapping[str, Any]) -> float | None:
    """Return the language model loss of a line of metrics.jsonl."""
    return decode_float((step.get("losses") or {}).get(LM_LOSS))


def read_facts(folder: RunFolder) -> Facts:
    """Return what ``folder`` says. Never raises for what lies in it."""
    spec, unreadable = _spec(folder.spec)
    events = newest_events(folder.events, _EVENTS)
    started, submitted = events.get("attempt_started", {}), events.get("submitted", {})
    decision, verdict = events.get("decision", {}), events.get("verdict", {})
    steps = last_records(folder.metrics, _STEPS, _STEPS_BYTES)
    attempts = [data.get("attempt") for data in (started, *steps[-1:])]
    numbers = [number for number in attempts if isinstance(number, int)]
    return Facts(
        path=folder.path, recipe=str(spec.get("recipe", "")), kind=str(spec.get("kind", "")),
        profile=str(at(spec, "profile", "name") or ""), created=str(spec.get("created", "")),
        host=str(at(spec, "provenance", "host") or ""), total=_total(spec, steps), submitted=submitted,
        attempt=max(numbers, default=None), group=str(spec.get("group") or "") or None, steps=tuple(steps),
        stepped_at=_modified(folder.metrics) if steps else None, decision=decision, ended=_ended(events),
        verdict=str(verdict["verdict"]) if verdict and str(verdict["time"]) >= str(started.get("time", "")) else None,
        last_event=(last_records(folder.events, 1, _FIRST_BLOCK) or [{}])[0], unreadable=unreadable,
    )  # fmt: skip


def _ended(events: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell from the newest events what ``decisions.Standing`` tells from all of them."""
    times = {name: str(event.get("time", "")) for name, event in events.items()}
    decided = times.get("decision", "")
    begun = max([since(events.get("submitted", {})), *(times.get(name, "") for name in BEGINNINGS)])
    taken_up = times.get("supervisor_started", "") > max(decided, times.get("supervisor_ended", ""))
    return events.get("decision", {}).get("decision") in FINAL and decided >= begun and not taken_up


def last_records(path: Path, count: int, most_bytes: int) -> list[dict[str, Any]]:
    """Return up to ``count`` last records within the last ``most_bytes`` of a file of JSON lines, oldest first."""
    data, whole = _end(path, most_bytes)
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    found = [_record(line) for line in (lines if whole else lines[1:])[-count:]]
    return [record for record in found if record is not None]


def newest_events(path: Path, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return name -> the newest event of that name. Reads backwards, and no further than it must."""
    size, whole = _FIRST_BLOCK, False
    found: dict[str, dict[str, Any]] = {}
    while not whole and len(found) < len(names):
        data, whole = _end(path, size)
        data = data[: data.rfind(b"\n") + 1]
        for name in names:
            if name not in found and (event := _newest(data, name)):
                found[name] = event
        size *= 8
    return found


def _newest(data: bytes, name: str) -> dict[str, Any] | None:
    """Return the last event of that name in ``data``. Only lines that hold the name are parsed."""
    mark, at = f'"event":"{name}"'.encode(), len(data)
    while (at := data.rfind(mark, 0, at)) >= 0:
        record = _record(data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)])
        if record is not None and record.get("event") == name:
            return record
    return None


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _end(path: Path, most_bytes: int) -> tuple[bytes, bool]:
    """Return the last bytes of a file, and whether they are all of it."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - most_bytes))
            return stream.read(), size <= most_bytes
    except OSError:
        return b"", True


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _spec(path: Path) -> tuple[Mapping[str, Any], str]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        return {}, f"its spec cannot be read: {error}"
    return (data, "") if isinstance(data, dict) else ({}, "its spec is no spec")


def _total(spec: Mapping[str, Any], steps: list[dict[str, Any]]) -> int | None:
    """Return the target step: what the loop itself says, else the spec."""
    said = steps[-1].get("of") if steps else at(spec, "fields", "schedule.train_iters", "value")
    return said if isinstance(said, int) else None
