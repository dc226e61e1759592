"""What Megatron-Bridge 0.5.1 resolves otherwise than the fields of ``tests.recipes``, each with its reason.

The recipes at 0.5.1 have the fields of the public ones at 987244934; what is here belongs to a run: data are named,
and the supervisor has written its own overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.data.splits import parse_split
from tests.recipes.parity_names import Equal, named
from tests.train.bridge.resolving import FOLDER

# Told by the supervisor at each attempt (supervise/bridge.py): the value that the ranks must see, to the letter.
RUN_SETS: Mapping[str, Any] = {
    "checkpoint.save": str(FOLDER.checkpoints),
    "checkpoint.load": None,
    "checkpoint.ckpt_step": None,
    "checkpoint.exit_on_missing_checkpoint": False,
    "checkpoint.most_recent_k": -1,
    "checkpoint.save_retain_interval": None,
    "logger.tensorboard_dir": str(FOLDER.tensorboard),
    "dataset.path_to_cache": str(FOLDER.data_cache),
    "train.exit_signal_handler": True,
    "train.exit_duration_in_mins": None,
    "train.exit_interval": None,
    "validation.skip_train": False,
    "dist.distributed_timeout_minutes": 30,
    "dist.distributed_backend": "nccl",
}

# Data are named here, so that what upstream resolves without any is equal after all.
DATA: Mapping[str, Equal] = {
    "dataset.data_path": named("data_path"),
    "dataset.blend": Equal(lambda values: [list(values["data_path"][1::2]), list(values["data_path"][::2])]),
    "dataset.mock": named("mock_data"),
    "dataset.split": named("split"),
    "dataset.split_matrix": Equal(lambda values: [list(bounds or ()) for bounds in parse_split(values["split"])]),
}

# Fields that a kind or the command line may set: every one of them must be told, and be seen. Ours -> theirs.
KIND_SETS = {
    "train_iters": "train.train_iters",
    "global_batch_size": "train.global_batch_size",
    "micro_batch_size": "train.micro_batch_size",
    "lr_warmup_iters": "scheduler.lr_warmup_iters",
    "lr_decay_iters": "scheduler.lr_decay_iters",
    "save_interval": "checkpoint.save_interval",
    "eval_interval": "validation.eval_interval",
    "eval_iters": "validation.eval_iters",
    "log_interval": "logger.log_interval",
    "log_throughput": "logger.log_throughput",
}
