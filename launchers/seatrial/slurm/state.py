"""The state of any number of runs' jobs: one squeue call, one sacct call, and own records where both know nothing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from seatrial.slurm import state_parse as parse
from seatrial.slurm.client import Slurm
from seatrial.slurm.commands import Done
from seatrial.slurm.state_merge import merge, with_own
from seatrial.slurm.state_own import read_own
from seatrial.slurm.state_records import UNKNOWN, Entry, Heard, JobRef, JobState, Own, Record

__all__ = ["JobRef", "JobState", "states"]


def states(
    jobs: Iterable[JobRef],
    slurm: Slurm,
    *,
    own: Callable[[JobRef], Own] = read_own,
    now: Callable[[], float] = time.time,
) -> dict[str, JobState]:
    """Return run id -> state of its job. Never raises for what Slurm answers, or does not.

    One squeue and one sacct call for all jobs of a cluster (more only where the numbers do not fit one argument, and
    once where sacct lacks a column). scontrol is asked where squeue failed, the run folder where Slurm knows nothing.
    """
    refs = list(jobs)
    found = {ref.run_id: JobState(UNKNOWN, False, "", "nobody", None) for ref in refs}
    clusters: defaultdict[str | None, list[JobRef]] = defaultdict(list)
    for ref in refs:
        if ref.job_id is not None:
            clusters[ref.cluster].append(ref)
    for cluster, of_cluster in clusters.items():
        ids = sorted({ref.job_id for ref in of_cluster if ref.job_id and ref.job_id.isdigit()}, key=int)
        for numbers in parse.chunks(ids):
            queue = _queue(slurm, numbers, cluster)
            accounting = _accounting(slurm, numbers, cluster)
            asked = set(numbers)
            found |= {ref.run_id: merge(ref, queue, accounting) for ref in of_cluster if ref.job_id in asked}
    for ref in refs:
        if found[ref.run_id].state == UNKNOWN:
            found[ref.run_id] = with_own(ref, found[ref.run_id], own(ref), now())
    return found


def _queue(slurm: Slurm, numbers: Sequence[str], cluster: str | None) -> Heard:
    """Ask the controller which jobs it has: by squeue, and where that fails by scontrol."""
    done = slurm.question(parse.queue_argv(numbers, cluster), seconds=slurm.status_seconds)
    entries: dict[str, tuple[Entry, ...]] = parse.parse_queue(done.stdout) if done.ok else {}
    if _answered(done, entries) or parse.no_such_job(done.stderr):
        return Heard(True, entries=entries)
    words = _brief("squeue", done)
    # Mostly the same controller is silent for the same reason, so this may not take as long again.
    done = slurm.question(parse.control_argv(numbers, cluster), seconds=slurm.status_seconds / 4)
    # scontrol tells some errors on stdout with code 0, so only a line that it did print is an answer.
    entries = parse.parse_control(done.stdout)
    if parse.no_such_job(done.stderr + done.stdout) or "no jobs in the system" in done.stdout.lower() or entries:
        return Heard(True, entries=entries)
    return Heard(False, f"{words}; {_brief('scontrol', done)}")


def _accounting(slurm: Slurm, numbers: Sequence[str], cluster: str | None) -> Heard:
    """Ask accounting for all records of the jobs; once more without the columns that old versions lack."""
    done = slurm.question(parse.accounting_argv(numbers, cluster, slurm.lacks), seconds=slurm.status_seconds)
    if not done.ok and not slurm.lacks and parse.missing_column(done.stderr + done.stdout):
        slurm.lacks |= parse.OPTIONAL
        done = slurm.question(parse.accounting_argv(numbers, cluster, slurm.lacks), seconds=slurm.status_seconds)
    records: dict[str, tuple[Record, ...]] = parse.parse_accounting(done.stdout, slurm.lacks) if done.ok else {}
    if _answered(done, records):
        return Heard(True, records=records)
    return Heard(False, _brief("sacct", done))


def _answered(done: Done, found: Mapping[str, object]) -> bool:
    """Return whether an end with code 0 is an answer: nothing found beside an error message is none."""
    return done.ok and (bool(found) or "error" not in done.stderr.lower())


def _brief(name: str, done: Done) -> str:
    """Return the first line of what a command said."""
    lines = [line.strip() for line in done.words.splitlines() if line.strip()]
    said = lines[0] if lines else "no answer"
    return said if said.startswith(name) else f"{name}: {said}"
