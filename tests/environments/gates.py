"""A rehearsed gate by the command that a user types, in an environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.environments.build import REPO, build


def passed(environment: str, recipe: str, runs: Path, *words: str) -> tuple[RunFolder, dict[str, dict[str, Any]]]:
    """Run a gate with a resume check on megatron-core 0.18.2 that must PASS; return its folder, and rule -> result."""
    settings = ("profile.megatron_core=0.18.2", f"profile.paths.runs={runs}")
    command = ["gate", recipe, "--profile", "local-cpu", "--resume-check", *words]
    command += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [str(build(environment)), "-W", "ignore", "-m", "seatrial", *command], cwd=REPO, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    folder = RunFolder(next(path for path in runs.iterdir() if not path.name.startswith(".")))
    verdict = records.read_json(folder.verdict)
    assert verdict["verdict"] == "PASS"
    rules = {rule["rule"]: rule for rule in verdict["rules"]}
    assert rules["resume check"]["verdict"] == "PASS"
    return folder, rules


def evidence(folder: RunFolder) -> list[dict[str, Any]]:
    """Return what rank 0 saw, line by line."""
    return [event for event in records.read_lines(folder.events) if event["event"] == "evidence"]
