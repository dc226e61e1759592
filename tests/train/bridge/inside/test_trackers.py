"""Weights & Biases in Megatron-Bridge's loop: offline for real, and a failure that stops nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb

from seatrial.run.overrides import words
from seatrial.train.bridge import overrides, trackers
from seatrial.train.plan import Place, Tracker


@pytest.fixture
def state(recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The state of a run that asks for W&B offline, with our part installed; all of it is undone."""
    from megatron.bridge.training.state import GlobalState
    from megatron.bridge.training.utils import wandb_utils

    for owner, name in [
        (GlobalState, "wandb_logger"), (wandb_utils, "on_save_checkpoint_success"),
        (wandb_utils, "on_load_checkpoint_success"), (wandb, "log"), (wandb, "config"), (wandb, "finish"),
    ]:  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    tracker = Tracker(None, {"WANDB_MODE": "offline", "WANDB_RUN_ID": "a-run"})
    trackers.install(SimpleNamespace(tracker=tracker, attempt_folder=tmp_path), Place(0, 0, 1))  # type: ignore[arg-type]
    told = {
        "logger.wandb_project": "sea", "logger.wandb_exp_name": "a-run", "logger.wandb_save_dir": str(tmp_path),
        "dataset.mock": True,
    }  # fmt: skip
    made = GlobalState()
    made.cfg = overrides.apply(recipe, words(told))
    yield made
    wandb.teardown()


def test_it_logs_offline(state: Any, tmp_path: Path) -> None:
    logger = state.wandb_logger
    assert logger is wandb and wandb.run is not None and wandb.run.id == "a-run"
    logger.log({"lm loss": 1.0}, 1)
    logger.finish()
    assert list((tmp_path / "wandb").glob("offline-run-*-a-run")) and not (tmp_path / "wandb.json").exists()


def test_a_failure_stops_nothing(state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("no service")

    monkeypatch.setattr(wandb, "init", refuse)
    assert state.wandb_logger is None
    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("asked again"))
    assert state.wandb_logger is None
    assert "no service" in json.loads((tmp_path / "wandb.json").read_text())["trouble"]
