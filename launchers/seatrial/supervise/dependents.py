"""Runs that wait for this gate: where it does not pass, they are cancelled and told why, not left pending for ever."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import classes, exit_codes
from seatrial.supervise.ask import ask

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

FILE = "dependents.json"  # in the gate's folder: the runs that its supervisor cancels unless it passes


def cancel_dependents(job: Job, reason: str) -> None:
    """Cancel what waits for this run, and put into its records that what it waited for has failed. Never raises."""
    for dependent in _read(job.folder.path / FILE):
        number, folder = str(dependent.get("job_id")), Path(str(dependent.get("folder")))
        cluster = [f"--clusters={dependent['cluster']}"] if dependent.get("cluster") else []
        done = number.isdecimal() and ask(["scancel", *cluster, number]) is not None
        words = f"the gate {job.folder.path.name} did not pass: {reason}"
        job.journal.event("dependent_cancelled", run=folder.name, job_id=number, cancelled=done)
        job.journal.say(f"{'cancelled' if done else 'could not cancel'} {folder.name}, which waited for this gate")
        try:
            if (folder / "spec.json").is_file():
                record_failed_dependency(RunFolder(folder), words)
        except OSError as error:
            job.journal.say(f"cannot write to {folder}: {error}")


def record_failed_dependency(folder: RunFolder, reason: str) -> None:
    """Put the end of a run on record whose gate did not pass. Raises OSError."""
    records.append_event(
        folder.events, "decision", decision="stop", action="stop", reason=reason,
        exit_code=exit_codes.DEPENDENCY_FAILED, **{"class": classes.DEPENDENCY_FAILED},
    )  # fmt: skip


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        data = records.read_json(path)
    except (OSError, ValueError):
        return []
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []


def gate_refuses(spec: Mapping[str, Any]) -> Optional[str]:
    """Return why a run that waited for a gate may not start: that has not passed; None where it may."""
    admission = spec.get("admission") or {}
    if admission.get("how") != "after-gate":
        return None
    verdict = (records.read_object(Path(str(admission["folder"])) / "verdict.json") or {}).get("verdict")
    if verdict == "PASS":
        return None
    return f"the gate {admission.get('gate')} that it waits for has not passed: {verdict or 'it has no verdict'}"
