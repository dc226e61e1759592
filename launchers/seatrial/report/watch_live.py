"""Watching a run: read what is new, ask for its job's state in the background, show it, listen for ``q``."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from enum import Enum

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from seatrial.report.status import Job
from seatrial.report.watch import View, event_words, job_words, lines, step_words
from seatrial.run.layout import RunFolder
from seatrial.run.records import Tail

_POLL_SECONDS = 0.2
_ASK_SECONDS = 10.0
_EVERY_STEPS = 10  # a line each, where the output is no terminal


class End(Enum):
    """Why watching ended: the run is over, or the person left (by ``q``, by Ctrl-C) and it goes on."""

    OVER = "over"
    LEFT = "left"
    INTERRUPTED = "interrupted"


def watch(folder: RunFolder, total: int | None, ask: Callable[[], Job], out: Console) -> End:
    """Show the run until it is over or the person leaves. Changes nothing about the run.

    ``ask`` gives the state of its job; it may take long, and what fails in it shows as a state that nobody knows.
    """
    view = View(folder.path.name, total)
    metrics, events = Tail(folder.metrics), Tail(folder.events)
    try:
        with _keys() as left, _screen(out) as screen:
            asker = _Asker(ask)
            while True:
                job = asker.latest  # taken before reading: what a dying job wrote last is still seen
                for record in events.read():
                    view.add_event(record)
                    screen.event(view, record)
                for record in metrics.read():
                    view.add_step(record)
                    screen.step(view)
                screen.show(view, job)
                if view.ended or (job is not None and job.final):
                    return End.OVER
                if left(_POLL_SECONDS):
                    return End.LEFT
    except KeyboardInterrupt:
        return End.INTERRUPTED


class _Asker:
    """Asks again and again in a thread, so that a slow Slurm keeps neither the view nor ``q`` waiting."""

    def __init__(self, ask: Callable[[], Job]) -> None:
        self.latest: Job | None = None
        self._ask = ask
        threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        while True:
            self.latest = self._ask()
            time.sleep(_ASK_SECONDS)


class _Lines:
    """Output that is no terminal: one line for what happens, one for every tenth step."""

    def __init__(self, out: Console) -> None:
        self._out, self._job = out, ""

    def event(self, view: View, event: dict[str, object]) -> None:
        if words := event_words(event):
            self._print(f"{str(event.get('time'))[11:19]} {words}")

    def step(self, view: View) -> None:
        if view.step == 1 or view.step % _EVERY_STEPS == 0 or view.step == view.total:
            self._print(step_words(view))

    def show(self, view: View, job: Job | None) -> None:
        if job is not None and self._job != (words := job_words(job)):
            self._job = words
            self._print(words + (f"  ! {job.needs_action}" if job.needs_action else ""))

    def _print(self, text: str) -> None:
        self._out.print(text, soft_wrap=True, markup=False)
        self._out.file.flush()


class _Full:
    """A terminal: the whole view, drawn again when it is due."""

    def __init__(self, out: Console, live: Live) -> None:
        self._out, self._live = out, live
        self._blocks = "utf" in out.encoding.lower()

    def event(self, view: View, event: dict[str, object]) -> None:
        pass

    def step(self, view: View) -> None:
        pass

    def show(self, view: View, job: Job | None) -> None:
        shown = lines(view, job, self._out.width - 1, blocks=self._blocks)
        self._live.update(Group(*(Text(line, no_wrap=True) for line in shown)))


@contextlib.contextmanager
def _screen(out: Console) -> Iterator[_Lines | _Full]:
    if not out.is_terminal:
        yield _Lines(out)
        return
    with Live(console=out, refresh_per_second=5, vertical_overflow="crop") as live:
        yield _Full(out, live)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Give a wait of so many seconds that tells whether ``q`` was typed. The terminal is as before afterwards."""

    def only_wait(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    try:
        handle = sys.stdin.fileno()
        # In the background the terminal is not ours to read or set.
        ours = sys.stdin.isatty() and os.tcgetpgrp(handle) == os.getpgrp()
    except (OSError, ValueError):
        ours = False
    if not ours:
        yield only_wait
        return
    before = termios.tcgetattr(handle)
    tty.setcbreak(handle)
    try:
        yield lambda seconds: bool(select.select([handle], [], [], seconds)[0]) and _typed_q(handle)
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _typed_q(handle: int) -> bool:
    typed = os.read(handle, 1024)
    if not typed:
        raise KeyboardInterrupt  # the terminal is gone
    return b"q" in typed or b"Q" in typed
