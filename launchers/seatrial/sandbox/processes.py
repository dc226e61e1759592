"""Daemons by process id: started in a session of their own, recorded, and never mistaken for another process.

A record holds the process id, its start time and the boot: a recycled id has another start time, so that nothing but
what a sandbox started is ever signalled.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.run.records import read_json, write_json


@dataclass(frozen=True)
class Process:
    """A process that was seen alive: ``start`` is in clock ticks since boot, field 22 of /proc/PID/stat."""

    pid: int
    start: int
    boot: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs. A zombie does not; one that is our child is reaped."""
        stat = read_stat(self.pid) if self.boot == _boot() else None
        if stat is None or stat.start != self.start:
            return False
        if stat.zombie:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
        return not stat.zombie

    def send(self, number: int) -> None:
        """Send a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)  # from here on, the id cannot pass to another process
            try:
                if self.alive:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def end(self, number: int = signal.SIGTERM, patience: float = 20) -> None:
        """Send a signal and wait; after ``patience`` seconds send SIGKILL."""
        self.send(number)
        if not wait(lambda: not self.alive, patience):
            self.send(signal.SIGKILL)
            wait(lambda: not self.alive, 10)


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says of a process."""

    parent: int
    start: int
    zombie: bool


def read_stat(pid: int) -> Stat | None:
    """Return what the kernel says of ``pid``; None where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name in parentheses may hold anything
    return Stat(int(fields[1]), int(fields[19]), fields[0] in "ZX")


def process(pid: int) -> Process | None:
    """Return ``pid`` as it runs now."""
    stat = read_stat(pid)
    return Process(pid, stat.start, _boot()) if stat and not stat.zombie else None


def wait(holds: Callable[[], object], seconds: float, step: float = 0.05) -> bool:
    """Poll ``holds()`` until it is true; False after ``seconds``."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= end:
            return False
        time.sleep(step)
    return True


def start(
    name: str, command: Sequence[str], pids: Path, log: Path, environment: Mapping[str, str], cwd: Path
) -> Process:
    """Start a daemon in the foreground of a new session, its output appended to ``log``, and record it in ``pids``."""
    with log.open("ab") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            cwd=cwd,
        )
    child.returncode = 0  # it outlives this object; Process.alive reaps it
    started = process(child.pid)
    if started is None:
        raise SeatrialError(f"{name} ended at once\n{last_lines(log)}", file=log)
    write_json(pids / f"{name}.json", {"pid": started.pid, "start": started.start, "boot": started.boot})
    return started


def recorded(pids: Path, name: str) -> Process | None:
    """Return the daemon ``name`` if it runs."""
    data = read_json(pids / f"{name}.json")
    found = Process(**data) if data else None
    return found if found and found.alive else None


def all_recorded(pids: Path) -> dict[str, Process]:
    """Return every daemon that runs, by name."""
    names = sorted(path.stem for path in pids.glob("*.json"))
    return {name: found for name in names if (found := recorded(pids, name))}


def end_all(processes: Iterable[Process], number: int = signal.SIGTERM, patience: float = 20) -> None:
    """End several at once."""
    processes = list(processes)
    for one in processes:
        one.send(number)
    deadline = time.monotonic() + patience
    for one in processes:
        one.end(number, max(0.1, deadline - time.monotonic()))


def with_descendants(roots: Iterable[Process]) -> list[Process]:
    """Return ``roots`` and all that descends from them, stopped first so that none escapes by forking."""
    found: dict[int, Process] = {}
    fresh = list(roots)
    while fresh:
        for one in fresh:
            one.send(signal.SIGSTOP)
            found[one.pid] = one
        fresh = [child for pid, stat in _living().items() if stat.parent in found and pid not in found
                 and (child := process(pid))]  # fmt: skip
    return list(found.values())


def holding(files: Collection[Path], program: Path) -> list[Process]:
    """Return the processes that run ``program`` and hold one of ``files`` open. All paths are resolved ones."""
    found = []
    for pid in _living():
        try:
            if Path(f"/proc/{pid}/exe").readlink() != program:
                continue
            links = {link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()}
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if not links.isdisjoint(files) and (one := process(pid)):
            found.append(one)
    return found


def last_lines(log: Path, count: int = 8) -> str:
    """Return the end of a log, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return f"(no {log})"
    return "\n".join(f"  | {line}" for line in lines[-count:])


def _living() -> dict[int, Stat]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid: stat for pid in pids if (stat := read_stat(pid)) and not stat.zombie}


@functools.cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
