"""A new job for a run that has none: its own script again, held until all that must be on record is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder
from seatrial.slurm import requeue_queue
from seatrial.slurm.client import CommandFailed, JobId, Slurm
from seatrial.slurm.jobs import RunJob
from seatrial.slurm.snapshot import verify_code
from seatrial.slurm.submit import excluding, send
from seatrial.supervise.dependents import gate_refuses


class Resubmission:
    """One new job of ``run``. ``by``: who brings it back, for the records."""

    def __init__(self, folder: RunFolder, run: RunJob, slurm: Slurm, by: str) -> None:
        self.folder, self.run, self.slurm, self.by = folder, run, slurm, by
        self._accepted: list[JobId] = []

    def check(self, document: Mapping[str, Any]) -> None:
        """Raises SeatrialError where no job may be submitted. Changes nothing. ``document``: spec.json."""
        requeue_queue.none_alive(self.run, self.slurm)
        verify_code(self.folder.path / "code")
        if (refused := gate_refuses(document)) is not None:
            raise SeatrialError(refused, fix="submit both again: seatrial converge … --after-gate")

    def submit(self, script: Path, options: Sequence[str], known: Collection[str]) -> JobId:
        """Submit it held, and put it on record. ``known``: the run's earlier jobs. Raises SeatrialError, OSError."""

        def sbatch() -> JobId:
            words = ["sbatch", "--hold", *options, str(script)]
            self._accepted.append(self.slurm.submit(words, self.folder.path.name, known=known))
            return self._accepted[0]

        return send(self.folder, sbatch, by=self.by, replaces=self.run.job_id.number)

    def withdraw(self) -> list[str]:
        """Cancel the job that cannot be used; it is held, so nothing of it has run. Returns what is left."""
        try:
            for job in self._accepted:
                self.slurm.cancel(job)
        except CommandFailed:
            number = self._accepted[0].number
            return [f"job {number} is left, held: scancel {number}"]
        return []


def options(exclude: Sequence[str]) -> list[str]:
    """Return sbatch's options for it.

    The job that an --after-gate run waited for is long over: what its verdict was is looked at before.
    """
    return ["--dependency=singleton", *excluding(exclude)]
