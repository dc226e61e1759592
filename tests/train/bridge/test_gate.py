"""`seatrial gate --engine megatron-bridge` on CPU ranks: our supervisor and judge around Megatron-Bridge's own loop."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.spec.recipe import recipe_names
from tests.environments.build import build
from tests.train.bridge.resolving import ENVIRONMENT, ROOT

pytestmark = [pytest.mark.campaign, pytest.mark.train]


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_rehearsed_gate_passes(recipe: str, tmp_path: Path) -> None:
    settings = ("profile.megatron_core=0.18.2", f"profile.paths.runs={tmp_path}")
    words = [word for setting in settings for word in ("--set", setting)]
    command = ["gate", recipe, "--profile", "local-cpu", "--engine", "megatron-bridge", "--resume-check", *words]
    done = subprocess.run(
        [str(build(ENVIRONMENT)), "-W", "ignore", "-m", "seatrial", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    folder = RunFolder(next(tmp_path.iterdir()))
    verdict = records.read_json(folder.verdict)
    rules = {rule["rule"]: rule["verdict"] for rule in verdict["rules"]}
    assert (verdict["verdict"], rules["resume check"], rules["CUDA graphs"]) == ("PASS", "PASS", "PASS")
    (again,) = [rule["seen"] for rule in verdict["rules"] if rule["rule"] == "resume check"]
    assert "50 steps, 50 of them equal as printed" in again
    assert rules["HybridEP dispatch"] == ("NOT JUDGED" if "qwen35_9b" in recipe else "PASS")
    seen = [event for event in records.read_lines(folder.events) if event["event"] == "evidence"]
    assert {event["versions"]["megatron_bridge"] for event in seen} == {"0.5.1"}
    first = folder.attempts()[0]
    assert records.read_json(first.path / "bridge.json")["resolved"]["train.train_iters"] == 100
    assert "[seatrial] engine: megatron-bridge 0.5.1, recipe " in (first.path / "rank-00000.log").read_text()
