"""A gate and the convergence run that waits for it, submitted together: both, or neither."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission import Admission
from seatrial.slurm.client import CommandFailed, JobId, Slurm
from seatrial.slurm.runs import job_reference
from seatrial.slurm.submit import Submission, submit
from seatrial.spec.runspec import RunSpec
from seatrial.supervise import dependents
from seatrial.supervise.classes import DEPENDENCY_FAILED


@dataclass(frozen=True)
class Pair:
    """The gate, and the run that starts once it has passed."""

    gate: Submission
    run: Submission


def submit_after_gate(
    gate: RunSpec,
    run: RunSpec,
    *,
    allow_dirty: bool = False,
    require_head: str | None = None,
    slurm: Slurm | None = None,
) -> Pair:
    """Submit ``gate`` and the ``run`` that waits for it. Raises SeatrialError as ``submit_pair`` does."""
    return submit_pair(gate, lambda _: run, allow_dirty=allow_dirty, require_head=require_head, slurm=slurm)


def submit_pair(
    gate: RunSpec,
    run_after: Callable[[RunFolder], RunSpec],
    *,
    allow_dirty: bool = False,
    require_head: str | None = None,
    group: str | None = None,
    hold: bool = False,
    slurm: Slurm | None = None,
) -> Pair:
    """Submit ``gate`` held, then the run depending on it, then let the gate start: it knows by then who depends on it.

    ``run_after``: from the gate's folder to the run, which belongs to ``group``. ``hold``: leave the gate held. Raises
    SeatrialError where one of these steps fails; then both jobs are cancelled and nothing is left, except what may
    still have a job: the error names it.
    """
    slurm = slurm or Slurm()
    made: list[Submission] = []
    try:
        first = submit(gate, allow_dirty=allow_dirty, require_head=require_head, hold=True, slurm=slurm)
        made.append(first)
        job = job_id(first.folder)
        admission = Admission("after-gate", first.folder.path.name, str(first.folder.path))
        second = submit(
            run_after(first.folder), allow_dirty=allow_dirty, require_head=require_head,
            dependency=f"afterok:{job.number}", admission=admission, group=group, slurm=slurm,
        )  # fmt: skip
        made.append(second)
        records.write_json(first.folder.path / dependents.FILE, [_dependent(second.folder)])
        if not hold and not slurm.release(job):
            raise SeatrialError(f"the gate's job {job.number} is gone before it could start", fix="submit again")
    except BaseException as error:
        left = [words for one in reversed(made) for words in take_back(one.folder, slurm)]
        if not left:
            raise
        known = error if isinstance(error, SeatrialError) else SeatrialError(f"interrupted: {error!r}")
        raise SeatrialError("\n    ".join([known.message, *left]), rule=known.rule, fix=known.fix) from error
    return Pair(first, second)


def job_id(folder: RunFolder) -> JobId:
    """Return the Slurm job of a run."""
    reference = job_reference(folder)
    return JobId(str(reference.job_id), reference.cluster)


def withdraw(folder: RunFolder, why: str, slurm: Slurm) -> str:
    """Cancel a run whose gate did not pass, and record why, unless that is done already; return what to say.

    Raises CommandFailed where the job may live on.
    """
    slurm.cancel(job_id(folder))
    events = records.read_objects(folder.events)
    if not any(event.get("class") == DEPENDENCY_FAILED for event in events):
        dependents.record_failed_dependency(folder, why)
    return f"{DEPENDENCY_FAILED}: {why}; the run is cancelled"


def _dependent(folder: RunFolder) -> dict[str, str | None]:
    job = job_id(folder)
    return {"run": folder.path.name, "folder": str(folder.path), "job_id": job.number, "cluster": job.cluster}


def take_back(folder: RunFolder, slurm: Slurm) -> list[str]:
    """Cancel a job and remove its folder. Returns what is left where that fails: a folder with a job is kept."""
    job = job_id(folder)
    try:
        slurm.cancel(job)
    except CommandFailed as error:
        return [f"job {job.number} may still be there: scancel {job.number}; {folder.path} is kept ({error.message})"]
    shutil.rmtree(folder.path, ignore_errors=True)
    return []
