"""Ranks as processes of this machine: started, watched and ended by process id."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

# Names that an outer job or launcher may have left behind; a rank must not believe them.
_STALE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
_STALE_PREFIXES = ("SLURM_", "SUBMITIT_", "TORCHELASTIC_", "PMI_", "PMIX_", "OMPI_")
_PR_SET_PDEATHSIG = 1


class LocalRanks:
    """``world_size`` processes, each the leader of its own process group, each with its own log."""

    def __init__(
        self, command: Sequence[str], logs: Sequence[Path], environment: Mapping[str, str], base: Mapping[str, str]
    ) -> None:
        """Start one process for each of ``logs``; ``environment`` wins over ``base``, the supervisor's own."""
        self._processes: list[subprocess.Popen[bytes]] = []
        clean = {k: v for k, v in base.items() if k not in _STALE and not k.startswith(_STALE_PREFIXES)}
        port = str(free_port())
        try:
            for rank, log in enumerate(logs):
                place = {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(logs)),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(len(logs)),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                    "PYTHONUNBUFFERED": "1",
                }
                self._processes.append(_start(command, log, {**clean, **environment, **place}))
        except BaseException:
            self.end()
            raise

    def codes(self) -> list[Optional[int]]:
        """Return each rank's exit code: None while it runs, ``-N`` where signal N ended it."""
        return [process.poll() for process in self._processes]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def end(self, grace_seconds: float = 0.0) -> list[int]:
        """End what still runs: wait ``grace_seconds`` for it to end by itself, then kill. Return all codes.

        Each rank's whole process group is killed, also where the rank itself has ended: its helpers go with it.
        """
        deadline = time.monotonic() + grace_seconds
        while None in self.codes() and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in self._processes:
            _kill_group(process.pid)
        return [process.wait() for process in self._processes]


def free_port() -> int:
    """Return a TCP port of the loopback address that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as stream:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )


def _die_with_parent() -> None:
    """In the child: be killed when the supervisor dies, however it dies. Its signals start out as default."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # the group is gone
