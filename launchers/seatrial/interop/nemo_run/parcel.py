"""What a task carries: the run folder as ``seatrial gate`` would have written it, in an archive that Python can run."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from seatrial.interop.nemo_run import begin
from seatrial.run.layout import RunFolder, new_run_id
from seatrial.run.reference import read_reference
from seatrial.slurm.admission import Admission
from seatrial.slurm.script import batch_script
from seatrial.slurm.submit import write_run
from seatrial.spec.provenance import require_clean, source_root
from seatrial.spec.runspec import RunSpec


@dataclass(frozen=True)
class Parcel:
    """``folder``: the run folder's path on the cluster. ``archive``: what Python runs on the batch host."""

    run_id: str
    folder: str
    archive: bytes


def make_parcel(
    spec: RunSpec, admission: Admission | None = None, *, allow_dirty: bool = False, require_head: str | None = None
) -> Parcel:
    """Return the parcel of a new run. Nothing is left on this machine. Raises SeatrialError as ``submit`` does."""
    run_id = new_run_id(spec.recipe, spec.kind)
    script = batch_script(spec, run_id)
    source = require_clean(source_root(), allow_dirty, require_head)
    path = f"{spec.profile['paths']['runs']}/{run_id}"
    with tempfile.TemporaryDirectory(prefix="seatrial-") as aside:
        folder = RunFolder.create(Path(aside) / run_id)
        if spec.reference is not None:
            read_reference(Path(str(spec.reference["file"])))
        # Its script is ours, by which tend and requeue bring the run back: without NeMo-Run.
        write_run(folder, spec, source, script, admission)
        _write_pickle(folder.path / "submitit", path)
        facts = {"run_id": run_id, "folder": path, "kind": spec.kind}
        return Parcel(run_id, path, _archive(folder.path, facts))


def _write_pickle(folder: Path, run_folder: str) -> None:
    """Leave what submitit starts the supervisor from, should the run's own script be submitted one day."""
    from submitit.core.utils import DelayedSubmission

    from seatrial.supervise.main import job

    folder.mkdir(mode=0o700)
    DelayedSubmission(job, run_folder).dump(folder / "0_submitted.pkl")


def _archive(folder: Path, facts: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("__main__.py", Path(begin.__file__).read_text())
        archive.writestr(begin.FACTS, json.dumps(facts))
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{begin.TREE}{path.relative_to(folder).as_posix()}")
    return stream.getvalue()
