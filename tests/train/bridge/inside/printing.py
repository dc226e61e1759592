"""Let Megatron-Bridge's own logging code print a run with every kind of line that we read; nothing is trained."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from types import SimpleNamespace
from typing import Any

import torch

from seatrial.run.overrides import words
from seatrial.train.bridge import overrides, recipes
from tests.train.harness import free_port

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_LOOSE = re.compile(r"(Step Time : |utilization: |\(ms\): |TFLOP/s/GPU\): |program after )[0-9.]+")
NAN, INF = float("nan"), float("inf")

# (loss, skipped, gradient norm) of steps 1, 2, ...
STEPS = (
    (12.25, 0, 3.5), (11.5, 0, 2.25), (10.125, 0, 1.0), (NAN, 1, None), (9.75, 0, INF), (NAN, 0, NAN), (INF, 0, 7.0),
    (9.5, 0, 1.5),
)  # fmt: skip


def printed(recipe: str = "nemotron_3_nano_gb200_pretrain_config") -> str:
    """Return the log of steps that went well, were skipped, and were none; evaluations, and every way to leave."""
    config, state, groups = _set_up(recipe)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        _steps(config, state, groups)
        _evaluations(state, config)
        _leave(state, groups)
    return masked(said.getvalue())


def masked(text: str) -> str:
    """Return ``text`` with the time of day and measured times made the same."""
    return _LOOSE.sub(r"\g<1>350.5", _TIME.sub("2026-07-20 12:00:00", text))


def _set_up(recipe: str) -> tuple[Any, Any, Any]:
    from megatron.bridge.training.config import runtime_config_update
    from megatron.bridge.training.state import GlobalState
    from megatron.core import parallel_state
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.process_groups_config import ProcessGroupCollection

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        init_num_microbatches_calculator(0, None, 16, 2, 1, False)
    told = {
        "dataset.mock": True, "train.train_iters": len(STEPS), "train.global_batch_size": 16, "logger.log_interval": 1,
        "logger.log_throughput": True, "logger.tensorboard_dir": None, "logger.log_timers_to_tensorboard": False,
        "scheduler.lr_warmup_iters": 2, "checkpoint.save": None, "checkpoint.load": None, "model.vocab_size": 131072,
        "model.moe_permute_fusion": False, "model.expert_model_parallel_size": 1,
    }  # fmt: skip
    config = overrides.apply(recipes.load(recipe).config, words(told))
    runtime_config_update(config)
    config.model.num_moe_experts = None  # its auxiliary losses are gathered while the model runs
    state = GlobalState()
    state.cfg = config
    return config, state, ProcessGroupCollection.use_mpu_process_groups()


def _steps(config: Any, state: Any, groups: Any) -> None:
    from megatron.bridge.training.utils.train_utils import training_log

    totals: dict[str, Any] = {}
    state.timers("interval-time", log_level=0).start()
    for loss, skipped, norm in STEPS:
        state.train_state.step += 1
        state.train_state.consumed_train_samples += 16
        training_log(
            {"lm loss": torch.tensor([loss])}, totals, 1.6e-3, None, 1.0, False, skipped, norm, None, None, config,
            state, [], [], groups, seq_length=4096,
        )  # fmt: skip


def _evaluations(state: Any, config: Any) -> None:
    loop = importlib.import_module("megatron.bridge.training.eval")
    own, step = loop.evaluate, state.train_state.step
    loop.evaluate = lambda *_, **__: ({"lm loss": torch.tensor(9.25)}, None, False)
    try:
        for where in ("", " on validation set", " on test set"):
            loop.evaluate_and_print_results(
                state, f"iteration {step}{where}", None, None, [], config.model, write_to_tensorboard=False
            )
    finally:
        loop.evaluate = own


def _leave(state: Any, groups: Any) -> None:
    loop = importlib.import_module("megatron.bridge.training.train")
    train = state.cfg.train

    def leave() -> None:
        assert loop.checkpoint_and_decide_exit(state, [], None, None, 0.0, SimpleNamespace(), None, groups)

    train.exit_interval = state.train_state.step
    leave()
    train.exit_interval, train.exit_duration_in_mins = None, 1e-9
    leave()
    train.exit_duration_in_mins, train.exit_signal_handler = None, True
    state.signal_handler._signal_received = True
    leave()
