"""Ranks as processes of this machine: started, watched and ended by process id. None outlives the supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from seatrial.errors import SeatrialError
from seatrial.supervise.ask import run
from seatrial.supervise.environment import local_rank_environment

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02


class Ended(NamedTuple):
    """A rank's end: its return code (negative: ended by that signal), and whether it was we who killed it."""

    rank: int
    status: int
    killed: bool


class LocalRanks:
    """One process for each of ``logs``, each the leader of its own session and process group.

    ``environment`` wins over ``base``, the supervisor's own. Use it from one thread: the kernel ends the ranks when the
    thread that started them is gone.
    """

    def __init__(
        self, command: Sequence[str], logs: Sequence[Path], environment: Mapping[str, str], base: Mapping[str, str]
    ) -> None:
        self._command, self._logs = list(command), list(logs)
        self._environment, self._base = dict(environment), dict(base)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes = [platform.node()]

    def start(self, prepare: Callable[[Sequence[str]], None]) -> list[int]:
        """Start all ranks; return their process ids, by rank. ``prepare`` is told their nodes before.

        Raises:
            SeatrialError: a process cannot be started. Those that were are ended.
        """
        prepare(self.nodes)
        port, before_exec = free_port(), _die_with_parent()
        try:
            for rank, log in enumerate(self._logs):
                with log.open("ab") as stream:
                    self._running[rank] = subprocess.Popen(
                        self._command,
                        stdin=subprocess.DEVNULL,
                        stdout=stream,
                        stderr=subprocess.STDOUT,
                        env=local_rank_environment(
                            self._base, self._environment, rank=rank, world_size=len(self._logs), port=port
                        ),
                        start_new_session=True,
                        preexec_fn=before_exec,
                    )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise SeatrialError(
                f"cannot start a rank: {error}",
                value=self._command[0],
                fix="set profile.host_python to a Python of this host",
            ) from error
        return [self._running[rank].pid for rank in range(len(self._logs))]

    @property
    def running(self) -> list[int]:
        """The ranks that have not been seen to end."""
        return sorted(self._running)

    def poll(self) -> list[Ended]:
        """Return the ranks that have ended since the last look. What a rank leaves behind in its group is killed."""
        ended = []
        for rank, process in list(self._running.items()):
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            # Until it is reaped its number, and so its group's, is nobody else's.
            kill_group(process.pid)
            ended.append(Ended(rank, process.wait(), False))
            del self._running[rank]
        return ended

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every rank that runs (to the rank alone, not to its helpers)."""
        for process in self._running.values():
            # Not Popen.send_signal: it may reap, and then poll would not see the end.
            os.kill(process.pid, number)

    def beside(self, command: Sequence[str], log: str, seconds: float) -> None:
        """Run a command beside the ranks, for ``seconds`` at most; its output goes to ``log``-0.log beside theirs."""
        said = run(command, seconds=seconds).output or ""
        with contextlib.suppress(OSError), (self._logs[0].parent / f"{log}-0.log").open("ab") as stream:
            stream.write(said.encode())

    def end(self, grace_seconds: float = 0.0) -> list[Ended]:
        """Give what still runs ``grace_seconds`` to end by itself, then kill it with its group. Returns as poll."""
        ended = self.poll()
        deadline = time.monotonic() + grace_seconds
        while self._running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            ended += self.poll()
        for process in self._running.values():
            kill_group(process.pid)
        for rank, process in self._running.items():
            status = process.wait()
            ended.append(Ended(rank, status, status == -signal.SIGKILL))
        self._running = {}
        return ended


def free_port() -> int:
    """Return a TCP port of the loopback address that nothing is bound to.

    Not one that the kernel gives to outgoing connections: such a one may be taken before rank 0 listens.
    """
    for _ in range(200):
        port = random.randrange(20_000, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SeatrialError("no TCP port between 20000 and 32767 is free on 127.0.0.1")


def kill_group(pid: int) -> None:
    """Kill a process and what it has started, where it leads a group of its own. Never raises for one that is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _die_with_parent() -> Optional[Callable[[], None]]:
    """Return what a child does before exec: have the kernel kill it when the supervisor dies, however it dies."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL.value)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)  # one that is ignored would stay so in the rank

    return before_exec
