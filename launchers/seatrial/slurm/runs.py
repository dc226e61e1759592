"""Runs on disk and the jobs they were submitted as."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.state_records import JobRef


def job_reference(folder: RunFolder) -> JobRef:
    """Return the run's newest job, from its events."""
    submitted: dict[str, Any] = {}
    for event in records.read_lines(folder.events):
        if event.get("event") == "submitted":
            submitted = event
    slurm = submitted.get("executor") == "slurm"
    return JobRef(
        run_id=folder.path.name,
        job_id=str(submitted["job_id"]) if slurm else None,
        user=submitted.get("user"),
        submitted=submitted.get("submit_time"),
        folder=folder.path,
        cluster=submitted.get("cluster"),
    )


def list_runs(runs: Path) -> list[RunFolder]:
    """Return the runs under a folder, oldest first."""
    found = [RunFolder(path.parent) for path in runs.glob("*/spec.json")] if runs.is_dir() else []
    return sorted(found, key=lambda folder: _created(folder))


def _created(folder: RunFolder) -> str:
    try:
        return str((records.read_json(folder.spec) or {}).get("created", ""))
    except (OSError, json.JSONDecodeError):
        return ""


def at_most_every(seconds: float, question: Callable[[], bool]) -> Callable[[], bool]:
    """Return ``question`` asked at most every ``seconds``; between, the last answer stands."""
    asked_at, answer = float("-inf"), True

    def ask() -> bool:
        nonlocal asked_at, answer
        if time.monotonic() - asked_at >= seconds:
            answer, asked_at = question(), time.monotonic()
        return answer

    return ask
