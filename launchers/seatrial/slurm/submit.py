"""Submission: from a checked RunSpec to a run folder and a started job."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.check.deep import need_megatron
from seatrial.data import text
from seatrial.run import records
from seatrial.run.layout import RunFolder, new_run_id
from seatrial.run.reference import read_reference
from seatrial.slurm.admission import Admission
from seatrial.slurm.admission_identity import curve_identity, identity
from seatrial.slurm.client import JobId, Slurm, SubmissionUnclear
from seatrial.slurm.local import submit_local
from seatrial.slurm.runs import at_most_every, job_reference
from seatrial.slurm.script import batch_script
from seatrial.slurm.snapshot import write_code
from seatrial.slurm.state import states
from seatrial.spec.arguments import arguments
from seatrial.spec.failures import load_failures
from seatrial.spec.provenance import Source, provenance, require_clean, source_root
from seatrial.spec.runspec import RunSpec
from seatrial.supervise.excluded import Excluded

if TYPE_CHECKING:
    import submitit

_ASK_SECONDS = 10.0
_ACCEPTED = "job_id"  # from here on the folder is a job's: no failure of ours may remove it


@dataclass(frozen=True)
class Submission:
    """A submitted run: its folder, a question whether its job still runs, and the nodes that it must not get."""

    folder: RunFolder
    alive: Callable[[], bool]
    excluded: tuple[str, ...] = ()


def prepare(spec: RunSpec) -> None:
    """Build what a rehearsal needs once on this machine: the English text, where the data asks for it."""
    folder = spec.profile["paths"]["data"]
    if any("help-topics-" in str(item) for item in spec.get("data_path") or []):
        text.ensure_text(folder)


def placed(spec: RunSpec) -> RunSpec:
    """Return the spec with what depends on where it is submitted: absolute paths, and the interpreters."""
    profile = dict(spec.profile)
    runs = str(Path(profile["paths"]["runs"]).expanduser().resolve())
    profile["paths"] = dict(profile["paths"]) | {"runs": runs}
    if profile["host_python"] == "python3":
        profile["host_python"] = sys.executable
    if profile["rank_python"] is None:
        profile["rank_python"] = profile["container"]["python"] if profile["container"]["image"] else sys.executable
    return replace(spec, profile=profile)


def submit(
    spec: RunSpec,
    *,
    allow_dirty: bool = False,
    require_head: str | None = None,
    dependency: str | None = None,
    admission: Admission | None = None,
    hold: bool = False,
    options: Sequence[str] = (),
    group: str | None = None,
    slurm: Slurm | None = None,
) -> Submission:
    """Write the run folder and start the job. Nothing is left behind where that fails.

    On Slurm, what runs is a snapshot of this source: a tree that differs from its commit is refused unless
    ``allow_dirty``, which records the difference; ``require_head`` refuses any other commit. A rehearsal on this
    machine runs the source as it stands, and records its commit and state. ``admission`` is what lets a convergence run
    start; ``dependency`` and ``hold`` (the job does not start before it is released) are of Slurm's. ``options``:
    further words for sbatch, which win over the script's. ``group``: the id of the run's group, for its record.
    Raises SeatrialError; SubmissionUnclear where a job may have been accepted: the run folder is kept then.
    """
    spec = placed(spec)
    if spec.reference is not None:
        read_reference(Path(str(spec.reference["file"])))
    run_id = new_run_id(spec.recipe, spec.kind)
    local = spec.profile["executor"] == "local"
    if local:
        need_megatron("a run on this machine", spec)
    script = None if local else batch_script(spec, run_id, dependency=dependency)
    source = require_clean(source_root(), allow_dirty or local, require_head)
    folder = RunFolder.create(Path(spec.profile["paths"]["runs"]) / run_id)
    try:
        write_run(folder, spec, source, script, admission, group)
        if script is None:
            job = start_local(folder, spec)
            return Submission(folder, lambda: not job.done())
        # Nodes that somebody asks for by name are wanted, whatever other runs have met there.
        named = any(option.startswith("--nodelist") for option in options)
        excluded = [] if named else Excluded(spec.profile, run_id).nodes()
        return _start_slurm(folder, run_id, slurm or Slurm(), [*(["--hold"] if hold else []), *options], excluded)
    except SubmissionUnclear:
        raise
    except BaseException:
        if not (folder.path / _ACCEPTED).exists():
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def write_run(
    folder: RunFolder,
    spec: RunSpec,
    source: Source,
    script: str | None,
    admission: Admission | None = None,
    group: str | None = None,
) -> None:
    """Write what a run is into its new folder, which has the run's id as its name: spec, code, script, first events.

    ``script`` None: the run starts on this machine, from the source as it stands.
    """
    run_id = folder.path.name
    document = spec_document(spec, run_id, source, admission) | ({"group": group} if group else {})
    source.write_diff(folder.path)
    if script is not None:
        document["code"] = write_code(folder.path / "code").record()
        (folder.path / "batch.sh").write_text(script)
    if spec.reference is not None:
        shutil.copyfile(str(spec.reference["file"]), folder.reference)
    records.write_json(folder.spec, document)
    records.append_event(folder.events, "created", run_id=run_id, hash=spec.content_hash)
    if admission:
        records.append_event(folder.events, "admission", **admission.to_json())


def _start_slurm(
    folder: RunFolder, run_id: str, slurm: Slurm, options: Sequence[str], excluded: Sequence[str]
) -> Submission:
    words = ["sbatch", *options, *excluding(excluded), str(folder.path / "batch.sh")]
    send(folder, lambda: slurm.submit(words, run_id), excluded=list(excluded))
    reference = job_reference(folder)
    alive = at_most_every(_ASK_SECONDS, lambda: not states([reference], slurm)[run_id].final)
    return Submission(folder, alive, tuple(excluded))


def excluding(nodes: Sequence[str]) -> list[str]:
    """Return sbatch's option that leaves ``nodes`` out; none where there are none."""
    return [f"--exclude={','.join(nodes)}"] if nodes else []


