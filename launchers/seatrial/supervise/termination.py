"""Why Slurm ended this job: its step daemon writes one line to the batch log, even where nobody can be asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from seatrial.supervise.ask import ask

# slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-12-02T16:40:34 DUE TO PREEMPTION ***
_LINE = re.compile(r"\*\*\* JOB (\d+) ON \S+ CANCELLED AT \S+?(?: DUE TO ([A-Z ]+?)(?:, [^*]*)?)? \*\*\*")
_STATES = {
    "PREEMPTION": "PREEMPTED", "JOB REQUEUE": "REQUEUED", "TIME LIMIT": "TIMEOUT", "NODE FAILURE": "NODE_FAIL",
    "": "CANCELLED",
}  # fmt: skip
_TAIL = 1 << 16


def batch_log(folder: Path, job: str) -> Path:
    """Return where the batch script of ``job`` has its output."""
    return folder / f"batch-{job}.log"


def size(log: Path) -> int:
    """Return the log's length in bytes; 0 where there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def said_in(log: Path, job: str, since: int = 0) -> Optional[str]:
    """Return Slurm's word for the end of ``job`` from byte ``since`` of its batch log on; None where it has none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(since, size(log) - _TAIL))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return None
    found = [reason for number, reason in _LINE.findall(text) if number == job]
    return _STATES.get(found[-1].strip()) if found else None


def all_said_in(log: Path, job: str) -> list[str]:
    """Return Slurm's words for the ends of all starts of ``job``, oldest first: all write into one log."""
    try:
        text = log.read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    return [_STATES.get(reason.strip(), "") for number, reason in _LINE.findall(text) if number == job]


def accounted(job: str, restart: int, environment: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """Return what accounting says of start ``restart`` (from 0) of ``job``: state, exit_code, derived_exit_code.

    Empty where it does not answer, or knows nothing of it yet. The records of one job come oldest first.
    """
    names = ("state", "exit_code", "derived_exit_code", "nodes")
    words = ["sacct", "--duplicates", "--allocations", "--noheader", "--parsable2", f"--jobs={job}",
             "--format=State,ExitCode,DerivedExitCode,NodeList"]  # fmt: skip
    lines = (ask(words, environment) or "").splitlines()
    rows = [dict(zip(names, line.split("|"))) for line in lines if line.count("|") == len(names) - 1]
    # A job that lost a node and went on has a record of its own for the time before.
    rows = [row for row in rows if row["state"] != "RESIZING"]
    if restart >= len(rows):
        return {}
    return {**rows[restart], "state": rows[restart]["state"].split(" ")[0]}
