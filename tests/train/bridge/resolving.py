"""What Megatron-Bridge, in its own environment, makes of a recipe of ours; the login side's words, the rank's code."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from seatrial.run.layout import RunFolder
from seatrial.run.overrides import words
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from seatrial.supervise.bridge import ranks_part
from seatrial.supervise.resume import Start
from tests.environments.build import build

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = "megatron-bridge"
ENGINE = ("engine", "megatron-bridge")
DATA = ("data.data_path", "[0.3, /data/a b, 0.7, /data/c]")
RUNS = {"gate": "gb200-8gpu", "convergence": "gb200-64gpu"}
FOLDER = RunFolder(Path("/runs/a run"))


def spec_of(recipe: str, kind: str, *settings: tuple[str, str]) -> RunSpec:
    """Return what the login side resolves for the engine."""
    return resolve(recipe, RUNS[kind], kind, [ENGINE, DATA, *settings])


def plan_of(spec: RunSpec, *, start: Start | None = None, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the supervisor writes for the ranks, as far as this engine reads it."""
    document = {"bridge": spec.bridge, "profile": {}, "run_id": "a", "recipe": "", "rehearsal": False}
    part = ranks_part(document, FOLDER, start or Start(None, "the first attempt"), 30, None)
    assert part is not None
    return {
        "bridge": {"recipe": part["recipe"], "overrides": [*part["overrides"], *words(more or {})]},
        "world_size": spec.world_size,
    }


def ask(plan: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Let the rank side resolve ``plan`` in Megatron-Bridge's environment."""
    return subprocess.run(
        [str(build(ENVIRONMENT)), "-W", "ignore", "-m", "seatrial.train.bridge.resolve", json.dumps(plan)],
        cwd=ROOT / "launchers", capture_output=True, text=True,
    )  # fmt: skip


def report_of(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the report on a plan that Bridge takes."""
    done = ask(plan)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@cache
def resolved(recipe: str, kind: str) -> dict[str, Any]:
    """Return the report for a recipe of ours as a kind runs it."""
    return report_of(plan_of(spec_of(recipe, kind)))
