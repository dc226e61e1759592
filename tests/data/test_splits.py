from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.splits import (
    epochs,
    parse_split,
    requested_samples,
    samples_in,
    sequence_range,
    share_of,
)
from seatrial.errors import SeatrialError


@pytest.mark.parametrize(
    ("split", "sequences", "ranges"),
    [
        ("90,5,5", 100, [(0, 90), (90, 95), (95, 100)]),
        ("969, 30, 1", 1000, [(0, 969), (969, 999), (999, 1000)]),
        ("99,1,0", 100, [(0, 99), (99, 100), (0, 0)]),
        ("100", 7, [(0, 7), (0, 0), (0, 0)]),
        ("90,5,5", 4, [(0, 4), (4, 4), (4, 4)]),  # rounding leaves nothing for validation and test
        ("0.9,0.05,0.05", 20, [(0, 18), (18, 19), (19, 20)]),
    ],
)
def test_sequences_of_each_split(split: str, sequences: int, ranges: list[tuple[int, int]]) -> None:
    assert [sequence_range(bounds, sequences) for bounds in parse_split(split)] == ranges


@pytest.mark.parametrize("split", ["", "0,0,0", "1,2,3,4", "a,b", "1.2.3", "-1,2,3"])
def test_a_split_that_is_none(split: str) -> None:
    with pytest.raises(SeatrialError, match="not a split"):
        parse_split(split)


@given(st.lists(st.floats(0, 1e6).map(lambda x: round(x, 3)), min_size=1, max_size=3), st.integers(0, 10**9))
def test_splits_never_overlap(parts: list[float], sequences: int) -> None:
    if sum(parts) == 0:
        return
    ranges = [sequence_range(b, sequences) for b in parse_split(",".join(f"{p:f}" for p in parts))]
    filled = [r for r in ranges if r[1] > r[0]]
    assert all(0 <= begin <= end <= sequences for begin, end in ranges)
    assert all(before[1] <= after[0] for before, after in zip(filled, filled[1:], strict=False))


GATE = {"train_iters": 100, "global_batch_size": 512, "eval_iters": 32, "eval_interval": 800}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (51_200, 16_384, 16_384)),
        ({"train_iters": 48_000}, (24_576_000, 61 * 16_384, 16_384)),
        ({"eval_interval": 50}, (51_200, 3 * 16_384, 16_384)),
        ({"eval_interval": 50, "start_eval_at_iter": 60}, (51_200, 2 * 16_384, 16_384)),
        ({"eval_global_batch_size": 8}, (51_200, 256, 256)),
        ({"full_validation": True}, (51_200, None, 16_384)),
        ({"eval_interval": None}, (51_200, 16_384, 16_384)),
    ],
)
def test_requested_samples(change: dict[str, int], expected: tuple[int, int | None, int]) -> None:
    assert requested_samples(**(GATE | change)) == expected


def test_samples_and_epochs() -> None:
    assert [samples_in(tokens, 4) for tokens in (0, 1, 4, 5, 8, 9)] == [0, 0, 0, 1, 1, 2]
    assert epochs(2, 9, 4) == 1
    assert epochs(2, 8, 4) > 1
    assert epochs(1, 0, 4) == math.inf
    assert [share_of(10, (0.25, 0.75), i) for i in (0, 1)] == [3, 8]
    assert share_of(10, None, 0) == 10
