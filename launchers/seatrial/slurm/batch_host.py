"""Whether running jobs still have their batch hosts: with --no-kill Slurm leaves one running that has lost its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from seatrial.slurm.client import JobId, Slurm
from seatrial.slurm.state_parse import chunks
from seatrial.slurm.table import pairs
from seatrial.slurm.tend_rules import Host


def batch_hosts(jobs: Iterable[JobId], slurm: Slurm) -> dict[JobId, Host]:
    """Return the batch hosts of those jobs whose host Slurm tells. Two questions a cluster; never raises."""
    clusters: defaultdict[str | None, list[JobId]] = defaultdict(list)
    for job in jobs:
        clusters[job.cluster].append(job)
    found: dict[JobId, Host] = {}
    for cluster, of_cluster in clusters.items():
        names = _names([job.number for job in of_cluster], cluster, slurm)
        lost = _lost(sorted(set(names.values())), cluster, slurm)
        found |= {
            job: Host(names[job.number], lost.get(names[job.number])) for job in of_cluster if job.number in names
        }
    return found


def is_lost(state: str) -> bool:
    """Return whether a node in ``state`` (DOWN+NOT_RESPONDING, or DOWN* before 23.02) is gone.

    Slurm sets a node down that has not answered for SlurmdTimeout. One that an administrator set down still answers,
    and what runs on it may go on.
    """
    words = state.split("+")
    return words[0].rstrip("*") == "DOWN" and ("*" in state or "NOT_RESPONDING" in words)


def _names(numbers: list[str], cluster: str | None, slurm: Slurm) -> dict[str, str]:
    """Return job number -> its batch host."""
    found: dict[str, str] = {}
    for some in chunks(numbers):
        words = ["squeue", "--noheader", *_where(cluster), f"--jobs={','.join(some)}", "--format=%A %B"]
        done = slurm.question(words, seconds=slurm.status_seconds)
        rows = [line.split() for line in done.stdout.splitlines()] if done.ok else []
        found |= {row[0]: row[1] for row in rows if len(row) == 2 and row[1] not in ("n/a", "(null)")}
    return found


def _lost(hosts: list[str], cluster: str | None, slurm: Slurm) -> dict[str, bool]:
    """Return host -> whether it is gone, for those that Slurm tells of."""
    found: dict[str, bool] = {}
    for some in chunks(hosts):
        words = ["scontrol", *_where(cluster), "--oneliner", "show", "node", ",".join(some)]
        done = slurm.question(words, seconds=slurm.status_seconds)
        for at in map(pairs, done.stdout.splitlines()) if done.ok else ():
            if "NodeName" in at and at.get("State"):
                found[at["NodeName"]] = is_lost(at["State"])
    return found


def _where(cluster: str | None) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []
