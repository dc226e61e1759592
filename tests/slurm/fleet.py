"""Disturbed runs that sail together: they wait more than they compute, so several are out at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from tests.slurm import voyages
from tests.slurm.conftest import Factory

AT_A_TIME = 3


@dataclass(frozen=True)
class Sea:
    """Where a run sails: its cluster, a folder, and the undisturbed run to compare it with."""

    cluster: Cluster
    root: Path
    calm: RunFolder

    def embark(self, **options: Any) -> RunFolder:
        return voyages.embark(self.cluster, self.root, **options)

    def ended_well(self, folder: RunFolder, patience: float = voyages.PATIENCE) -> list[dict[str, Any]]:
        """Wait for the end; hold losses, time shares and what is left behind; return the attempts."""
        decision = voyages.arrive(folder, patience)
        assert decision["decision"] == "done", decision
        found = voyages.attempts(folder)
        adds_up(*found)
        voyages.same_losses(folder, self.calm)
        voyages.nothing_left(self.cluster, folder)
        return found

    def stopped(self, folder: RunFolder, name: str) -> list[dict[str, Any]]:
        """Wait for the end, which is a stop of class ``name``; return the attempts."""
        decision = voyages.arrive(folder)
        assert (decision["decision"], decision["class"]) == ("stop", name), decision
        voyages.nothing_left(self.cluster, folder)
        return voyages.attempts(folder)


@dataclass(frozen=True)
class Voyage:
    """A disturbed run. ``settings``: of a cluster of its own; None: the one that all share."""

    sail: Callable[[Sea], None]
    campaign: bool
    settings: dict[str, Any] | None


VOYAGES: dict[str, Voyage] = {}


def voyage(*, campaign: bool = False, **settings: Any) -> Callable[[Callable[[Sea], None]], Callable[[Sea], None]]:
    def enlist(sail: Callable[[Sea], None]) -> Callable[[Sea], None]:
        VOYAGES[sail.__name__] = Voyage(sail, campaign, settings or None)
        return sail

    return enlist


class Fleet:
    """Begins all voyages that this test run holds, and gives each one's end."""

    def __init__(
        self, names: list[str], cluster: Cluster, make: Factory, root: Callable[[str], Path], calm: RunFolder
    ) -> None:
        self._cluster, self._make, self._root = cluster, make, root
        self._lock = threading.Lock()
        self.calm = calm
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._ends: dict[str, Future[None]] = {name: self._pool.submit(self._sail, name) for name in names}

    def _sail(self, name: str) -> None:
        one = VOYAGES[name]
        with self._lock:
            cluster = self._cluster if one.settings is None else self._make(**one.settings)
            root = self._root(name)
        one.sail(Sea(cluster, root, self.calm))

    def end(self, name: str) -> None:
        self._ends[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def adds_up(*attempts: dict[str, Any]) -> None:
    """The time shares of an attempt are its wall time."""
    for record in attempts:
        wall = datetime.fromisoformat(record["ended"]) - datetime.fromisoformat(record["started"])
        assert sum(record["seconds"].values()) == pytest.approx(wall.total_seconds(), rel=0.01)
        assert record["seconds"]["startup"] > 1
