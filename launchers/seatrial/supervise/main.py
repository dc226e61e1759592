"""The supervisor: the process that is the job. ``python -m seatrial.supervise RUN_FOLDER``, or a submitit callable."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.judge.gate import judge_run
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import exit_codes
from seatrial.supervise.attempt import Job, Patience, run_attempt
from seatrial.supervise.control import Control
from seatrial.supervise.journal import Journal
from seatrial.supervise.lock import only_supervisor
from seatrial.supervise.lost import close_lost_attempts
from seatrial.supervise.outcome import COMPLETED, FAILED, Outcome
from seatrial.supervise.plan import value
from seatrial.supervise.resume import choose_start

_VERDICT_CODES = {"PASS": exit_codes.DONE, "FAIL": exit_codes.VERDICT_FAIL}


def supervise(
    run_folder: str, rank_command: Optional[Sequence[str]] = None, patience: Optional[Patience] = None
) -> int:
    """Carry the run in ``run_folder`` to its end and return the job's exit code (see exit_codes).

    Whatever happens, the ranks are ended, and the records say what happened. ``rank_command`` replaces the rank
    program; the plan's path is appended to it.
    """
    control = Control()
    control.install()  # first of all: submitit's own handlers would swallow SIGTERM
    folder = RunFolder(Path(run_folder).resolve())
    journal = Journal(folder)
    try:
        spec = _read_spec(folder)
        with only_supervisor(folder):
            return _carry(Job(folder, spec, journal, control, rank_command, patience or Patience()))
    except SeatrialError as error:
        journal.say(f"error: {error}")
        return error.exit_code


def job(run_folder: str) -> None:
    """Be the job: exit with the supervisor's code. What submitit calls; its own process would exit 0 after a return."""
    sys.exit(supervise(run_folder))


def _carry(job: Job) -> int:
    """Run the attempt and the verdict; a failure of ours becomes an event and an exit code."""
    reason: str
    try:
        outcome = _attempt(job)
        code = _judged(job, outcome.exit_code)
        reason = outcome.reason
    except BaseException as error:
        job.journal.say(traceback.format_exc().rstrip())
        reason, code = f"the supervisor broke: {type(error).__name__}: {error}", exit_codes.SUPERVISOR_ERROR
        job.journal.event("supervisor_failed", reason=reason, traceback=traceback.format_exc())
        with contextlib.suppress(Exception):
            _judged(job, code)
    job.journal.event("decision", decision="stop" if code else "done", exit_code=code, reason=reason)
    job.journal.say(
        f"exit code {code}: {exit_codes.MEANINGS.get(code, 'that of the first rank that failed')}: {reason}"
    )
    job.journal.close()
    return code


def _attempt(job: Job) -> Outcome:
    """Run one attempt, unless a mistake or what is there already makes it needless."""
    close_lost_attempts(job.folder, job.journal)
    try:
        start = choose_start(job.folder)
    except SeatrialError as error:
        return Outcome(FAILED, str(error), error.exit_code)
    if start.first_step > job.target.step:
        return _already_there(job)
    return run_attempt(job, start)


def _already_there(job: Job) -> Outcome:
    """The target's checkpoint is whole: training on would fail, so the last attempt's record has to do."""
    last = records.read_json(job.folder.attempts()[-1].record) or {}
    if last.get("outcome") == COMPLETED:
        return Outcome(COMPLETED, f"attempt {last['attempt']} completed: {last['reason']}", exit_codes.DONE)
    reason = f"checkpoint {job.target.step} is whole, but the attempt before did not complete: {last.get('reason')}"
    return Outcome(FAILED, reason, exit_codes.NOT_DONE)


def _judged(job: Job, code: int) -> int:
    """Write a gate's verdict, whatever happened before; return the exit code that it and ``code`` make."""
    if job.spec["kind"] != "gate":
        return code
    verdict = judge_run(job.folder.path).to_json()
    records.write_json(job.folder.verdict, verdict)
    job.journal.event("verdict", verdict=verdict["verdict"])
    job.journal.say(f"verdict: {verdict['verdict']}")
    return code or _VERDICT_CODES.get(verdict["verdict"], exit_codes.VERDICT_INCONCLUSIVE)


def _read_spec(folder: RunFolder) -> Mapping[str, Any]:
    """Return spec.json. Raises SeatrialError where it is none, or lacks what a supervisor needs."""
    try:
        spec = records.read_json(folder.spec)
    except (OSError, ValueError) as error:
        raise SeatrialError(f"cannot read the spec: {error}", file=folder.spec) from error
    if spec is None:
        raise SeatrialError("not a run folder: it holds no spec.json", file=folder.path)
    needed = ("run_id", "kind", "rehearsal", "world_size", "profile", "environment", "arguments", "fields")
    missing = [key for key in needed if not isinstance(spec, dict) or key not in spec]
    if missing:
        raise SeatrialError(f"the spec lacks {', '.join(missing)}", file=folder.spec, fix="submit the run again")
    if not isinstance(value(spec, "train_iters"), int):
        raise SeatrialError("the spec sets no target step", file=folder.spec, key="train_iters")
    return dict(spec)
