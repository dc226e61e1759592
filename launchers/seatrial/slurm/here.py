"""A run inside an allocation that is there already (``salloc``): its supervisor runs in the foreground, over srun."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder, new_run_id
from seatrial.slurm.snapshot import python_path, write_code
from seatrial.slurm.submit import Submission, placed, spec_document
from seatrial.spec.provenance import require_clean, source_root
from seatrial.spec.runspec import RunSpec

# What SLURM_STEP_ID is in the shell of an salloc that itself is a step; such a step holds none of the resources.
_INTERACTIVE_STEP = "4294967290"


def run_here(spec: RunSpec, *, allow_dirty: bool = False, require_head: str | None = None) -> Submission:
    """Write the run folder and start its supervisor as a child of this process, on the allocation that we are in.

    The supervisor is what the batch process of a job would be: the code snapshot, on the host's Python, its output in
    ``batch-<job>.log``. From then on Ctrl-C and SIGTERM go to it: once to save and end, twice to end at once.
    Raises SeatrialError outside an allocation, or where it is too small; then no run folder is left behind.
    """
    spec = placed(spec)
    job = require_allocation(spec, os.environ)
    run_id = new_run_id(spec.recipe, spec.kind)
    source = require_clean(source_root(), allow_dirty, require_head)
    folder = RunFolder.create(Path(spec.profile["paths"]["runs"]) / run_id)
    try:
        document = spec_document(spec, run_id, source)
        source.write_diff(folder.path)
        document["code"] = write_code(folder.path / "code").record()
        records.write_json(folder.spec, document)
        records.append_event(folder.events, "created", run_id=run_id, hash=spec.content_hash)
        process = _start(folder, spec, job)
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    _forward_signals(process)
    return Submission(folder, lambda: process.poll() is None)


def require_allocation(spec: RunSpec, environment: Mapping[str, str]) -> str:
    """Return the number of the job that this process is in. Raises SeatrialError where the run cannot start there."""
    if spec.profile["executor"] != "slurm":
        raise SeatrialError(
            "--here is for Slurm, and this profile runs on this machine anyway", key="profile.executor",
            value=spec.profile["executor"], fix="leave --here out, or name a Slurm profile",
        )  # fmt: skip
    job = environment.get("SLURM_JOB_ID", "")
    nodes = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or "0"
    wanted = int(spec.profile["nodes"])
    words = f"salloc --nodes={wanted}"
    if not job:
        raise SeatrialError("this is not inside an allocation: SLURM_JOB_ID is unset", fix=f"{words} …, then again")
    if nodes.isdecimal() and int(nodes) < wanted:
        raise SeatrialError(
            f"the allocation has {nodes} nodes, the run needs {wanted}", key="profile.nodes", value=wanted,
            fix=f"{words} …, or --set profile.nodes={nodes}",
        )  # fmt: skip
    if environment.get("SLURM_STEP_ID", _INTERACTIVE_STEP) != _INTERACTIVE_STEP:
        raise SeatrialError(
            "this shell is a job step itself, and holds what the run's step would need",
            value=f"SLURM_STEP_ID={environment['SLURM_STEP_ID']}",
            fix=f"{words} …, without srun --pty",
        )
    return job


def _start(folder: RunFolder, spec: RunSpec, job: str) -> subprocess.Popen[bytes]:
    wanted = spec.profile["host_python"]
    python = shutil.which(wanted) or sys.executable
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": python_path(folder.path / "code")}
    asked = records.now()
    with (folder.path / f"batch-{job}.log").open("ab") as log:
        process = subprocess.Popen(
            [python, "-u", "-m", "seatrial.supervise", str(folder.path)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder.path,
            start_new_session=True,
        )  # fmt: skip
    records.append_event(
        folder.events, "submitted", executor="here", job_id=job, host=socket.gethostname(), pid=process.pid,
        submit_time=asked,
    )  # fmt: skip
    return process


def _forward_signals(process: subprocess.Popen[bytes]) -> None:
    """Let what asks this process to end ask the supervisor, which saves first."""
    asked = 0

    def forward(number: int, _: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        said = "asked to save and end; once more ends it at once" if asked == 1 else "ending at once"
        print(f"\n{said}", file=sys.stderr, flush=True)
        if process.poll() is None:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
