"""The watch over the batch host, kept on another node of the job.

With spare nodes a job outlives its nodes (--no-kill), the batch host too: Slurm then leaves it running, without a batch
process, until its time is up (seen on 24.11). A step on another node outlives that host, and puts the job back into the
queue. ``python .../supervise/watchman.py RUN_FOLDER JOB RESTART HOST`` is that step's program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

_HERE = Path(__file__).resolve()
if not __package__:
    # Run by path: Python put this folder on the path, where our module names would hide others.
    sys.path[:] = [str(_HERE.parents[2]), *(p for p in sys.path if Path(p or ".").resolve() != _HERE.parent)]

from seatrial.run import records  # noqa: E402
from seatrial.run.layout import RunFolder  # noqa: E402
from seatrial.supervise.ask import ask  # noqa: E402
from seatrial.supervise.job_watch import look  # noqa: E402
from seatrial.supervise.nodes import down  # noqa: E402
from seatrial.supervise.step import beside_words, srun_environment  # noqa: E402

EVENT = "batch_host_lost"
_EVERY_SECONDS = 10.0


class Watchman:
    """Keeps the watch as long as the supervisor lives. ``environment``: the batch process's own."""

    def __init__(self, python: str, run_folder: Path, environment: Mapping[str, str]) -> None:
        self._python, self._folder, self._environment = python, run_folder, environment
        self._process: Optional[subprocess.Popen[bytes]] = None

    def ensure(self, nodes: Sequence[str]) -> None:
        """See to it that the watch is kept, on the last of ``nodes`` that is not the batch host. Never raises."""
        host = self._environment.get("SLURMD_NODENAME", "")
        others = [node for node in nodes if node != host]
        if not host or not others or (self._process is not None and self._process.poll() is None):
            return
        job, restart = self._environment.get("SLURM_JOB_ID", ""), self._environment.get("SLURM_RESTART_COUNT") or "0"
        # Its output has nowhere to go once srun has died with the batch host.
        silent = ["--input=none", "--output=/dev/null", "--error=/dev/null"]
        program = [self._python, str(_HERE), str(self._folder), job, restart, host]
        words = [*beside_words("watchman", others[-1:]), *silent, *program]
        try:
            self._process = subprocess.Popen(
                words, env=srun_environment(self._environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError:
            self._process = None  # seatrial tend is the other way back

    def stop(self) -> None:
        """End the watch."""
        if self._process is None:
            return
        self._process.terminate()  # srun then ends its task
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watchman_of(job: Job) -> Optional[Watchman]:
    """Return who watches the batch host, where Slurm would not bring the job back: one that outlives its nodes.

    A gate's job is never put back.
    """
    profile = job.spec["profile"]
    if not job.may_requeue or not profile.get("spare_nodes") or job.spec["kind"] == "gate":
        return None
    return Watchman(str(profile["host_python"]), job.folder.path, os.environ)


def keep_watch(folder: RunFolder, job: str, restart: int, host: str, every: float = _EVERY_SECONDS) -> None:
    """Return once the job is no longer this start of it, or has been put back into the queue."""
    while True:
        time.sleep(every)
        facts = look(job)
        if facts is not None and (facts.taken_away(restart) or facts.state != "RUNNING"):
            return
        if facts is None or host not in down([host], os.environ):
            continue
        # Slurm gives a node that is down to nobody; whoever takes the run up leaves it out for longer.
        if ask(["scontrol", "requeue", job]) is not None:
            records.append_event(folder.events, EVENT, job_id=job, restart_count=restart, host=host)
            return


def main(arguments: Sequence[str]) -> int:
    """Keep watch as the command line says."""
    if len(arguments) != 4 or not arguments[2].isdecimal():
        print("usage: watchman.py RUN_FOLDER JOB RESTART HOST", file=sys.stderr)
        return 2
    folder, job, restart, host = arguments
    keep_watch(RunFolder(Path(folder)), job, int(restart), host)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