def start_local(folder: RunFolder, spec: RunSpec, **details: Any) -> submitit.Job[None]:
    """Start the run's supervisor on this machine, and put that on record, with ``details``; return its job."""
    # Here is no queue to go back to: what carries a run over many slots elsewhere needs one without end.
    asked = records.now()
    job = submit_local(folder.path, spec.profile["time_limit_minutes"] if spec.kind == "gate" else None)
    records.append_event(
        folder.events, "submitted", executor="local", job_id=job.job_id, submit_time=asked, host=socket.gethostname(),
        **details,
    )  # fmt: skip
    return job


def send(folder: RunFolder, sbatch: Callable[[], JobId], **details: Any) -> JobId:
    """Submit a run by ``sbatch``, leave what submitit needs to start it, and put it on record, with ``details``."""
    from seatrial.slurm.executor import Executor
    from seatrial.supervise.main import job

    asked = records.now()
    accepted: list[JobId] = []

    def submitted() -> str:
        accepted.append(sbatch())
        (folder.path / _ACCEPTED).write_text(f"{accepted[0].number}\n")
        return accepted[0].number

    Executor(folder.path / "submitit", submitted).submit(job, str(folder.path))
    records.append_event(
        folder.events, "submitted", executor="slurm", job_id=accepted[0].number, cluster=accepted[0].cluster,
        adopted=accepted[0].adopted, submit_time=asked, user=str(os.getuid()), **details,
    )  # fmt: skip
    return accepted[0]


def spec_document(spec: RunSpec, run_id: str, source: Source, admission: Admission | None = None) -> dict[str, Any]:
    """Return what spec.json holds: the spec and what only submission knows."""
    return spec.to_json() | {
        "run_id": run_id,
        "arguments": arguments(spec),
        "same": identity(spec),
        "curve": curve_identity(spec),
        "admission": admission.to_json() if admission else None,
        "failures": load_failures(site=spec.profile["use_site_file"]),
        "provenance": provenance(source),
        "created": records.now(),
    }
