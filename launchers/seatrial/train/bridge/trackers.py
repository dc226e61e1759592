"""Weights & Biases in Megatron-Bridge's loop: whatever becomes of it, the steps go on (see ``train.trackers``)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from .. import trackers
from ..plan import Place, Plan


def install(plan: Plan, place: Place) -> None:
    """Prepare the rank that logs, Bridge's last one. Before the loop begins."""
    if place.rank != place.world_size - 1:
        return
    utils: Any = importlib.import_module("megatron.bridge.training.utils.wandb_utils")
    utils.on_save_checkpoint_success = utils.on_load_checkpoint_success = lambda *_, **__: None
    loop: Any = importlib.import_module("megatron.bridge.training.pretrain")
    loop.evaluate_and_print_results = trackers.always_written(loop.evaluate_and_print_results)
    if plan.tracker is None:
        return
    trackers.set_environment(plan.tracker, os.environ)
    report = trackers.Report(plan.attempt_folder / "wandb.json", plan.tracker.key, os.environ)
    state: Any = importlib.import_module("megatron.bridge.training.state").GlobalState
    state.wandb_logger = property(_guarded(state.wandb_logger.fget, report))


def _guarded(own: Callable[[Any], Any], report: trackers.Report) -> Callable[[Any], Any]:
    """Return the getter that begins the W&B run as ``own`` does, and asks no more where that failed."""

    def logger(state: Any) -> Any:
        if state._wandb_logger is None and state.cfg.logger.wandb_project:
            trackers.start(lambda _: own(state), report, None)
            if state._wandb_logger is None:
                state.cfg.logger.wandb_project = None
        return state._wandb_logger

    return logger
