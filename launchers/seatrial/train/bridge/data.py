"""The same samples in the same order for a gate and for the run that it opens the way to, in Megatron-Bridge's loop."""

from __future__ import annotations

import copy
import types
from typing import Any

from seatrial.errors import SeatrialError


def size_for_schedule(schedule_iters: int) -> None:
    """Let Bridge ask its datasets for the samples of the whole schedule, by its own formula.

    Megatron shuffles a dataset after repeating its documents until they are enough, so the order depends on how many
    samples are asked for.
    """
    from megatron.bridge.data import loaders

    own = loaders.get_train_valid_test_num_samples

    def counts(config: Any) -> Any:
        return own(over_schedule(config, schedule_iters))

    loaders.get_train_valid_test_num_samples = counts


def over_schedule(config: Any, schedule_iters: int) -> types.SimpleNamespace:
    """Return what the formula reads of ``config``, for as many steps as the schedule has.

    Raises:
        SeatrialError: the run is longer than its schedule, so it would run out of samples.
    """
    train = copy.copy(config.train)
    if train.train_iters is not None and train.train_iters > schedule_iters:
        raise SeatrialError(
            f"train_iters {train.train_iters} is beyond the schedule of {schedule_iters} steps",
            key="train.train_iters", value=train.train_iters, rule="train_iters <= lr_decay_iters",
        )  # fmt: skip
    train.train_iters = schedule_iters
    return types.SimpleNamespace(train=train, validation=config.validation)
