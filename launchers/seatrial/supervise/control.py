"""What the outside asks of a running supervisor: signals become flags, and the watch loop acts on them."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Optional

_TOGETHER_SECONDS = 0.1


class Control:
    """``stop``: the signal that first asked for a save and an end, or None. ``end_at_once``: do not wait for a save.

    SIGUSR2, SIGTERM and SIGINT ask; a second SIGTERM or SIGINT ends at once. SIGUSR2 never does: Slurm sends it ahead
    of the time limit, and SIGTERM after it must not cut the save short. Nor does a second SIGTERM that comes with the
    first, as Slurm may send it. A SIGINT that is ignored at the start stays so. ``terminated_at``: time.monotonic() of
    the first SIGTERM. ``taken_away``: another supervisor has this run, so that this one must end and decide nothing.
    """

    def __init__(self) -> None:
        self.stop: Optional[str] = None
        self.end_at_once = False
        self.terminated_at: Optional[float] = None
        self.taken_away = False

    def install(self) -> None:
        """Replace the handlers that are there; submitit's would swallow SIGTERM and requeue on SIGUSR2.

        Outside the main thread Python allows no handlers, and nothing is done.
        """
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGUSR2, signal.SIGTERM):
                signal.signal(number, self._handle)
            # Ignored by whoever started us: the terminal's Ctrl-C is meant for them, and the run goes on.
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._handle)
            # Where whoever started us ignores it, the kernel reaps the ranks and their exit codes are lost.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def go_on(self) -> None:
        """Take SIGUSR2 as obeyed: what a drill sends itself ends an attempt and not the run."""
        if self.stop == "SIGUSR2":
            self.stop = None

    def _handle(self, number: int, _frame: Optional[FrameType]) -> None:
        if number != signal.SIGUSR2:
            now = time.monotonic()
            self.end_at_once = self.terminated_at is not None and now - self.terminated_at > _TOGETHER_SECONDS
            self.terminated_at = self.terminated_at or now
        if self.stop is None or self.stop == "SIGUSR2":
            self.stop = signal.Signals(number).name
