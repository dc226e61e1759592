"""The jobs of any number of runs, whoever starts them: Slurm is asked once, this machine is looked at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.slurm.client import JobId, Slurm
from seatrial.slurm.local_job import local_state, look
from seatrial.slurm.state import states
from seatrial.slurm.state_records import JobRef, JobState


@dataclass(frozen=True)
class RunJob:
    """A run and its newest submission: the event, empty where there is none. ``host``: where it was submitted."""

    folder: Path
    submitted: Mapping[str, Any] = field(default_factory=dict)
    host: str = ""

    @property
    def on_slurm(self) -> bool:
        """Whether it is a Slurm job of its own."""
        return self.submitted.get("executor") == "slurm"

    @property
    def job_id(self) -> JobId:
        """Its Slurm job; only where ``on_slurm``."""
        return JobId(str(self.submitted["job_id"]), self.submitted.get("cluster"))

    @property
    def reference(self) -> JobRef:
        """What Slurm is asked by."""
        return JobRef(
            self.folder.name, str(self.submitted["job_id"]), self.submitted.get("user"),
            self.submitted.get("submit_time"), self.folder, self.submitted.get("cluster"),
        )  # fmt: skip


def job_states(runs: Iterable[RunJob], slurm: Slurm) -> dict[Path, JobState]:
    """Return folder -> state of its job. One squeue and one sacct call at most. Never raises for what Slurm answers."""
    all_runs = list(runs)
    processes = look()
    found: dict[Path, JobState] = {}
    of_cluster = [run for run in all_runs if run.on_slurm]
    # By folder, not by name: two folders of runs may hold copies of one run, and its name is its job's.
    for batch in _distinct(of_cluster):
        answers = states([run.reference for run in batch], slurm)
        found |= {run.folder: answers[run.folder.name] for run in batch}
    for run in all_runs:
        if not run.on_slurm:
            found[run.folder] = local_state(run.folder, run.submitted, run.host, processes)
    return found


def _distinct(runs: list[RunJob]) -> list[list[RunJob]]:
    """Return the runs in lists without equal names; nearly always one."""
    batches: list[dict[str, RunJob]] = []
    for run in runs:
        batch = next((b for b in batches if run.folder.name not in b), None)
        if batch is None:
            batches.append(batch := {})
        batch[run.folder.name] = run
    return [list(batch.values()) for batch in batches]
