"""The job of a run that no queue knows: a supervisor on this machine, or in the foreground of an allocation."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.slurm.state_own import read_own
from seatrial.slurm.state_records import UNKNOWN, JobRef, JobState

_PROC = Path("/proc")
_SUPERVISORS = ("submitit.core._submit", "seatrial.supervise")


@dataclass(frozen=True)
class Processes:
    """This machine's processes of interest at one moment.

    ``locks``: place of a file (device and inode, as the kernel prints them) -> the process that holds its lock.
    ``commands``: process -> command line, of those that run submitit or a supervisor.
    """

    locks: Mapping[str, int]
    commands: Mapping[int, Sequence[str]]


def look() -> Processes:
    """Return what runs on this machine now. Locks are looked up, never tried: trying could turn a supervisor away."""
    try:
        lines = (_PROC / "locks").read_text().splitlines()
    except OSError:
        lines = []
    locks = {}
    for words in map(str.split, lines):
        if len(words) >= 6 and words[1] == "FLOCK" and words[4].isdigit() and int(words[4]) > 0:
            locks[words[5]] = int(words[4])
    return Processes(locks, dict(_commands()))


def local_state(folder: Path, submitted: Mapping[str, Any], host: str, processes: Processes) -> JobState:
    """Return the state of such a run. ``host``: where it was submitted. ``processes``: seen before this call.

    RUNNING where its supervisor is seen; else what its last decision says; FAILED where this is its host, so that the
    process would be seen, and no decision was left; UNKNOWN otherwise.
    """
    job = str(submitted.get("job_id") or "") or None
    # Read after the look at the processes: what a dying supervisor wrote last is still seen.
    own = read_own(JobRef(folder.name, None, None, None, folder))
    if supervisor(folder, processes) is not None:
        return JobState("RUNNING", False, "", "process", job, nodes=_this_host(), started=own.started)
    if own.state is not None:
        return JobState(
            own.state, True, own.words, "run folder", job, nodes=host, started=own.started, ended=own.ended,
            exit_code=own.exit_code,
        )  # fmt: skip
    if not submitted:
        return JobState(UNKNOWN, False, "it was not submitted, or is being submitted now", "nobody", None)
    host = str(submitted.get("host") or host)
    if host != _this_host():
        return JobState(UNKNOWN, False, f"it runs on host {host}, not here; {own.words}", "nobody", job, nodes=host)
    if any(_names(command, folder) for command in processes.commands.values()):
        return JobState("RUNNING", False, "starting", "process", job, nodes=host)
    reason = f"its supervisor is gone without a decision (killed, or the machine was restarted); {own.words}"
    return JobState("FAILED", True, reason, "process", job, nodes=host, started=own.started)


def supervisor(folder: Path, processes: Processes) -> int | None:
    """Return the process that holds the run folder, on this machine; None where there is none."""
    try:
        info = (folder / "supervisor.lock").stat()
    except OSError:
        return None
    place = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    if place in processes.locks:
        return processes.locks[place]
    # Some file systems show the kernel another device than us.
    return next((pid for pid, words in processes.commands.items() if _is_supervisor(words, folder)), None)


@contextlib.contextmanager
def held(pid: int, folder: Path) -> Iterator[int | None]:
    """Give a handle of the supervisor ``pid`` to send signals to, or None: it is gone, and its number perhaps reused.

    The handle stands for that one process: asked after it was taken, the process still holds the run folder.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield handle if supervisor(folder, look()) == pid else None
    finally:
        os.close(handle)


def send(folder: Path, *numbers: signal.Signals) -> bool:
    """Send signals, in this order, to the run's supervisor on this machine. False: there is none (any more)."""
    pid = supervisor(folder, look())
    if pid is None:
        return False
    with held(pid, folder) as handle:
        if handle is None:
            return False
        try:
            for number in numbers:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
    return True


def _is_supervisor(command: Sequence[str], folder: Path) -> bool:
    return _names(command, folder) and any(word in _SUPERVISORS for word in command)


def _names(command: Sequence[str], folder: Path) -> bool:
    return any(word in (str(folder), str(folder / "submitit")) for word in command)


def _commands() -> Iterator[tuple[int, list[str]]]:
    """Yield the Python command lines of ours: no editor or pager of a run's files is one."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if b"submitit." in line or b"seatrial.supervise" in line:
                    yield int(entry.name), line.decode("utf-8", "surrogateescape").split("\0")


def _this_host() -> str:
    return socket.gethostname()
