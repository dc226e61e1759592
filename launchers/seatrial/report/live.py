"""Follows a run folder while it is written, and shows one progress line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.live import Live

from seatrial.report.terminal import console
from seatrial.run.layout import RunFolder
from seatrial.run.records import Tail, decode_float

_POLL_SECONDS = 0.2


@dataclass
class Progress:
    """What the progress line says, built from records as they come."""

    total: int
    step: int = 0
    loss: float | None = None
    grad_norm: float | None = None
    step_times_ms: list[float] = field(default_factory=list)
    note: str = "starting"

    def add_step(self, record: dict[str, Any]) -> None:
        """Take one line of metrics.jsonl."""
        self.step, self.total, self.note = record["step"], record["of"], ""
        self.loss = decode_float(record["losses"].get("lm loss"))
        self.grad_norm = decode_float(record["grad_norm"])
        time_ms = decode_float(record["step_time_ms"])
        if time_ms is not None:
            self.step_times_ms = [*self.step_times_ms[-20:], time_ms]

    def add_event(self, event: dict[str, Any]) -> None:
        """Take one line of events.jsonl that changes what the line says."""
        if event["event"] == "ranks_started":
            self.note = "ranks are starting"
        elif event["event"] == "checkpoint_saved":
            self.note = f"checkpoint {event.get('step', '')} saved"
        elif event["event"] == "evaluation":
            self.note = f"{event.get('which', '')} loss known"
        elif event["event"] == "attempt_ended":
            self.note = "judging"

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


def follow(folder: RunFolder, total: int, alive: Callable[[], bool]) -> bool:
    """Show progress until the run has its verdict; return whether it got one.

    Ends without one when the job is gone (``alive()`` is false) and has written nothing more.
    """
    progress, out = Progress(total), console()
    metrics, events = Tail(folder.metrics), Tail(folder.events)
    with _line(out, progress) as show:
        while True:
            running = alive()  # asked before reading: what a dying job wrote last is still seen
            for record in metrics.read():
                progress.add_step(record)
                show()
            for event in events.read():
                progress.add_event(event)
                if event["event"] == "verdict":
                    return True
            show()
            if not running:
                return bool(folder.verdict.is_file())
            time.sleep(_POLL_SECONDS)


class _line:
    """A live line on a terminal; elsewhere a plain line every tenth step."""

    def __init__(self, out: Console, progress: Progress) -> None:
        self.out, self.progress, self.printed = out, progress, 0
        self.live = Live(console=out, refresh_per_second=5, transient=True) if out.is_terminal else None

    def __enter__(self) -> Callable[[], None]:
        if self.live:
            self.live.start()
        return self.show

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def show(self) -> None:
        step = self.progress.step
        if self.live:
            self.live.update(self.progress.line())
        elif step != self.printed and (step == 1 or step % 10 == 0 or step == self.progress.total):
            self.out.print(self.progress.line(), soft_wrap=True)
            self.printed = step
