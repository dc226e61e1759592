"""Nodes that runs of a profile avoid: on record with a reason, never many, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from seatrial.judge.exclusions import active, path_for
from seatrial.run import records
from seatrial.supervise.ask import ask

_DAY = 86400.0


def cap(most: int, share: float, nodes: Optional[int]) -> int:
    """Return how many nodes may be excluded: ``most``, and where the partition's size is known no more than ``share``
    of it (at least one)."""
    return most if nodes is None else max(min(most, 1), min(most, int(share * nodes)))


class Excluded:
    """The list of one profile. ``recovery``: the profile's settings."""

    def __init__(self, profile: Mapping[str, Any], run: str) -> None:
        self._path = path_for(Path(profile["paths"]["runs"]), str(profile["name"]))
        self._recovery = profile.get("recovery") or {}
        self._partition = profile.get("partition")
        self._run = run

    def nodes(self) -> list[str]:
        """Return the nodes to avoid now: never more than ``most``, so the oldest gives way to a new one."""
        found = self.listed()
        return found[-self.most :] if found and self.most else []

    def listed(self) -> list[str]:
        """Return all that are on record and have not expired, oldest first; none where it cannot be read."""
        try:
            return [one.node for one in active(records.read_lines(self._path), time.time())]
        except OSError:  # somebody else's list, or a shared file system's bad moment: nothing to end a run for
            return []

    @cached_property
    def most(self) -> int:
        """How many may be excluded at once. Asks Slurm, once, how many nodes there are."""
        words = ["sinfo", "--noheader", "--format=%D", *([f"--partition={self._partition}"] if self._partition else [])]
        said = (ask(words, seconds=10) or "").split()
        count = sum(int(word) for word in said if word.isdecimal()) or None
        return cap(
            int(self._recovery.get("excluded_nodes", 4)), float(self._recovery.get("excluded_share", 0.1)), count
        )

    def add(self, nodes: Sequence[str], reason: str) -> None:
        """Put nodes on record. Raises OSError."""
        self._write(nodes, reason, time.time() + float(self._recovery.get("exclusion_days", 7)) * _DAY)

    def release(self, nodes: Sequence[str]) -> None:
        """End exclusions now. Raises OSError."""
        self._write(nodes, "released", time.time())

    def _write(self, nodes: Sequence[str], reason: str, expires: float) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for node in nodes:
            records.append_line(self._path, {
                "schema": records.SCHEMA, "time": records.now(), "node": node, "run": self._run, "reason": reason,
                "expires": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires)),
            })  # fmt: skip
