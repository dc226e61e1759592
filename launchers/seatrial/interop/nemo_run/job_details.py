"""One log for a job. This module imports NeMo-Run at its head: an experiment that is loaded again finds the class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nemo_run.core.execution.slurm import SlurmJobDetails


@dataclass(kw_only=True)
class OneLog(SlurmJobDetails):  # type: ignore[misc]
    """The supervisor writes into the batch script's log, where Slurm's last word stands, too; exp.logs shows it."""

    @property
    def srun_stdout(self) -> Path:
        """Return where the task writes; Slurm fills the job's number in."""
        return Path(self.stdout)

    @property
    def ls_term(self) -> str:
        """Return the log's path; NeMo-Run fills the job's number in."""
        return str(self.stdout)
