"""What has happened to a profile's nodes: failures, gates, and who was let back. Who is avoided: excluded.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from seatrial.run import records

PREFLIGHT, GATE_PASSED, GATE_FAILED, RELEASED = "preflight", "gate_passed", "gate_failed", "released"
_NO_FAILURE = (GATE_PASSED, RELEASED)


@dataclass(frozen=True)
class NodeRecord:
    """A node's past. ``failures``: how often it failed, of what -> how often. ``last``: its last failure's time (ISO
    UTC), what, why and run. ``qualified``: when it last passed a gate, unless it has failed since."""

    node: str
    failures: int = 0
    of: Mapping[str, int] = field(default_factory=dict)
    last_time: Optional[str] = None
    last_what: Optional[str] = None
    last_reason: Optional[str] = None
    last_run: Optional[str] = None
    qualified: Optional[str] = None


def path_for(runs: Path, profile: str) -> Path:
    """Return the history of a profile's nodes: nodes of another cluster mean nothing to this one."""
    return runs / ".seatrial" / f"nodes-{profile}.jsonl"


def add(path: Path, node: str, what: str, reason: str, run: Optional[str], attempt: Optional[int] = None) -> None:
    """Put on record what happened to a node: PREFLIGHT, a failure class, a gate's outcome, RELEASED. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    records.append_line(path, {
        "schema": records.SCHEMA, "time": records.now(), "node": node, "run": run, "attempt": attempt, "what": what,
        "reason": reason,
    })  # fmt: skip


def summary(lines: Iterable[Any]) -> dict[str, NodeRecord]:
    """Return node -> its past, in the order of their last lines. Pure; what names no node is left out."""
    found: dict[str, NodeRecord] = {}
    for line in lines:
        if not isinstance(line, dict) or not isinstance(line.get("node"), str):
            continue
        node, what, time = line["node"], str(line.get("what")), str(line.get("time"))
        before = found.pop(node, NodeRecord(node))
        if what == GATE_PASSED:
            found[node] = replace(before, qualified=time)
        elif what in _NO_FAILURE:
            found[node] = before
        else:
            found[node] = replace(
                before, failures=before.failures + 1, of={**before.of, what: before.of.get(what, 0) + 1},
                last_time=time, last_what=what, last_reason=str(line.get("reason")), last_run=line.get("run"),
                qualified=None,
            )  # fmt: skip
    return found
