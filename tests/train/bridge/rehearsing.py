"""Start ranks of the Megatron-Bridge engine without a GPU: its own loop, a recipe shrunk as a rehearsal shrinks it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from seatrial.run.overrides import words
from seatrial.spec.bridge import KEYS
from seatrial.spec.resolve import resolve
from seatrial.spec.schema import load_schema
from tests.environments.build import build
from tests.train.bridge.resolving import ENGINE, ENVIRONMENT
from tests.train.harness import RANK, Attempt, free_port

# What a rehearsal changes, by names of Bridge's model that are Megatron's too.
_SAME = (
    "gradient_accumulation_fusion", "masked_softmax_fusion", "linear_num_key_heads", "linear_num_value_heads",
    "linear_key_head_dim", "linear_value_head_dim", "mamba_num_heads", "mamba_head_dim", "mamba_state_dim",
    "mamba_num_groups",
)  # fmt: skip
_KEYS = {**KEYS, **{key: (f"model.{key}",) for key in _SAME}}


def overrides_of(recipe: str, text: str) -> dict[str, Any]:
    """Return what Bridge is told of ``recipe``'s rehearsed gate on two ranks: all that the rehearsal changes."""
    real, small = (resolve(recipe, profile, "gate") for profile in ("gb200-8gpu", "local-cpu"))
    told: dict[str, Any] = {}
    for full, field in small.fields.items():
        key = full.partition(".")[2]
        was = real.fields.get(full)
        if was is None or field.value != was.value or key in ("train_iters", "lr_warmup_iters", "lr_decay_iters"):
            told |= dict.fromkeys(_KEYS[key], field.value)
    layers = small.get("hybrid_layer_pattern")
    if layers:
        told["model.num_layers"] = len(layers)
    return told | {
        "dataset.data_path": [text], "logger.log_interval": 1, "logger.log_throughput": True,
        "train.global_batch_size": small.get("global_batch_size"), "model.cuda_graph_impl": "none",
        "train.exit_signal_handler": True, "dist.distributed_backend": "gloo", "checkpoint.load": None,
    }  # fmt: skip


def name_of(recipe: str) -> str:
    """Return the name of Bridge's recipe."""
    bridge = resolve(recipe, "gb200-8gpu", None, [ENGINE]).bridge
    assert bridge is not None
    return str(bridge["recipe"])


def start(
    folder: Path, recipe: str, text: str, steps: int, *, ranks: int = 2, drill: Any = None, **told: Any
) -> Attempt:  # fmt: skip
    """Write the plan and start the ranks in Megatron-Bridge's environment; ``told``: section__field=value."""
    folder.mkdir(parents=True, exist_ok=True)
    more = {key.replace("__", ".", 1): value for key, value in told.items()}
    values = overrides_of(recipe, text) | {
        "train.train_iters": steps, "checkpoint.save": str(folder / "checkpoints"),
        "logger.tensorboard_dir": str(folder / "tensorboard"), "dataset.path_to_cache": str(folder / "cache"),
    } | more  # fmt: skip
    plan = {
        "schema": 1, "run_id": "bridge", "attempt": 0, "arguments": [], "megatron_core": load_schema().version,
        "world_size": ranks, "device": "cpu", "rehearsal": True, "attempt_folder": str(folder),
        "stop_file": str(folder / "stop"), "exit_signal": "SIGUSR2", "schedule_iters": 48000, "environment": {},
        "drill": drill,
        "bridge": {"recipe": name_of(recipe), "overrides": words(values)},
    }  # fmt: skip
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    attempt, port = Attempt(folder, plan), free_port()
    for rank in range(ranks):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        with (folder / f"rank-{rank:05d}.log").open("wb") as log:
            attempt.processes.append(
                subprocess.Popen(
                    [str(build(ENVIRONMENT)), "-W", "ignore", str(RANK), str(file)],
                    cwd=folder,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    return attempt
