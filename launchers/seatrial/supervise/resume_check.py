"""A gate's resume check: an earlier checkpoint is loaded, and the steps after it are made again, into another root.

The two passes are held against each other by the judge. Nothing of the first one is touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from seatrial.judge.expectations import resume_from
from seatrial.run import records
from seatrial.run.sharing import make_folder
from seatrial.supervise import classes
from seatrial.supervise.attempt import run_attempt
from seatrial.supervise.history import History, read_history
from seatrial.supervise.job import Job
from seatrial.supervise.journal import Journal
from seatrial.supervise.resume import Start


def check_resume(job: Job) -> None:
    """Make the second pass of the gate that ``job`` has completed, unless it was made already or is not asked for."""
    step = resume_from(job.spec.get("gate") or {})
    first = read_history(job.folder)
    if step is None or not first.records or first.records[-1].get("class") != classes.COMPLETE:
        return
    root = job.folder.second_pass
    if _is_made([records.read_object(attempt.record) for attempt in root.attempts()]):
        return
    if root.path.exists():
        shutil.rmtree(root.path)  # of a supervisor that was lost on the way
    for folder in (root.path, root.path / "attempts"):
        make_folder(folder)
    job.journal.event("resume_check_started", step=step)
    job.journal.say(f"resume check: checkpoint {step} into {root.path.name}/, to the end again")
    own = replace(job, folder=root, journal=Journal(root), janitor=None, notifier=None)
    start = Start(step, "the resume check", root=job.folder.checkpoints)
    nodes: Sequence[str] = first.records[-1].get("nodes") or ()
    try:
        finished = run_attempt(own, start, "the resume check", History(), list(nodes) if job.on_slurm else None)
    finally:
        own.journal.close()
    outcome = finished.outcome
    job.journal.event("resume_check_ended", outcome=outcome.outcome, reason=outcome.reason)


def _is_made(found: Sequence[Optional[Mapping[str, Any]]]) -> bool:
    return any(record is not None and record.get("class") == classes.COMPLETE for record in found)
