"""What bringing a run back needs of the queue: that nobody else does it now, that no job of the run is left, nodes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder
from seatrial.slurm.client import JobId, Slurm
from seatrial.slurm.jobs import RunJob
from seatrial.slurm.table import pairs

# A file system that knows no locks, as shared ones may: there the question for the run's jobs has to do.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class Busy(SeatrialError):
    """Another command brings the run back, or tidies it, at this moment."""


@contextlib.contextmanager
def only_one(folder: RunFolder) -> Iterator[None]:
    """Keep others from bringing the run back meanwhile. Raises Busy where another one is doing so."""
    try:
        handle = os.open(folder.path / "requeue.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SeatrialError(f"cannot write to the run folder: {error.strerror}", file=folder.path) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                words = "another seatrial requeue, tend or prune is at work on this run"
                raise Busy(words, file=folder.path, fix="seatrial status RUN") from error
        yield
    finally:
        os.close(handle)


def none_alive(run: RunJob, slurm: Slurm) -> None:
    """Raises SeatrialError where the queue has any job of the run's name, or does not say."""
    where = [f"--clusters={run.submitted['cluster']}"] if run.submitted.get("cluster") else []
    words = ["squeue", "--noheader", f"--name={run.folder.name}", *where, "--format=%A %T"]
    done = slurm.question(words, seconds=slurm.status_seconds)
    found = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    if not done.ok or (not found and "error" in done.stderr.lower()):
        raise SeatrialError(
            f"nobody can say whether a job of it is left: {done.words}", rule="a failed question is not a dead job",
            fix="again when Slurm answers",
        )  # fmt: skip
    if found:
        jobs = ", ".join(" ".join(words) for words in found)
        raise SeatrialError(
            f"Slurm has a job of it already: {jobs}", rule="one job a run", fix=f"look at it; scancel {found[0][0]}"
        )


def exclude(job: JobId, nodes: Sequence[str], slurm: Slurm) -> tuple[str, ...]:
    """Have a job that waits avoid ``nodes`` as well; return all that it avoids, as Slurm writes them.

    Raises SeatrialError where it cannot be done.
    """
    where = [f"--clusters={job.cluster}"] if job.cluster else []
    done = slurm.question(["scontrol", *where, "--oneliner", "show", "job", job.number])
    told = pairs(done.stdout.strip()) if done.ok else {}
    if "JobState" not in told:
        raise SeatrialError(f"Slurm does not show job {job.number}: {done.words}", fix="again when Slurm answers")
    # What is set replaces what was.
    before = told.get("ExcNodeList", "(null)")
    whole = tuple(dict.fromkeys([*([] if before in ("(null)", "") else [before]), *nodes]))
    if not slurm.exclude(job, whole):
        raise SeatrialError(f"job {job.number} is gone", fix="again: seatrial requeue RUN")
    return whole


def expand(words: Sequence[str], slurm: Slurm, *, key: str = "--exclude") -> tuple[str, ...]:
    """Return the names of nodes that ``words`` say, each a comma-separated list, with Slurm's brackets or without.

    Raises SeatrialError for what Slurm cannot read.
    """
    found: list[str] = []
    for word in words:
        if "[" not in word:
            found += filter(None, (name.strip() for name in word.split(",")))
            continue
        done = slurm.question(["scontrol", "show", "hostnames", word])
        if not done.ok or not done.stdout.split():
            raise SeatrialError(
                f"not a list of nodes: {done.words}",
                key=key,
                value=word,
                rule="NODE[,NODE], as gb200-[001-004]",
            )
        found += done.stdout.split()
    return tuple(dict.fromkeys(found))
