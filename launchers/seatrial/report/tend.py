"""What `seatrial tend` says: a line for each run that needed or got something, and how many there were. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

_DONE = {"submit": "submitted", "start": "started", "release": "released", "requeue": "requeued"}
_WOULD = {"submit": "submit", "start": "start here", "release": "release", "requeue": "requeue"}
_LEFT = {
    "person": "for a person", "unknown": "of which nobody can say how they stand",
    "wait": "to look at again in a minute", "nothing": "with nothing to do",
}  # fmt: skip


class Outcome(Protocol):
    """What came of a run (slurm.tend.Outcome is one)."""

    @property
    def run(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def words(self) -> str: ...
    @property
    def done(self) -> bool: ...
    @property
    def failed(self) -> bool: ...
    @property
    def needs_person(self) -> bool: ...


def lines(outcomes: Sequence[Outcome], *, dry_run: bool = False, everything: bool = False) -> Iterator[str]:
    """Return what is printed. ``everything``: also the runs with nothing to do, and those to look at again."""
    unknown: dict[str, list[str]] = {}
    for one in outcomes:
        if one.action == "unknown" and not everything:
            unknown.setdefault(one.words, []).append(one.run)
        elif everything or _mark(one) in "!+":
            yield f"{_mark(one)} {one.run}: {_words(one, dry_run)}"
    for words, runs in unknown.items():
        who = runs[0] if len(runs) == 1 else f"{len(runs)} runs, first {runs[0]}"
        yield f"? {who}: {words}"
    yield summary(outcomes, dry_run)


def summary(outcomes: Sequence[Outcome], dry_run: bool = False) -> str:
    """Return how many runs there were, and what came of them: ``3 runs: 1 submitted, 2 with nothing to do``."""
    counted = counts(outcomes)
    names = {"failed": "failed", **(_WOULD if dry_run else _DONE), **_LEFT}
    parts = [f"{counted[name]} {'to ' if dry_run and name in _WOULD else ''}{words}"
             for name, words in names.items() if counted.get(name)]  # fmt: skip
    heads = f"{len(outcomes)} run{'' if len(outcomes) == 1 else 's'}"
    return f"{heads}: {', '.join(parts)}" if parts else heads


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how often what came of a run: an action, or "failed"."""
    return dict(Counter("failed" if one.failed else one.action for one in outcomes))


def _mark(one: Outcome) -> str:
    if one.needs_person:
        return "!"
    return "+" if one.action in _DONE else "?" if one.action == "unknown" else "-"


def _words(one: Outcome, dry_run: bool) -> str:
    if one.failed:
        return f"could not {_WOULD.get(one.action, 'be looked at')}: {one.words}"
    return f"would {_WOULD[one.action]}: {one.words}" if dry_run and one.action in _WOULD else one.words
