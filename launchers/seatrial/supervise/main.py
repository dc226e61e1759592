"""The supervisor: the process that is the job. ``python -m seatrial.supervise RUN_FOLDER``, or a submitit callable."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.judge.judging import judge_folder
from seatrial.run import checkpoint, records, retention
from seatrial.run.layout import RunFolder, temporary_prefix
from seatrial.supervise import classes, exit_codes, termination
from seatrial.supervise.carry import Carrier, End
from seatrial.supervise.control import Control
from seatrial.supervise.dependents import cancel_dependents
from seatrial.supervise.image_digest import ImageDigest
from seatrial.supervise.janitor import Janitor
from seatrial.supervise.job import Job, Patience
from seatrial.supervise.job_watch import JobWatch
from seatrial.supervise.journal import Journal
from seatrial.supervise.lock import only_supervisor
from seatrial.supervise.lost import close_lost_attempts
from seatrial.supervise.notify import notifier_of, take_secret
from seatrial.supervise.owner import Owner
from seatrial.supervise.plan import value
from seatrial.supervise.resume_check import check_resume
from seatrial.supervise.step import jit_cache_root

_TIDY_SECONDS = 60.0
_TELL_SECONDS = 10.0  # for the last notifications
_LAST_SECONDS = 5.0  # of KillWait, for the records
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
        job = _job(folder, spec, journal, control, rank_command, patience or Patience())
        with only_supervisor(folder, job.owner, job.patience.lock):
            return _carry(job)
    except SeatrialError as error:
        journal.say(f"error: {error}")
        return error.exit_code


def job(run_folder: str) -> None:
    """Be the job: exit with the supervisor's code. What submitit calls; its own process would exit 0 after a return."""
    sys.exit(supervise(run_folder))


def _job(
    folder: RunFolder, spec: Mapping[str, Any], journal: Journal, control: Control,
    rank_command: Optional[Sequence[str]], patience: Patience,
) -> Job:  # fmt: skip
    number = os.environ.get("SLURM_JOB_ID")
    withheld = take_secret(spec["profile"], os.environ)  # before anything copies the environment
    job = Job(folder, spec, journal, control, rank_command, patience, withheld=withheld)
    notifier = notifier_of(spec, folder, job.target.step, journal, withheld, os.environ)
    if notifier is not None:
        journal.listener = notifier.hear
        job = replace(job, notifier=notifier)
    if spec["kind"] != "gate":
        tell = lambda done: journal.event("checkpoints_deleted", steps=list(done.deleted), failed=list(done.failed))  # noqa: E731
        job = replace(job, janitor=Janitor(folder.checkpoints, *retention.keep(job.recovery), tell))
    if number is None or not job.on_slurm:
        return job
    watch = JobWatch(os.environ)
    log = termination.batch_log(folder.path, number)
    return replace(job, watch=watch, owner=Owner(folder, number, watch.restart), log_size=termination.size(log))


def _carry(job: Job) -> int:
    """Run the attempts and the verdict; a failure of ours becomes an event and an exit code."""
    job.journal.event(
        "supervisor_started", host=platform.node(), pid=os.getpid(), job_id=job.watch and job.watch.job,
        restart_count=job.watch and job.watch.restart, cluster=job.watch and os.environ.get("SLURM_CLUSTER_NAME"),
    )  # fmt: skip
    if job.watch is not None:
        job.watch.start()
    image = ImageDigest((job.spec["profile"].get("container") or {}).get("image"), job.folder.path.parent, job.journal)
    image.start()
    try:
        close_lost_attempts(job)
        end = Carrier(job).carry()
        if end.final and end.exit_code == exit_codes.DONE and job.spec["kind"] == "gate":
            check_resume(job)
        end = replace(end, exit_code=_judged(job, end)) if end.final else end
    except BaseException as error:
        job.journal.say(traceback.format_exc().rstrip())
        reason = f"the supervisor broke: {type(error).__name__}: {error}"
        job.journal.event("supervisor_failed", reason=reason, traceback=traceback.format_exc())
        end = End(exit_codes.SUPERVISOR_ERROR, reason, classes.SUPERVISOR_ERROR)
        with contextlib.suppress(Exception):
            _judged(job, end)
    finally:
        image.finish()
    return _ended(job, end)


