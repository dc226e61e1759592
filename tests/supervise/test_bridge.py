"""What the run tells Megatron-Bridge at each attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.run.layout import RunFolder
from seatrial.spec.owners import BRIDGE_RUN_OWNED
from seatrial.supervise.plan import make_plan
from seatrial.supervise.resume import Start
from seatrial.train.plan import Bridge, plan_from_json

SPEC: dict[str, Any] = {
    "run_id": "r", "recipe": "nano", "kind": "gate", "megatron_core": "0.18.2", "world_size": 2, "rehearsal": False,
    "profile": {"device": "cuda", "name": "gb200-8gpu"}, "environment": {}, "arguments": ["--bf16"], "fields": {
        "schedule.train_iters": {"value": 100},
    }, "bridge": {"recipe": "my_config", "overrides": ["train.train_iters=100"]},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run's own")


def values(folder: RunFolder, start: Start, minutes_left: float | None = None, **changes: Any) -> dict[str, str]:
    plan = make_plan(SPEC | changes, folder, folder.new_attempt(), start, True, minutes_left)
    told = plan_from_json(plan).bridge
    assert isinstance(told, Bridge)
    assert told.recipe == "my_config"
    assert told.overrides[0] == "train.train_iters=100"
    found = dict(word.split("=", 1) for word in told.overrides[1:])
    assert set(found) - {"checkpoint.load_optim"} <= BRIDGE_RUN_OWNED
    return found


def test_the_first_attempt_looks_for_no_checkpoint(folder: RunFolder) -> None:
    found = values(folder, Start(None, "the first attempt"))
    assert found["checkpoint.load"] == "null"
    assert found["checkpoint.save"] == f'"{folder.checkpoints}"'
    assert found["train.exit_signal_handler"] == "true"
    assert "checkpoint.ckpt_step" not in found
    assert "train.exit_duration_in_mins" not in found


def test_a_later_attempt_names_its_checkpoint_and_will_not_begin_anew(folder: RunFolder) -> None:
    found = values(folder, Start(50, "whole"), minutes_left=240)
    assert found["checkpoint.load"] == found["checkpoint.save"]
    assert found["checkpoint.ckpt_step"] == "50"
    assert found["checkpoint.exit_on_missing_checkpoint"] == "true"
    assert found["train.exit_duration_in_mins"] == "238"


def test_the_final_evaluation_alone(folder: RunFolder) -> None:
    assert values(folder, Start(100, "", evaluate_only=True))["validation.skip_train"] == "true"


def test_weights_and_biases(folder: RunFolder) -> None:
    wandb = {"enabled": True, "project": "p", "entity": None, "mode": "offline", "key": "KEY"}
    found = values(folder, Start(None, ""), profile={**SPEC["profile"], "wandb": wandb})
    assert (found["logger.wandb_project"], found["logger.wandb_exp_name"]) == ('"p"', '"r"')


def test_megatron_core_is_told_nothing_of_it(folder: RunFolder) -> None:
    plan = make_plan(SPEC | {"bridge": None}, folder, folder.new_attempt(), Start(None, ""))
    assert plan["bridge"] is None
    assert plan_from_json(plan).bridge is None
