"""Which checkpoint an attempt starts from: decided when it starts, never at submission."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run import checkpoint, retention
from seatrial.run.checkpoint import CheckpointState
from seatrial.run.layout import RunFolder
from seatrial.supervise.history import History


@dataclass(frozen=True)
class Start:
    """``step``: the checkpoint to load, None to begin at step 1. ``why``: it and no other. ``passed_over``: which, and
    why not. ``evaluate_only``: all steps are done, only the final evaluation is made up. ``root``: the folder of
    checkpoints that it lies in, where that is not the one that is written to."""

    step: Optional[int]
    why: str
    passed_over: tuple[str, ...] = ()
    evaluate_only: bool = False
    root: Optional[Path] = None

    @property
    def first_step(self) -> int:
        """The step that the loop must run first."""
        return (self.step or 0) + 1


class NothingWhole(SeatrialError):
    """Steps were trained and saved, and no checkpoint can be trusted: beginning again would write over them."""


def choose(
    states: Sequence[CheckpointState], tracked: Optional[int], saved: Collection[int], from_step: Optional[int] = None
) -> Start:
    """Return where to start. Pure.

    ``states``: of the checkpoint folders, in any order. ``tracked``: what Megatron's tracker file names. ``saved``:
    steps whose save an attempt has seen finished. ``from_step``: what a person asked for; 0 begins at step 1.
    Raises NothingWhole; SeatrialError where ``from_step`` names no whole one.
    """
    ordered = sorted((state for state in states if state.step is not None), key=lambda state: -(state.step or 0))
    whole = [state.step for state in ordered if state.whole]
    if from_step and from_step not in whole:
        found = next((state.reason for state in ordered if state.step == from_step), "there is none")
        raise SeatrialError(
            f"checkpoint {from_step} cannot be loaded: {found}", key="--from-step", value=from_step,
            fix=f"one of {', '.join(map(str, whole)) or 'none: nothing is whole'}",
        )  # fmt: skip
    chosen = (from_step or None) if from_step is not None else next(iter(whole), None)
    passed_over = [
        f"iter_{state.step:07d}: {'a person asked for an earlier one' if state.whole else state.reason}"
        for state in ordered if (state.step or 0) > (chosen or 0)
    ]  # fmt: skip
    if tracked is not None and tracked != chosen and (chosen or passed_over):
        there = any(state.step == tracked for state in ordered)
        passed_over.append(f"the tracker file names {tracked}" + ("" if there else ", which is not there"))
    if chosen is not None:
        why = "a person asked for it" if from_step else "the newest whole one"
        return Start(chosen, why, tuple(passed_over))
    if from_step == 0:
        return Start(None, "a person asked to begin again", tuple(passed_over))
    if saved:
        raise NothingWhole(
            f"steps were trained and saved up to {max(saved)}, but no checkpoint is whole",
            value="; ".join(passed_over[:3]) or "there is none",
            fix="restore one, or begin again: seatrial requeue RUN --from-step 0",
        )
    return Start(None, "no save was ever finished" if passed_over else "nothing was saved before", tuple(passed_over))


def choose_start(folder: RunFolder, history: History, target: int, evaluations: Collection[str] = ()) -> Start:
    """Return where the next attempt starts, and move what it passes over out of its way.

    Raises SeatrialError as ``choose`` does, and where a checkpoint cannot be moved.
    """
    if not folder.attempts():
        return Start(None, "the first attempt")
    paths = checkpoint.list_checkpoints(folder.checkpoints)
    states = [checkpoint.check(path) for path in paths]
    asked = history.request.from_step if history.request.open else None
    start = choose(states, checkpoint.tracked_step(folder.checkpoints), history.saved, asked)
    number = len(folder.attempts())
    for path, state in zip(paths, states):
        # Left where it is, the next attempt could take it for this one's, or Megatron refuse to write there.
        if (state.step or 0) > (start.step or 0):
            _move(path, number)
    if start.step is not None and start.step >= target and set(evaluations) - _seen(history, target):
        return Start(start.step, start.why, start.passed_over, evaluate_only=True)
    return start


def give_up(folder: RunFolder, record: Mapping[str, Any]) -> None:
    """Set the checkpoint aside that the attempt with this record could not load. Raises OSError."""
    step = record.get("resume_step")
    path = checkpoint.checkpoint_folder(folder.checkpoints, step) if isinstance(step, int) else None
    if path is not None and path.is_dir():
        retention.set_aside(path, int(record["attempt"]) + 1)


def discard_unfinished(folder: RunFolder) -> None:
    """Free what checkpoints that are not whole take. Raises OSError."""
    for path in checkpoint.list_checkpoints(folder.checkpoints):
        if not checkpoint.check(path).whole:
            retention.discard(path)


def _seen(history: History, step: int) -> set[str]:
    return {which for at, which in history.evaluations if at == step}


def _move(path: Path, attempt: int) -> None:
    try:
        retention.set_aside(path, attempt)
    except OSError as error:
        raise SeatrialError(f"cannot move a checkpoint aside: {error.strerror}", file=path) from error
