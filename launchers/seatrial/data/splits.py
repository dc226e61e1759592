"""What Megatron-Core takes from a data set: its splits, and the samples that a run asks of each. Pure.

A sample is ``seq_length`` tokens (and one more, for the last label). Standard library only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple, Optional

from seatrial.errors import SeatrialError

# What Megatron takes where data is given and no split is.
DEFAULT_SPLIT = "969, 30, 1"
Bounds = Optional[tuple[float, float]]


class Requests(NamedTuple):
    """Samples asked of each split; ``valid`` is None where each evaluation reads the whole split."""

    train: int
    valid: int | None
    test: int


def parse_split(split: str) -> tuple[Bounds, Bounds, Bounds]:
    """Turn ``"90,5,5"`` into each split's bounds as fractions, None for an empty one.

    The arithmetic is ``parse_and_normalize_split`` and ``convert_split_vector_to_split_matrix`` of
    ``megatron/core/datasets/blended_megatron_dataset_config.py``, in the same order: bounds are rounded to
    sequences, so they must agree to the last bit. Raises SeatrialError.
    """
    words = re.findall(r"[.0-9]+", split)
    try:
        parts = [float(word) for word in words]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or sum(parts) <= 0 or re.search(r"[^.0-9,\s]", split):
        raise SeatrialError(
            "not a split", key="split", value=split, rule="one to three numbers >= 0: train, validation, test"
        )
    parts += [0.0] * (3 - len(parts))
    total = parts[0] + parts[1] + parts[2]  # sum() compensates from Python 3.12 on, NumPy does not
    ends = [0.0]
    for part in parts:
        ends.append(ends[-1] + part / total)
    bounds = [(a, b) if b > a else None for a, b in zip(ends, ends[1:])]
    return bounds[0], bounds[1], bounds[2]


def sequence_range(bounds: Bounds, sequences: int) -> tuple[int, int]:
    """Return the sequences [begin, end) of a split, of a set of ``sequences``.

    GPT data is split by sequence, in file order (``numel_low_level_dataset`` of ``gpt_dataset.py``); with one
    sequence a document, as the usual preprocessing makes them, that is by document.
    """
    if bounds is None:
        return 0, 0
    begin, end = (round(bound * float(sequences)) for bound in bounds)
    return begin, max(begin, end)


def samples_in(tokens: int, seq_length: int) -> int:
    """Return the samples that ``tokens`` give without a repeat."""
    return max(0, (tokens - 1) // seq_length)


def requested_samples(
    *,
    train_iters: int,
    global_batch_size: int,
    eval_iters: int,
    eval_interval: int | None,
    eval_global_batch_size: int | None = None,
    start_eval_at_iter: int | None = None,
    full_validation: bool = False,
) -> Requests:
    """Return what the loop asks for, as ``get_train_valid_test_num_samples`` of ``megatron.training`` does.

    An evaluation at the end counts as one more than ``train_iters // eval_interval``.
    """
    batch = global_batch_size if eval_global_batch_size is None else eval_global_batch_size
    points = 1
    if eval_interval:
        points = train_iters // eval_interval + 1
        if start_eval_at_iter is not None:
            points = max(0, points - start_eval_at_iter // eval_interval)
    valid = None if full_validation else points * eval_iters * batch
    return Requests(train_iters * global_batch_size, valid, eval_iters * batch)


def share_of(samples: int, weights: Sequence[float] | None, index: int) -> int:
    """Return the samples that a blend of ``weights`` (sum 1) takes from its data set ``index``."""
    return samples if weights is None else math.ceil(samples * weights[index])


def epochs(samples: int, tokens: int, seq_length: int) -> float:
    """Return how many times a set of ``tokens`` is read for ``samples``; infinite for an empty set."""
    needed = samples * seq_length + 1
    return needed / tokens if tokens else math.inf
