"""All that a run folder says of its run, read once. What cannot be read is missing; nothing here raises for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from seatrial.judge.collect import read_steps
from seatrial.judge.history import AttemptRecord, read_events, read_history
from seatrial.judge.merge import Curve, merge_steps
from seatrial.judge.records import EvaluationRecord, StepRecord
from seatrial.judge.run_goodput import Goodput, run_goodput
from seatrial.report.facts import Facts, read_facts
from seatrial.report.secrets import secrets_of, without
from seatrial.run.fields import at, mapping, whole
from seatrial.run.layout import RunFolder
from seatrial.run.records import read_object

# What a record of an odd shape makes of code that reads it.
ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError, ZeroDivisionError)
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it.

    ``now``: seconds since 1970 where the run goes on, None where it is over. ``steps``: as they were printed, over all
    attempts; ``curve``: one a step. ``verdict``: verdict.json, empty where there is none. ``prefix``: of the ids on a
    page that tells of several runs.
    """

    folder: RunFolder
    now: float | None
    facts: Facts
    spec: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    history: Sequence[AttemptRecord]
    steps: Sequence[StepRecord]
    curve: Curve
    verdict: Mapping[str, Any]
    goodput: Goodput
    prefix: str = ""

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def rehearsal(self) -> bool:
        """Whether any record says that the ranks ran on a CPU."""
        lines = (event for event in self.events if event.get("event") == "evidence")
        return at(self.spec, "profile", "device") == "cpu" or any(
            one.get("rehearsal") is True for one in (self.spec, self.verdict, *lines)
        )

    @property
    def outdated(self) -> str:
        """Why the verdict on record counts no more; empty where it counts, or there is none."""
        if not self.verdict or (self.facts.ended and self.facts.verdict is not None):
            return ""
        said = f"The verdict on record ({self.verdict.get('verdict')}) counts no more: "
        return said + ("the last attempt began after it." if self.facts.ended else "the run has gone on since.")

    @property
    def gpus(self) -> int | None:
        """Ranks, one a GPU."""
        return whole(self.spec.get("world_size"))

    @property
    def sequence_length(self) -> int | None:
        return whole(self.value("seq_length"))

    @property
    def total(self) -> int | None:
        """The target step."""
        return self.facts.total

    def value(self, name: str) -> Any:
        """Return the value of a Megatron argument; None where it is not set, or not known."""
        for key, item in mapping(self.spec.get("fields")).items():
            if key.partition(".")[2] == name and isinstance(item, Mapping):
                return item.get("value")
        return None

    def evaluations(self) -> list[EvaluationRecord]:
        """Return the evaluations by step; of one that was made again the last one."""
        found: dict[tuple[int, str], EvaluationRecord] = {}
        for event in self.events:
            if event.get("event") == "evaluation":
                one = attempt_to(lambda event=event: EvaluationRecord.from_json(event))  # type: ignore[misc]
                if one is not None:
                    found[(one.iteration, one.which)] = one
        return sorted(found.values(), key=lambda one: (one.iteration, one.which != "validation"))


def read_run(
    folder: RunFolder, now: float | None, prefix: str = "", environment: Mapping[str, str] | None = None
) -> Run:
    """Read a run folder. ``now``: seconds since 1970 where the run goes on, None where it is over.

    Values of secrets that ``environment`` (by default this process's) knows are taken out of all that was read: a
    rank may have printed one.
    """
    spec = read_object(folder.spec) or {}
    hidden = secrets_of(mapping(spec.get("profile")), dict(os.environ) if environment is None else environment)
    events = [_without(event, hidden) for event in attempt_to(lambda: read_events(folder)) or []]
    history = [
        replace(one, data=_without(one.data, hidden))
        for one in attempt_to(lambda: read_history(folder, events, now)) or []
    ]
    steps = attempt_to(lambda: list(read_steps(folder.metrics))) or []
    if hidden:
        steps = [replace(one, losses=_without(one.losses, hidden)) for one in steps]
    facts = attempt_to(lambda: read_facts(folder)) or Facts(folder.path)
    return Run(
        folder=folder, now=now,
        facts=replace(facts, profile=_without(facts.profile, hidden), decision=_without(facts.decision, hidden)),
        spec=_without(spec, hidden), events=events, history=history, steps=steps,
        curve=attempt_to(lambda: merge_steps(steps)) or Curve(()),
        verdict=_without(read_object(folder.verdict) or {}, hidden),
        goodput=attempt_to(lambda: run_goodput(history, events, now)) or Goodput(), prefix=prefix,
    )  # fmt: skip


def _without(data: Any, hidden: Mapping[str, str]) -> Any:
    """Return plain data with the names of secrets where their values stood."""
    if not hidden:
        return data
    if isinstance(data, str):
        return without(data, hidden)
    if isinstance(data, Mapping):
        return {_without(key, hidden): _without(value, hidden) for key, value in data.items()}
    return [_without(value, hidden) for value in data] if isinstance(data, (list, tuple)) else data


def attempt_to(read: Callable[[], T]) -> T | None:
    """Return what ``read`` returns; None where the record is too odd for it, or not readable."""
    try:
        return read()
    except (*ODD, OSError):
        return None


def mappings(data: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; none where ``data`` is no list."""
    return [one for one in listed(data) if isinstance(one, Mapping)]


def listed(data: Any) -> list[Any]:
    """Return a list; an empty one where ``data`` is none."""
    return data if isinstance(data, list) else []


def real(value: Any) -> float | None:
    """Return a number, also of the text that records hold for NaN and infinity; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return attempt_to(lambda: float(value))


def clock(seconds: float | None) -> str:
    """Return a time (seconds since 1970) for people."""
    if seconds is None:
        return "unknown"
    moment = attempt_to(lambda: datetime.fromtimestamp(seconds, timezone.utc))
    return "unknown" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def node_spans(names: Iterable[Any]) -> str:
    """Return names of nodes as Slurm writes them: ``gb200-[001-004,007]``."""
    groups: dict[str, list[str]] = {}
    plain: list[str] = []
    for name in map(str, names):
        head = name.rstrip("0123456789")
        if head != name and head.isprintable():
            groups.setdefault(head, []).append(name[len(head) :])
        else:
            plain.append(name)
    for head, numbers in groups.items():
        words = _numbers(numbers)
        plain.append(f"{head}{words}" if len(numbers) == 1 else f"{head}[{words}]")
    return ", ".join(plain)


def _numbers(numbers: Sequence[str]) -> str:
    spans: list[tuple[str, str]] = []
    for number in sorted(set(numbers), key=lambda text: (len(text), text)):
        last = spans[-1][1] if spans else ""
        if len(number) <= 18 and len(last) == len(number) and int(number) == int(last) + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ",".join(a if a == b else f"{a}-{b}" for a, b in spans)
