"""Follows a run folder while it is written, and shows one progress line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.live import Live

from seatrial.report.decisions import Standing, action_words
from seatrial.report.facts import loss_of
from seatrial.report.terminal import console
from seatrial.report.watch import event_words
from seatrial.run.layout import RunFolder
from seatrial.run.records import Tail, decode_float

_POLL_SECONDS = 0.2


@dataclass
class Progress:
    """What the progress line says, built from records as they come."""

    total: int
    attempt: int = 0
    step: int = 0
    loss: float | None = None
    grad_norm: float | None = None
    step_times_ms: list[float] = field(default_factory=list)
    note: str = "starting"

    def add_step(self, record: dict[str, Any]) -> None:
        """Take one line of metrics.jsonl."""
        self.step, self.total, self.note = record["step"], record["of"], ""
        self.attempt, self.loss = int(record.get("attempt") or 0), loss_of(record)
        self.grad_norm = decode_float(record.get("grad_norm"))
        time_ms = decode_float(record.get("step_time_ms"))
        if time_ms is not None:
            self.step_times_ms = [*self.step_times_ms[-20:], time_ms]

    def add_event(self, event: dict[str, Any]) -> None:
        """Take one line of events.jsonl that changes what the line says."""
        name = event.get("event")
        if name == "ranks_started":
            self.note = "ranks are starting"
        elif name == "checkpoint_saved":
            self.note = f"checkpoint {event.get('step', '')} saved"
        elif name == "evaluation":
            self.note = f"{event.get('which', '')} loss known"
        elif name == "resume_check_started":
            self.note = f"resume check: again from checkpoint {event.get('step', '')}"
        elif name in ("attempt_ended", "resume_check_ended"):
            self.note = "judging"
        elif name == "decision":
            self.note = action_words(event)

    def line(self) -> str:
        """Return the line: step, loss, grad norm, step time, ETA."""
        parts = [f"step {self.step}/{self.total}"]
        if self.step:
            parts.append(f"loss {_number(self.loss)}")
            parts.append(f"grad norm {_number(self.grad_norm)}")
        if self.step_times_ms:
            typical = median(self.step_times_ms)
            parts.append(f"{typical:.0f} ms/step")
            left = (self.total - self.step) * typical / 1000
            parts.append(f"ETA {int(left) // 3600}:{int(left) // 60 % 60:02}:{int(left) % 60:02}")
        return "  ".join(parts) + (f"  ({self.note})" if self.note else "")


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.4f}"


def news(event: Mapping[str, Any]) -> str:
    """Return what deserves a line of its own: how attempts end, what is decided, where the next one starts."""
    name = event.get("event")
    told = name in ("attempt_ended", "decision") or (name == "attempt_started" and event.get("attempt"))
    return event_words(event) if told else ""


def follow(folder: RunFolder, total: int, alive: Callable[[], bool]) -> bool:
    """Show progress, over all attempts and jobs, until the run's supervisor has come to a final decision.

    Return whether the decision came with a verdict. Ends without a decision when the job is gone (``alive()`` is false)
    and has written nothing more.
    """
    progress, standing, out = Progress(total), Standing(), console()
    metrics, events = Tail(folder.metrics), Tail(folder.events)
    with _Line(out, progress) as line:
        while True:
            running = alive()  # asked before reading: what a dying job wrote last is still seen
            for record in metrics.read():
                progress.add_step(record)
                line.show()
            for event in events.read():
                progress.add_event(event)
                standing.add(event)
                if words := news(event):
                    line.say(words)
            line.show()
            if standing.ended or not running:
                return standing.ended and folder.verdict.is_file()
            time.sleep(_POLL_SECONDS)


class _Line:
    """A live line on a terminal; elsewhere a plain line every tenth step."""

    def __init__(self, out: Console, progress: Progress) -> None:
        self.out, self.progress = out, progress
        self.printed = (0, 0)  # an attempt that resumed may do the step again
        self.live = Live(console=out, refresh_per_second=5, transient=True) if out.is_terminal else None

    def __enter__(self) -> _Line:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def say(self, words: str) -> None:
        """Print a line that stays."""
        self.out.print(words, soft_wrap=True, markup=False)

    def show(self) -> None:
        """Show the progress as it is now."""
        step, place = self.progress.step, (self.progress.attempt, self.progress.step)
        if self.live:
            self.live.update(self.progress.line())
        elif step and place != self.printed and (step == 1 or step % 10 == 0 or step == self.progress.total):
            self.out.print(self.progress.line(), soft_wrap=True)
            self.printed = place
