"""Which data a run reads: prefixes and weights, of all splits together or of each. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Blend:
    """Data prefixes and their weights; ``weights`` is None where Megatron takes each set once, as it is."""

    prefixes: tuple[str, ...]
    weights: tuple[float, ...] | None

    @property
    def shares(self) -> tuple[float, ...] | None:
        """The weights scaled to a sum of 1."""
        if self.weights is None:
            return None
        total = sum(self.weights)
        return tuple(w / total for w in self.weights)


def parse_blend(words: Sequence[object], *, key: str = "data_path") -> Blend:
    """Read ``[prefix, ...]`` or ``[weight, prefix, weight, prefix, ...]`` as Megatron does.

    Follows ``get_blend_from_list`` of ``megatron/core/datasets/utils.py``, but refuses what that
    would misread: it takes any odd number of words for prefixes. Raises SeatrialError.
    """
    texts = [str(word).strip() for word in words]
    form = "a blend is `prefix ...` or `weight prefix weight prefix ...`"
    if not texts or not all(texts):
        raise SeatrialError("no data prefix", key=key, value=list(words), rule=form)
    numbers = [_number(text) for text in texts]
    if all(number is None for number in numbers):
        return Blend(tuple(texts), None)
    weights, prefixes = numbers[0::2], texts[1::2]
    if len(texts) % 2 or None in weights or any(number is not None for number in numbers[1::2]):
        raise SeatrialError("weights and data prefixes do not alternate", key=key, value=list(words), rule=form)
    given = tuple(weight for weight in weights if weight is not None)
    if not all(0 <= weight < float("inf") for weight in given) or sum(given) <= 0:
        raise SeatrialError("weights do not add up", key=key, value=list(words), rule="weights are >= 0, one is > 0")
    return Blend(tuple(prefixes), given)


def read_data_args(path: str) -> Blend:
    """Read the file of ``data_args_path``: the words of one blend. Raises SeatrialError."""
    return parse_blend(_text(path, "data_args_path").split(), key="data_args_path")


def read_per_split_data_args(path: str) -> dict[str, Blend]:
    """Read the JSON file of ``per_split_data_args_path``: a blend for each of train, valid and test."""
    key = "per_split_data_args_path"
    try:
        data = json.loads(_text(path, key))
    except ValueError as error:
        raise SeatrialError(f"not JSON: {error}", file=path, key=key) from error
    if not isinstance(data, dict) or any(split not in data for split in SPLITS):
        raise SeatrialError("a split is missing", file=path, key=key, rule="the file has train, valid and test")
    blends = {}
    for split in SPLITS:
        words: Any = data[split]
        words = words.split() if isinstance(words, str) else words
        if words is None:
            continue
        if not isinstance(words, list):
            raise SeatrialError(f"{split} is not a list", file=path, key=key, rule="a blend is a list or a text")
        blends[split] = parse_blend(words, key=key)
    return blends


def _text(path: str, key: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SeatrialError(f"cannot read the list of data: {error}", file=path, key=key) from error


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
