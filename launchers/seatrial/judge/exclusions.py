"""Nodes that runs of a profile avoid, as they stand on record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.judge.clock import of_record


@dataclass(frozen=True)
class Exclusion:
    """A node that is avoided until ``expires`` (seconds since 1970), and why."""

    node: str
    expires: float
    reason: str
    run: str


def path_for(runs: Path, profile: str) -> Path:
    """Return the record of a profile: nodes of another cluster mean nothing to this one."""
    return runs / ".seatrial" / f"excluded-{profile}.jsonl"


def active(lines: Iterable[Any], now: float) -> list[Exclusion]:
    """Return the exclusions that count at ``now``, oldest first; a node's newest line is the one that counts. Pure."""
    newest: dict[str, Exclusion] = {}
    for line in lines:
        expires = of_record(line.get("expires")) if isinstance(line, dict) else None
        if expires is None or not isinstance(line.get("node"), str):
            continue
        newest.pop(line["node"], None)
        newest[line["node"]] = Exclusion(line["node"], expires, str(line.get("reason")), str(line.get("run")))
    return [one for one in newest.values() if one.expires > now]