def _ended(job: Job, end: End) -> int:
    """Put the end on record, tidy up, and return the exit code."""
    code = end.exit_code
    if end.final:
        action = "stop" if code else "done"
        attempts = job.folder.attempts()
        job.journal.event("decision", decision=action, action=action, exit_code=code, reason=end.reason,
                          attempt=attempts[-1].number if attempts else None,
                          **{"class": end.name})  # fmt: skip
        if code:
            cancel_dependents(job, end.reason)
        _sweep(job)
    if job.notifier is not None:
        began = time.monotonic()
        job.notifier.finish(lambda: _tell_until(job, began))
    job.journal.event("supervisor_ended", exit_code=code)
    meaning = exit_codes.MEANINGS.get(code, "that of the first rank that failed")
    job.journal.say(f"exit code {code}: {meaning}: {end.reason}")
    if job.janitor is not None:
        job.janitor.finish(_TIDY_SECONDS)
    if job.watch is not None:
        job.watch.stop()
    job.journal.close()
    return code


def _tell_until(job: Job, began: float) -> float:
    """Return until when (time.monotonic) to wait for the last notifications: Slurm's SIGKILL must not come first."""
    control = job.control
    if control.end_at_once:
        return began
    until = began + _TELL_SECONDS
    if job.watch is None or control.terminated_at is None:
        return until
    return min(until, control.terminated_at + job.watch.kill_wait - _LAST_SECONDS)


def _sweep(job: Job) -> None:
    """Remove what ranks that were killed, and their compilers, have left on this host: no attempt follows."""
    left = Path(tempfile.gettempdir()).glob(f"{temporary_prefix(job.spec['run_id'])}*")
    node_local = (job.spec["profile"].get("paths") or {}).get("node_local")
    caches = [Path(jit_cache_root(node_local, job.spec["run_id"]))] if node_local and job.on_slurm else []
    for folder in (*left, *caches):
        shutil.rmtree(folder, ignore_errors=True)


def _judged(job: Job, end: End) -> int:
    """Write the verdict, whatever happened before; return the exit code that it and the end make.

    A convergence run's code says whether its target is proven, whatever its curve is worth; its verdict tells both.
    """
    code = end.exit_code
    gate = job.spec["kind"] == "gate"
    try:
        decided = {"decision": "stop" if code else "done", "class": end.name}
        verdict = judge_folder(job.folder.path, decided).to_json()
    except Exception as error:
        if gate:
            raise
        # What was proven stays proven; the records are there to be judged again.
        job.journal.event("verdict_failed", reason=f"{type(error).__name__}: {error}")
        job.journal.say(traceback.format_exc().rstrip())
        return code
    records.write_json(job.folder.verdict, verdict)
    job.journal.event("verdict", verdict=verdict["verdict"])
    job.journal.say(f"verdict: {verdict['verdict']}")
    if not gate:
        return code
    if verdict["verdict"] == "PASS" and not job.recovery.get("gate_checkpoints", True):
        _clear(job)
    return code or _VERDICT_CODES.get(verdict["verdict"], exit_codes.VERDICT_INCONCLUSIVE)


def _clear(job: Job) -> None:
    """Delete the checkpoints of a gate that has passed; what they were stays on record, for whoever judges it again."""
    steps: list[Optional[int]] = []
    failed: list[str] = []
    for root in (job.folder, job.folder.second_pass):
        states = [checkpoint.check(path) for path in checkpoint.list_checkpoints(root.checkpoints)]
        if not states:
            continue
        retention.record_states(root.path, states)
        failed += retention.delete_all(root.checkpoints)
        steps += [state.step for state in states]
    job.journal.event("checkpoints_deleted", steps=steps, failed=failed)


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
