"""What brings a job back after a decision to requeue: some ends Slurm requeues itself, some it makes final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seatrial.supervise import classes
from seatrial.supervise.requeue import Returned, exclude_nodes, requeue, resubmit

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

BY_ITSELF, REQUEUE, RESUBMIT = "by itself", "requeue", "resubmit"
_PATIENCE_SECONDS = 1800.0  # for a controller that is away, while the nodes are ours
_LAST_SECONDS = 5.0


def way_back(ended_by: str, name: str, restarted: bool, preempt_mode: str) -> str:
    """Return what has to be done. Pure.

    ``ended_by``: Slurm's word for the end that it has begun already, or "". ``restarted``: it says that the job is
    back in the queue. ``preempt_mode``: the profile's.
    """
    if restarted or ended_by in ("REQUEUED", "NODE_FAIL"):
        return BY_ITSELF
    if name == classes.PREEMPTED and (preempt_mode == "CANCEL" or (ended_by == "PREEMPTED" and preempt_mode == "OFF")):
        return RESUBMIT
    return BY_ITSELF if ended_by == "PREEMPTED" else REQUEUE


def bring_back(job: Job, record: Mapping[str, Any], exclude: Sequence[str]) -> Returned:
    """Have the job run again, without the nodes in ``exclude``. Never raises."""
    assert job.watch is not None
    ended_by = job.ended_by() or ""
    mode = str((job.spec["profile"].get("slurm") or {}).get("preempt_mode") or "OFF")
    way = way_back(ended_by, str(record.get("class")), job.watch.is_back(), mode)
    if way == RESUBMIT:
        return resubmit(job)
    if way == BY_ITSELF:
        return exclude_nodes(job, exclude) if exclude else Returned(True, "Slurm requeues it")
    left = _PATIENCE_SECONDS
    if job.control.terminated_at is not None:
        left = job.watch.kill_wait - _LAST_SECONDS
    return requeue(job, exclude, left)
