"""Submission: from a checked RunSpec to a run folder and a started job."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.check.deep import need_megatron
from seatrial.data import text
from seatrial.run import records
from seatrial.run.layout import RunFolder, new_run_id
from seatrial.slurm.local import submit_local
from seatrial.slurm.script import batch_script
from seatrial.spec.arguments import arguments
from seatrial.spec.provenance import provenance
from seatrial.spec.runspec import RunSpec


@dataclass(frozen=True)
class Submission:
    """A submitted run: its folder, and a question whether its job still runs."""

    folder: RunFolder
    alive: Callable[[], bool]


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


def submit(spec: RunSpec) -> Submission:
    """Write the run folder and start the job. Nothing is left behind where that fails."""
    local = spec.profile["executor"] == "local"
    if local:
        need_megatron("a run on this machine")
    spec = placed(spec)
    run_id = new_run_id(spec.recipe, spec.kind)
    script = None if local else batch_script(spec, run_id)
    folder = RunFolder.create(Path(spec.profile["paths"]["runs"]) / run_id)
    try:
        records.write_json(folder.spec, spec_document(spec, run_id))
        records.append_event(folder.events, "created", run_id=run_id, hash=spec.content_hash)
        if script is None:
            job = submit_local(folder.path, spec.profile["time_limit_minutes"])
            records.append_event(folder.events, "submitted", executor="local", job_id=job.job_id)
            return Submission(folder, lambda: not job.done())
        raise NotImplementedError
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def spec_document(spec: RunSpec, run_id: str) -> dict[str, object]:
    """Return what spec.json holds: the spec and what only submission knows."""
    return spec.to_json() | {
        "run_id": run_id,
        "arguments": arguments(spec),
        "provenance": provenance(),
        "created": records.now(),
    }
