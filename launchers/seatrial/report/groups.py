"""Groups of runs: how they stand in one line, and all of them followed at once."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from seatrial.report.decisions import Standing
from seatrial.report.live import Progress, news
from seatrial.report.status import Row
from seatrial.run.groups import Group
from seatrial.run.layout import RunFolder
from seatrial.run.records import Tail

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Total:
    """A group's runs in sum. ``states``: done, stopped, or the state of a job -> how many. ``steps`` of ``of`` steps;
    ``of`` None: a target is unknown. ``needs_action``: how many need a person."""

    runs: int
    states: Mapping[str, int]
    steps: int
    of: int | None
    needs_action: int

    def words(self) -> str:
        """Return them for people: ``2 runs: 1 done, 1 running; 60 of 80 steps``."""
        states = ", ".join(f"{count} {state}" for state, count in self.states.items())
        text = f"{self.runs} runs: {states}; {self.steps:,} of {'?' if self.of is None else f'{self.of:,}'} steps"
        return text + (f"; {self.needs_action} need a person" if self.needs_action else "")


def total(rows: Sequence[Row]) -> Total:
    """Return the sum of a group's rows."""
    targets = [row.total for row in rows]
    known = [target for target in targets if target is not None]
    return Total(
        len(rows), dict(Counter(map(_state, rows))), sum(row.step for row in rows),
        sum(known) if len(known) == len(targets) else None, sum(row.needs_action is not None for row in rows),
    )  # fmt: skip


def _state(row: Row) -> str:
    if row.ended:
        return "done" if row.decision == "done" else "stopped"
    return row.state.lower()


def group_words(group: Group, rows: Sequence[Row]) -> str:
    """Return the group's total line."""
    other = f"; other data: {group.other_data}" if group.other_data else ""
    return f"group {group.id}: {total(rows).words()}{other}"


def group_json(group: Group, rows: Sequence[Row]) -> dict[str, Any]:
    """Return a group and its sum as plain data."""
    found = total(rows)
    return group.to_json() | {
        "total": {
            "runs": found.runs, "states": dict(found.states), "steps": found.steps, "of": found.of,
            "needs_action": found.needs_action,
        }
    }  # fmt: skip


class Followed:
    """A run that is followed with others: what its line says, from its records as they come."""

    def __init__(self, label: str, folder: RunFolder, steps: int) -> None:
        self.label, self.folder = label, folder
        self.over = False
        self._job = ""
        self._progress, self._standing = Progress(steps), Standing()
        self._metrics, self._events = Tail(folder.metrics), Tail(folder.events)

    def read(self, job: str | None, plain: bool) -> list[str]:
        """Take what is new; return what deserves a line that stays: with ``plain`` the first, each tenth and the last
        step, too. ``job``: how its job stands, None where it is gone."""
        self._job = "its job is gone" if job is None else job
        told = []
        for record in self._metrics.read():
            if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                continue
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # no record of ours
                self._progress.add_step(record)
                told += [self.line()] if plain and self._due() else []
        for event in self._events.read():
            if isinstance(event, dict):
                self._progress.add_event(event)
                self._standing.add(event)
                told += [f"{self.label}: {words}"] if (words := news(event)) else []
        self.over = self._standing.ended or job is None
        self._job = "" if self._standing.ended else self._job
        return told

    def line(self) -> str:
        """Return how it stands."""
        return f"{self.label}: {self._progress.line()}" + (f"  [{self._job}]" if self._job else "")

    def _due(self) -> bool:
        step = self._progress.step
        return step == 1 or step % 10 == 0 or step == self._progress.total


def follow(runs: Sequence[Followed], look: Callable[[], Mapping[Path, str | None]], out: Console) -> None:
    """Show a line for each run until all are over: refreshed on a terminal; elsewhere one at every tenth step.

    ``look``: run folder -> how its job stands ("" where that needs no word), None where it is gone.
    """
    live = Live(console=out, refresh_per_second=5, transient=True) if out.is_terminal else None
    if live:
        live.start()
    try:
        while True:
            jobs = look()  # before reading: what a dying job wrote last is still seen
            for run in runs:
                for words in run.read(jobs.get(run.folder.path, ""), plain=live is None):
                    out.print(words, soft_wrap=True, markup=False)
            if live:
                lines = "\n".join(run.line() for run in runs)
                live.update(Text(lines, no_wrap=True, overflow="ellipsis"))
            if all(run.over for run in runs):
                return
            time.sleep(_POLL_SECONDS)
    finally:
        if live:
            live.stop()
