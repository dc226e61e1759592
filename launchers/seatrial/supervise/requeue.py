"""Bringing the job back: requeued by its own supervisor with bad nodes left out, or submitted anew where Slurm ended it
for good."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seatrial.run import records
from seatrial.supervise.ask import ask, outside_of_this_job, run

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

_TRY_SECONDS = 5.0
_NEVER = ("disabled", "access/permission denied", "invalid user")
_ID = re.compile(r"^([1-9]\d*)(?:;(\S+))?\s*$")


@dataclass(frozen=True)
class Returned:
    """``done``: the job is back in the queue. ``excluded``: the nodes that it must not get, as Slurm took them."""

    done: bool
    words: str
    excluded: tuple[str, ...] = ()


def requeue(job: Job, exclude: Sequence[str], patience_seconds: float) -> Returned:
    """Put this job back into the queue, then have it avoid ``exclude``: Slurm takes that only of a job that waits.

    A controller that is away is asked again for ``patience_seconds``. Slurm's SIGTERM follows at once; this process
    has KillWait seconds left. Never raises.
    """
    assert job.watch is not None
    deadline = time.monotonic() + patience_seconds
    while True:
        answer = run(["scontrol", "requeue", job.watch.job])
        if answer.output is not None or job.watch.is_back():
            break
        said = answer.problem
        if any(word in said.lower() for word in _NEVER):
            return Returned(False, f"Slurm does not requeue it: {said}")
        if time.monotonic() > deadline:
            return Returned(False, f"Slurm did not requeue it within {patience_seconds:.0f} s: {said}")
        job.journal.say(f"not requeued yet, will go on trying: {said}")
        time.sleep(_TRY_SECONDS)
    if not exclude:
        return Returned(True, "requeued")
    return exclude_nodes(job, exclude)


def exclude_nodes(job: Job, exclude: Sequence[str]) -> Returned:
    """Have the waiting job avoid ``exclude``; tried as long as Slurm lets this process live. Never raises."""
    assert job.watch is not None
    deadline = time.monotonic() + max(2.0, job.watch.kill_wait - 5)
    nodes = ",".join(exclude)
    while True:
        answer = run(["scontrol", "update", f"JobId={job.watch.job}", f"ExcNodeList={nodes}"])
        if answer.output is not None:
            return Returned(True, f"requeued without {nodes}", tuple(exclude))
        if time.monotonic() > deadline:
            return Returned(True, f"requeued, but Slurm took no node out: {answer.problem}")
        time.sleep(0.5)


def resubmit(job: Job) -> Returned:
    """Submit the run's script as a new job, which begins when this one is over (its singleton dependency).

    For a job that Slurm ends for good (PreemptMode=CANCEL). Never raises.
    """
    assert job.watch is not None
    asked = records.now()
    script = job.folder.path / "batch.sh"
    # The script may name a gate that it waited for; Slurm can have forgotten that one by now.
    environment = {**outside_of_this_job(), **job.withheld}
    said = ask(["sbatch", "--parsable", "--dependency=singleton", str(script)], environment)
    found = _ID.match((said or "").strip())
    if found is None:
        return Returned(False, "the run could not be submitted again from here")
    number = found[1]
    pickles = job.folder.path / "submitit"
    try:
        # What submitit starts is named after the job; the first one's is the same for all.
        first = next(iter(sorted(pickles.glob("*_submitted.pkl"))))
        shutil.copy2(first, pickles / f"{number}_submitted.pkl")
        (job.folder.path / "job_id").write_text(f"{number}\n")
    except (OSError, StopIteration) as error:
        run(["scancel", number])
        return Returned(False, f"job {number} was submitted, but cannot start and is cancelled: {error}")
    job.journal.event(
        "submitted", executor="slurm", job_id=number, cluster=found[2], adopted=False, submit_time=asked,
        user=str(os.getuid()), by="supervisor", replaces=job.watch.job,
    )  # fmt: skip
    return Returned(True, f"submitted again as job {number}")
