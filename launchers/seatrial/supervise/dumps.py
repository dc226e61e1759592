"""Has hung ranks leave their stacks in their logs, and reads them there, before the ranks are ended."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from seatrial.supervise.stacks import main_thread

_POLL_SECONDS = 0.1
_SETTLE_SECONDS = 0.2  # for a dump that has begun: the main thread stands last in it
_MOST_BYTES = 1 << 18  # of one rank's dump
_PY_SPY_SECONDS = 60.0
# Of the forked helpers of a rank, too: they have its words. $0: the plan that stands in them.
_PY_SPY = (
    'exec 2>&1; echo "node ${SLURMD_NODENAME:-$(hostname)}"; '
    'command -v py-spy || { echo "py-spy is not installed on this node"; exit 0; }; '
    'for pid in $(pgrep -f -- "rank.py $0"); do echo "== process $pid"; py-spy dump --nonblocking --pid $pid; done; '
    "exit 0"
)


class Ranks(Protocol):
    """What is needed of LocalRanks and SrunRanks."""

    @property
    def running(self) -> list[int]: ...

    def signal(self, number: signal.Signals) -> None: ...

    def beside(self, command: Sequence[str], log: str, seconds: float) -> None: ...


class Dumps:
    """The stacks of ``ranks``, whose logs are ``logs``. ``hurry``: there is no time for this any more.

    A wait ends when all have answered, ``quiet`` seconds after the last answer, or after ``most``.
    """

    def __init__(
        self, ranks: Ranks, logs: Sequence[Path], hurry: Callable[[], bool], quiet: float = 3.0, most: float = 20.0
    ) -> None:
        self._ranks, self._logs, self._hurry = ranks, logs, hurry
        self._quiet, self._most = quiet, most
        self._asked = ranks.running
        self._from = {rank: _size(logs[rank]) for rank in self._asked}

    def collect(self, py_spy_of: str = "") -> tuple[dict[int, list[str]], list[int]]:
        """Return the main thread's innermost frames by rank, and the ranks that left none until they were continued.

        A rank that is stopped answers as soon as it goes on, and trains on from there: so that comes last.
        ``py_spy_of``: the ranks' plan, where py-spy is wanted besides.
        """
        self._ranks.signal(signal.SIGUSR1)
        missing = self._wait(self._asked)
        if py_spy_of and not self._hurry():
            self._ranks.beside(["/bin/sh", "-c", _PY_SPY, re.escape(py_spy_of)], "py-spy", _PY_SPY_SECONDS)
        if missing and not self._hurry():
            self._ranks.signal(signal.SIGCONT)
            self._wait(missing)
        self._settle()
        found = {rank: self._frames(rank) for rank in self._asked}
        return {rank: frames for rank, frames in found.items() if frames}, missing

    def _wait(self, ranks: Collection[int]) -> list[int]:
        """Return which of ``ranks`` have not answered."""
        missing = sorted(ranks)
        began = last = time.monotonic()
        while missing and not self._hurry():
            left = [rank for rank in missing if not self._frames(rank)]
            now = time.monotonic()
            last = now if len(left) < len(missing) else last
            missing = left
            if now - last > self._quiet or now - began > self._most:
                break
            if missing:
                time.sleep(_POLL_SECONDS)
        return missing

    def _settle(self) -> None:
        """Wait until no log grows any more: on a loaded machine a dump is long in coming."""
        deadline, before = time.monotonic() + self._quiet, [-1]
        while (sizes := [_size(self._logs[rank]) for rank in self._asked]) != before:
            if time.monotonic() > deadline or self._hurry():
                return
            before = sizes
            time.sleep(_SETTLE_SECONDS)

    def _frames(self, rank: int) -> list[str]:
        try:
            with self._logs[rank].open("rb") as stream:
                stream.seek(self._from[rank])
                return main_thread(stream.read(_MOST_BYTES).decode("utf-8", "replace"))
        except OSError:
            return []


def as_record(
    stacks: Mapping[int, Sequence[str]], missing: Sequence[int], phase: str, silent: float, limit: float
) -> dict[str, object]:
    """Return a hang as it stands in an attempt's record; times in seconds."""
    return {
        "phase": phase, "silent_seconds": round(silent, 1), "limit_seconds": round(limit, 1),
        "stacks": {str(rank): list(frames) for rank, frames in sorted(stacks.items())},
        "without_stack": list(missing),
    }  # fmt: skip


def _size(path: Path) -> int:
    try:
        with path.open("rb") as stream:  # opened, as a shared file system tells a size late otherwise
            return stream.seek(0, os.SEEK_END)
    except OSError:
        return 0
