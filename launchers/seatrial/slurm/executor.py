"""submitit's Slurm executor with our script and our sbatch call. Renders where there is no Slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import submitit


class Executor(submitit.SlurmExecutor):  # type: ignore[misc]
    """Submits one callable as the batch process of one job.

    ``submit_script`` runs sbatch on the script that lies beside ``folder`` and returns the job's number.
    """

    def __init__(self, folder: Path, submit_script: Callable[[], str]) -> None:
        self._submit_script = submit_script
        super().__init__(folder)

    @classmethod
    def affinity(cls) -> int:
        """Always usable: submitit asks for srun here, which rendering does not need."""
        return 2

    def _submit_command(self, command: str) -> Any:
        """Submit through our client: it knows which errors pass, and finds a job that was accepted all the same."""
        job = self.job_class(folder=self.folder, job_id=self._submit_script(), tasks=[0])
        job.paths.folder.mkdir(parents=True, exist_ok=True)
        return job
