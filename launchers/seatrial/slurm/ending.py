"""Ending a run: ``stop`` lets it save first, ``cancel`` does not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import Attempt, RunFolder
from seatrial.slurm.client import CommandFailed, Slurm
from seatrial.slurm.jobs import RunJob
from seatrial.slurm.local_job import look, send, supervisor
from seatrial.slurm.state_records import WAITING, JobState

_ATTEMPT_SECONDS = 10.0  # for an attempt to begin once its job runs
_GONE_SECONDS = 60.0  # for a supervisor to be gone after it was told to end at once
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Asked:
    """``words``: what was done. ``over``: there is nothing to wait for. ``attempt``: the one that was asked to stop."""

    words: str
    over: bool = False
    attempt: int | None = None


@dataclass(frozen=True)
class Saved:
    """What a stopped attempt left. ``good``: no step that it made is lost."""

    good: bool
    words: str
    step: int | None = None


def stop(run: RunJob, state: JobState, slurm: Slurm) -> Asked:
    """Ask the run to save and end, by its stop file and by SIGUSR2 to its supervisor. A waiting job is cancelled.

    Raises SeatrialError where no way reached it.
    """
    if state.final:
        return Asked(f"it has ended already: {state.state}", over=True)
    if run.on_slurm and state.state in WAITING:
        slurm.cancel(run.job_id)
        return Asked("it waited in the queue: cancelled, there was nothing to save", over=True)
    attempt = _live_attempt(RunFolder(run.folder))
    done, failed = [], []
    if attempt is not None:
        try:
            write_stop_file(attempt)
            done.append("wrote the stop file")
        except OSError as error:
            failed.append(f"the stop file cannot be written: {error}")
    try:
        reached = slurm.signal(run.job_id, "USR2", batch=True) if run.on_slurm else send(run.folder, signal.SIGUSR2)
        done += ["sent SIGUSR2 to the supervisor"] if reached else []
        failed += [] if reached else ["no supervisor of it is there to signal"]
    except CommandFailed as error:
        failed.append(error.message)
    if not done:
        raise SeatrialError("the run could not be asked to stop: " + "; ".join(failed), file=run.folder)
    return Asked(" and ".join(done), attempt=attempt.number if attempt else None)


def write_stop_file(attempt: Attempt) -> None:
    """Make the attempt's stop file, whole or not at all: its supervisor and its ranks look for it."""
    aside = attempt.path / f".stop.{os.getpid()}"
    try:
        aside.write_text(f"seatrial stop {records.now()}\n")
        aside.replace(attempt.stop_file)
    finally:
        aside.unlink(missing_ok=True)


def _live_attempt(folder: RunFolder) -> Attempt | None:
    """Return the attempt that runs; one that is about to begin is waited for, as a signal sent too early kills."""
    deadline = time.monotonic() + _ATTEMPT_SECONDS
    while True:
        attempts = folder.attempts()
        if attempts and not attempts[-1].record.is_file():
            return attempts[-1]
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)


def saved(folder: RunFolder, number: int | None) -> Saved:
    """Return what attempt ``number`` (None: the newest) has saved, from its record."""
    attempts = folder.attempts()
    which = number if number is not None else attempts[-1].number if attempts else None
    record = None if which is None else records.read_json(folder.attempt(which).record)
    if not isinstance(record, dict):
        return Saved(False, "it ended without a record of its attempt, so nobody can say whether it saved")
    if record.get("outcome") == "completed":
        return Saved(True, f"it was complete: {record.get('reason')}", record.get("last_step"))
    last, steps = record.get("last_step"), record.get("saved_steps") or []
    if last is None:
        return Saved(True, "it ended before its first step: there was nothing to save")
    if last in steps:
        return Saved(True, f"checkpoint {last} is saved", last)
    if steps:
        return Saved(False, f"steps {steps[-1] + 1}-{last} are lost: the newest checkpoint is {steps[-1]}", steps[-1])
    return Saved(False, f"no checkpoint was saved: {record.get('reason')}")


def cancel(run: RunJob, state: JobState, slurm: Slurm) -> str:
    """End the run at once, without a save; return what was done. Raises SeatrialError where it may live on."""
    if state.final:
        return f"it has ended already: {state.state}"
    if run.on_slurm:
        return "cancelled" if slurm.cancel(run.job_id) else "Slurm no longer has its job"
    if supervisor(run.folder, look()) is None:
        raise SeatrialError("no supervisor of it is on this machine", file=run.folder, rule=state.reason or None)
    return _end_local(run.folder)


def _end_local(folder: Path, pause: Callable[[float], None] = time.sleep) -> str:
    """Tell a local supervisor twice, which ends it at once. Two signals sent together would arrive as one."""
    deadline = time.monotonic() + _GONE_SECONDS
    while send(folder, signal.SIGTERM):
        if time.monotonic() > deadline:
            raise SeatrialError(f"its supervisor has not ended within {_GONE_SECONDS:.0f} s", file=folder)
        pause(0.5)
    return "cancelled"
