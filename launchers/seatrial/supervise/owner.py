"""Whose a run is. A supervisor can outlive its job: its node's slurmd dies, Slurm starts the job elsewhere, and two
would write into one folder. The newer one says so in a file, and the older one ends."""

from __future__ import annotations

import os
import socket
import time

from seatrial.run import records
from seatrial.run.layout import RunFolder

_EVERY_SECONDS = 1.0


class Owner:
    """The claim of this supervisor. ``job``, ``restart``: of its Slurm job."""

    def __init__(self, folder: RunFolder, job: str, restart: int) -> None:
        self._path = folder.path / "supervisor.json"
        self._claim = {
            "job": job, "restart": restart, "host": socket.gethostname(), "pid": os.getpid(), "time": records.now()
        }  # fmt: skip
        self._looked_at = float("-inf")

    def may_replace(self) -> bool:
        """Whether the supervisor on record is an older start of this job, or of an earlier job of this run.

        A job of the same run waits for the one before to be over (singleton), so another number is a newer job.
        """
        other = records.read_object(self._path)
        if other is None or other.get("job") != self._claim["job"]:
            return True
        return int(other.get("restart") or 0) < int(str(self._claim["restart"]))

    def claim(self) -> None:
        """Say that the run is this supervisor's. Raises OSError."""
        records.write_json(self._path, self._claim)

    def lost(self) -> bool:
        """Whether another one has claimed the run since. Looks once a second; what cannot be read says nothing."""
        now = time.monotonic()
        if now - self._looked_at < _EVERY_SECONDS:
            return False
        self._looked_at = now
        other = records.read_object(self._path)
        return other is not None and other != self._claim
