"""A ``run.Script`` of a spec."""

from __future__ import annotations

import base64
import shlex
from pathlib import PurePosixPath
from typing import Any

from seatrial.check.data import check_data
from seatrial.check.findings import run_checks
from seatrial.check.storage import check_storage
from seatrial.check.vocabulary import check_vocabulary
from seatrial.errors import SeatrialError
from seatrial.interop.nemo_run.admitted import admitted
from seatrial.interop.nemo_run.executor import nemo_run
from seatrial.interop.nemo_run.parcel import Parcel, make_parcel
from seatrial.interop.nemo_run.portable import portable
from seatrial.slurm.admission_identity import identity
from seatrial.slurm.submit import prepare
from seatrial.spec.runspec import RunSpec

_KEY = "seatrial"  # in the task's metadata
# They look at the cluster's files, which need not be this machine's.
_LOOK_AT_FILES = (check_data, check_storage, check_vocabulary)
# NeMo-Run puts a path into a script wherever this stands.
_REPLACED = "/nemo_run"
_SCRIPT = """\
# Seatrial run {run_id}: its run folder is made on the batch host, and this process becomes its supervisor.
set -eu
archive=$(mktemp "${{TMPDIR:-/tmp}}/seatrial-XXXXXXXX")
base64 --decode > "$archive" <<'END'
{archive}END
exec {python} -u "$archive" "$0"
"""


def task(
    spec: RunSpec,
    *,
    gate: str | None = None,
    after: Any = None,
    no_gate: str | None = None,
    allow_dirty: bool = False,
    require_head: str | None = None,
) -> Any:
    """Return a ``run.Script`` that is a new run of ``spec``: carried by its supervisor, judged by its records.

    Each call makes a run of its own; ``run_folder`` says where it will lie. A convergence run needs what admits it:
    ``gate``, the folder of one that has passed; ``after``, a gate's task in the same experiment that it depends on; or
    ``no_gate``, the reason to do without. A source that differs from its commit is refused unless ``allow_dirty``.
    Raises SeatrialError for a spec that our checks find wrong, or that means nothing on another machine than this.
    """
    spec = portable(spec)
    _refuse_errors(spec)
    prepare(spec)  # a rehearsal's text
    admission = admitted(spec, gate, None if after is None else _facts(after), no_gate)
    parcel = make_parcel(spec, admission, allow_dirty=allow_dirty, require_head=require_head)
    facts = {"run_id": parcel.run_id, "folder": parcel.folder, "kind": spec.kind, "same": identity(spec)}
    return nemo_run().Script(inline=script(parcel, spec.profile["host_python"]), metadata={_KEY: facts})


def run_folder(task: Any) -> PurePosixPath:
    """Return where a task's run folder lies on the cluster. Raises SeatrialError where it is no task of ours."""
    return PurePosixPath(_facts(task)["folder"])


def script(parcel: Parcel, host_python: str) -> str:
    """Return the task's script. Pure."""
    archive = base64.encodebytes(parcel.archive).decode()
    return _SCRIPT.format(run_id=parcel.run_id, archive=archive, python=_quoted(host_python))


def _quoted(word: str) -> str:
    """Return a word for the shell in which NeMo-Run replaces nothing."""
    return "/''nemo_run".join(shlex.quote(part) if part else "" for part in word.split(_REPLACED))


def _facts(task: Any) -> dict[str, Any]:
    facts = (getattr(task, "metadata", None) or {}).get(_KEY)
    if facts is None:
        raise SeatrialError(
            "not a task of ours", value=repr(task)[:80], rule="what seatrial.interop.nemo_run.task gave"
        )
    return dict(facts)


def _refuse_errors(spec: RunSpec) -> None:
    """Raise SeatrialError for what is wrong with the spec, as far as that can be known on any machine."""
    errors = [finding for finding in run_checks(spec, without=_LOOK_AT_FILES) if finding.severity == "error"]
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more: seatrial check tells all)" if errors[1:] else ""
        raise SeatrialError(
            f"this run would not do{more}", file=first.file, key=first.field, value=first.value, rule=first.rule,
            fix=first.fix or None,
        )  # fmt: skip
