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
STACKS_SIGNAL = signal.SIGUSR1


def note(text: str) -> None:
    """Print one line that the supervisor's and a person's eye can find."""
    print(f"[seatrial] {text}", file=sys.stdout, flush=True)


def map_sigterm(exit_signal: signal.Signals, seen: list[str]) -> None:
    """Turn SIGTERM into the loop's exit signal: save at the end of this step, then exit.

    Slurm sends SIGTERM to the ranks when a job is preempted. ``seen`` gets the signal's name. Until the loop
    has its own handler, :class:`HeldSignal` keeps the exit signal, whose default action is to kill.
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


def shield_forked_helpers(exit_signal: signal.Signals) -> None:
    """Let every process that this one forks block the signals that ask a rank to stop.

    Slurm signals all processes of a step. A data loader worker that died of it would take the rank down before its
    save. Blocked rather than ignored, because the workers set a handler of their own. They end by SIGKILL instead
    (:func:`seatrial.train.exits.end_helpers`). Helpers that are spawned, not forked, are shielded in ``rank.py``.
    """
    signals = {signal.SIGTERM, exit_signal, STACKS_SIGNAL}
    os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signals))


def dump_stacks() -> None:
    """On SIGUSR1 print every thread's stack to stderr and go on: how a hang is looked into."""
    faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True, chain=False)
