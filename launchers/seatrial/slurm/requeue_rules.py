"""Whether, and how, a person may bring a run back: decided before anything is written."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.run import checkpoint
from seatrial.run.layout import RunFolder
from seatrial.slurm.state_records import UNKNOWN, WAITING, JobState
from seatrial.supervise import classes
from seatrial.supervise.history import History
from seatrial.supervise.resume import choose

# What a person can know better than the logs. Other classes would change nothing about the next attempt.
FORCED = (
    classes.NODE_FAILURE, classes.GPU_FAULT, classes.NETWORK, classes.HANG, classes.OOM_GPU, classes.OOM_HOST,
    classes.DISK_FULL, classes.CHECKPOINT_BAD, classes.UNKNOWN,
)  # fmt: skip
_ENDING = ("COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED")
_FRESH_SECONDS = 120.0  # a job may be submitted and not listed yet


_HELD = re.compile(r"held|hold", re.IGNORECASE)


@dataclass(frozen=True)
class Wish:
    """What a person asked for. ``from_step`` 0 begins at step 1; None: the newest whole checkpoint. ``by``: who."""

    by: str
    from_step: int | None = None
    exclude: tuple[str, ...] = ()
    profile: str | None = None
    force_class: str | None = None


class Way(Enum):
    """What has to be done: submit a new job, release the one that is held, or leave the one that waits."""

    SUBMIT = "submit"
    RELEASE = "release"
    LEAVE = "leave"


def check_class(wish: Wish) -> None:
    """Raises SeatrialError where the forced class is none, is none for a person, or contradicts the rest."""
    named = wish.force_class
    if named is None:
        return
    if named not in FORCED:
        what = "not a class that a person can give" if named in classes.MEANINGS else "unknown class"
        raise SeatrialError(
            f"{what}: {named!r}", key="--force-class", value=named, rule=f"one of {', '.join(FORCED)}",
            fix=did_you_mean(named, FORCED),
        )  # fmt: skip
    if named == classes.CHECKPOINT_BAD and wish.from_step is not None:
        raise SeatrialError(
            "--from-step says already which checkpoint is taken", key="--force-class", value=named,
            fix="leave one of the two out",
        )  # fmt: skip


def way_back(state: JobState, wish: Wish, kind: str, on_slurm: bool, age_seconds: float | None) -> Way:
    """Return what has to be done for a run whose job is in ``state``. Pure.

    ``age_seconds``: since its last submission. Raises SeatrialError where nothing may be.
    """
    if kind == "gate":
        raise SeatrialError("a gate is not repeated: it shows what one undisturbed start does", fix="seatrial gate …")
    if wish.exclude and not on_slurm:
        raise SeatrialError("a run on this machine has no other node", key="--exclude", value=",".join(wish.exclude))
    if state.final:
        return Way.SUBMIT
    if state.state == UNKNOWN:
        # Whether any job of the run is left is asked by its name, too, before one is submitted.
        if on_slurm and not state.notes and (age_seconds is None or age_seconds > _FRESH_SECONDS):
            return Way.SUBMIT
        raise SeatrialError(
            f"nobody can say whether its job still runs: {state.reason}", rule="a failed question is not a dead job",
            fix="again when it can be said: seatrial status RUN",
        )  # fmt: skip
    if state.state not in WAITING or not on_slurm:
        ending = state.state in _ENDING
        raise SeatrialError(
            f"its job {state.job_id} {'is ending' if ending else 'runs'} ({state.state})", rule="one job a run",
            fix="again in a moment" if ending else "first: seatrial stop RUN",
        )  # fmt: skip
    if wish.profile:
        raise SeatrialError(
            f"its job {state.job_id} waits in the queue, made for another profile", key="--profile", value=wish.profile,
            fix="first: seatrial cancel RUN",
        )  # fmt: skip
    if is_held(state.state, state.reason):
        return Way.RELEASE
    if wish.from_step is not None or wish.force_class:
        raise SeatrialError(
            f"its job {state.job_id} waits in the queue ({state.reason}) and may start at any moment",
            rule="what it starts from cannot change any more", fix="first: seatrial cancel RUN",
        )  # fmt: skip
    return Way.LEAVE


def check_start(folder: RunFolder, history: History, wish: Wish) -> None:
    """Raises SeatrialError where the checkpoint that was asked for, or any that is needed, is not whole now."""
    states = [checkpoint.check(path) for path in checkpoint.list_checkpoints(folder.checkpoints)]
    if wish.force_class:
        if not folder.attempts():
            raise SeatrialError("no attempt of it has ended yet", key="--force-class", value=wish.force_class)
        bad = history.records[-1].get("resume_step") if history.records else None
        if wish.force_class == classes.CHECKPOINT_BAD:
            states = [state for state in states if state.step != bad]
    choose(states, checkpoint.tracked_step(folder.checkpoints), history.saved, wish.from_step)


def check_not_done(history: History, wish: Wish, way: Way) -> None:
    if way is Way.SUBMIT and history.decision.get("decision") == "done" and wish.from_step is None:
        raise SeatrialError(
            f"it is complete: {history.decision.get('reason')}", fix="to train a part again: --from-step N"
        )


def with_blamed_node(wish: Wish, history: History) -> Wish:
    """Leave out the node that failed, where a person says that it was the node."""
    node = history.records[-1].get("failed_node") if history.records else None
    if wish.force_class not in classes.OF_THE_NODE or not node:
        return wish
    exclude = tuple(dict.fromkeys([*wish.exclude, str(node)]))
    return replace(wish, exclude=exclude)


def is_held(state: str, reason: str) -> bool:
    """Return whether a waiting job waits for somebody to let it go. An administrator's hold is an administrator's."""
    if "JobHeldAdmin" in reason:
        return False
    return state in ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD") or bool(_HELD.search(reason))
