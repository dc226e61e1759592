"""What is known of a job: what was asked about, what Slurm answered, and what it comes to. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

UNKNOWN = "UNKNOWN"
# Slurm's words for a job that ran its course. REQUEUED and RESIZING close a record, not the job.
ENDS = frozenset({
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED",
})  # fmt: skip
# Ends after which Slurm may have put the job back into the queue.
MAY_RETURN = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"})
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


@dataclass(frozen=True)
class JobRef:
    """A run and the job it was submitted as. ``user``: name or number; ``submitted``: ISO 8601 in UTC; either may be
    unknown (None). ``job_id`` None: it was never submitted."""

    run_id: str
    job_id: str | None
    user: str | None
    submitted: str | None
    folder: Path
    cluster: str | None = None


@dataclass(frozen=True)
class Entry:
    """A job as the controller has it now (squeue, or scontrol). Times in seconds since 1970."""

    job_id: str
    name: str
    user: str
    uid: str
    state: str
    reason: str
    submitted: float | None
    started: float | None
    ended: float | None
    nodes: str
    restarts: int | None = None
    exit_code: str | None = None
    source: str = "squeue"


@dataclass(frozen=True)
class Record:
    """One accounting record; a requeued or resized job has several. Times in seconds since 1970.

    ``exit_code`` as Slurm prints it, ``code:signal``; for a batch job the first number may be a signal's. ``derived``:
    the highest code of its steps.
    """

    job_id: str
    name: str
    user: str
    uid: str
    state: str
    reason: str
    submitted: float | None
    started: float | None
    ended: float | None
    nodes: str
    exit_code: str
    derived: str
    restarts: int | None = None
    failed_node: str | None = None


@dataclass(frozen=True)
class Own:
    """What a run folder itself says. ``state`` None: it says nothing of an end; ``words`` is what it does say."""

    words: str
    state: str | None = None
    exit_code: str | None = None
    started: str | None = None
    ended: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One closed or open accounting record of the job, for people. Times: ISO 8601 in UTC."""

    state: str
    started: str | None
    ended: str | None
    nodes: str
    exit_code: str
    restarts: int | None
    failed_node: str | None


@dataclass(frozen=True)
class JobState:
    """The state of a run's job.

    ``state`` is Slurm's word, or UNKNOWN where nobody knows: a failed question never makes a failed job. ``final``: it
    will not change by itself. ``source``: squeue, sacct, scontrol, "run folder" or "nobody". ``needs_action``: what a
    person has to do for the job to go on. ``history``: its attempts, oldest first. ``notes``: questions that failed.
    Times: ISO 8601 in UTC.
    """

    state: str
    final: bool
    reason: str
    source: str
    job_id: str | None
    nodes: str = ""
    restarts: int | None = None
    started: str | None = None
    ended: str | None = None
    exit_code: str | None = None
    derived_exit_code: str | None = None
    history: tuple[Attempt, ...] = ()
    needs_action: str | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Heard:
    """What one source answered. ``answered`` False: the question failed, and ``words`` says how."""

    answered: bool
    words: str = ""
    entries: Mapping[str, tuple[Entry, ...]] | None = None
    records: Mapping[str, tuple[Record, ...]] | None = None
