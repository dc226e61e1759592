"""How a rank is asked to stop: the stop file, SIGTERM, and the loop's own exit signal. Standard library only."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.25


def note(text: str) -> None:
    """Print one line that the supervisor's and a person's eye can find."""
    print(f"[seatrial] {text}", file=sys.stdout, flush=True)


def map_sigterm(exit_signal: signal.Signals, seen: list[str]) -> None:
    """Turn SIGTERM into the loop's exit signal: save at the end of this step, then exit.

    Slurm sends SIGTERM to the ranks when a job is preempted. ``seen`` gets the signal's name. Before the loop has
    installed its own handler the exit signal's default action would kill the process, so until then it is kept by
    :func:`hold_exit_signal`.
    """

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(signal.Signals(number).name)
        note(f"{signal.Signals(number).name} received: asking the loop to save and exit ({exit_signal.name})")
        os.kill(os.getpid(), exit_signal)

    signal.signal(signal.SIGTERM, handler)


class HeldSignal:
    """Keeps an exit signal that comes before the loop listens, and raises it again once the loop does."""

    def __init__(self, exit_signal: signal.Signals, seen: list[str]) -> None:
        self.signal, self.seen, self.held = exit_signal, seen, False
        signal.signal(exit_signal, self._hold)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self.held = True
        name = signal.Signals(number).name
        if name not in self.seen:
            self.seen.append(name)
        note(f"{name} received before the first step: kept for the loop")

    def release(self) -> None:
        """Call when the loop's own handler stands."""
        if self.held:
            self.held = False
            os.kill(os.getpid(), self.signal)


def watch_stop_file(stop_file: Path, exit_signal: signal.Signals, poll_seconds: float = POLL_SECONDS) -> None:
    """Start a thread that raises ``exit_signal`` in this process once ``stop_file`` exists. For rank 0 only.

    The loop gathers the flag over all ranks, so one is enough and all stop at the same step.
    """

    def watch() -> None:
        while not stop_file.exists():
            time.sleep(poll_seconds)
        note(f"stop file {stop_file} found: asking the loop to save and exit ({exit_signal.name})")
        os.kill(os.getpid(), exit_signal)

    threading.Thread(target=watch, name="seatrial-stop-file", daemon=True).start()


def dump_stacks_on(number: signal.Signals) -> None:
    """On this signal print every thread's stack to stderr and go on: how a hang is looked into."""
    faulthandler.register(number, file=sys.stderr, all_threads=True, chain=False)
