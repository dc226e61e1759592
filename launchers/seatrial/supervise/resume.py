"""Which checkpoint an attempt starts from: decided when it starts, never at submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from seatrial.errors import SeatrialError
from seatrial.run import checkpoint
from seatrial.run.layout import RunFolder


@dataclass(frozen=True)
class Start:
    """``step``: the checkpoint to load, None to begin at step 1. ``why``: for the record. ``passed_over``: and why."""

    step: Optional[int]
    why: str
    passed_over: tuple[str, ...] = ()

    @property
    def first_step(self) -> int:
        """The step that the loop must run first."""
        return (self.step or 0) + 1


def choose_start(folder: RunFolder) -> Start:
    """Return where the next attempt starts: at the newest whole checkpoint of the attempts before it.

    Raises:
        SeatrialError: there are checkpoints and none is whole; beginning again would write over them.
    """
    if not folder.attempts():
        return Start(None, "first")
    passed_over: list[str] = []
    for path in reversed(checkpoint.list_checkpoints(folder.checkpoints)):
        state = checkpoint.check(path)
        if state.whole:
            return Start(state.step, "resumed", tuple(passed_over))
        passed_over.append(f"{path.name}: {state.reason}")
    if passed_over:
        raise SeatrialError(
            "steps were trained, but no checkpoint is whole",
            file=folder.checkpoints,
            value="; ".join(passed_over[:3]),
            fix="restore one, or move them all away to begin at step 1",
        )
    return Start(None, "nothing was saved before")
