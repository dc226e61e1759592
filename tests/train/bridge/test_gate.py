"""`seatrial gate --engine megatron-bridge` on CPU ranks: our supervisor and judge around Megatron-Bridge's own loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.run import records
from seatrial.spec.recipe import recipe_names
from tests.environments import gates
from tests.train.bridge.resolving import ENVIRONMENT

pytestmark = [pytest.mark.campaign, pytest.mark.train]


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_rehearsed_gate_passes(recipe: str, tmp_path: Path) -> None:
    folder, found = gates.passed(ENVIRONMENT, recipe, tmp_path, "--engine", "megatron-bridge")
    rules = {rule: result["verdict"] for rule, result in found.items()}
    assert rules["CUDA graphs"] == "PASS"
    assert "50 steps, 50 of them equal as printed" in found["resume check"]["seen"]
    assert rules["HybridEP dispatch"] == ("NOT JUDGED" if "qwen35_9b" in recipe else "PASS")
    assert {event["versions"]["megatron_bridge"] for event in gates.evidence(folder)} == {"0.5.1"}
    first = folder.attempts()[0]
    assert records.read_json(first.path / "bridge.json")["resolved"]["train.train_iters"] == 100
    assert "[seatrial] engine: megatron-bridge 0.5.1, recipe " in (first.path / "rank-00000.log").read_text()
