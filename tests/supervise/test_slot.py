"""When to stop ahead of the job's end."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.supervise.slot import TEARDOWN, Longest, lead, needed

FLOOR = 300.0


@pytest.mark.parametrize(
    ("longest", "seconds"),
    [
        (Longest(), FLOOR),
        (Longest(step=2.0), FLOOR),  # no save was seen: nobody knows how long one takes
        (Longest(save=40.0), FLOOR),
        (Longest(step=2.0, save=40.0), 4 + 80 + TEARDOWN),
        (Longest(step=2.0, evaluation=60.0, save=40.0), 4 + 60 + 80 + TEARDOWN),
        (Longest(step=2.0, save=400.0), 4 + 800 + TEARDOWN),  # more than the floor
        (Longest(step=2.0, save=0.0), 4 + TEARDOWN),
    ],
)
def test_lead(longest: Longest, seconds: float) -> None:
    assert lead(longest, FLOOR) == seconds


@pytest.mark.parametrize(
    ("longest", "seconds"),
    [
        (Longest(), 60 + FLOOR),
        (Longest(startup=600.0), 600 + FLOOR),
        (Longest(2.0, 60.0, 40.0, 600.0), 600 + 4 + 4 + 60 + 80 + TEARDOWN),
    ],
)
def test_needed(longest: Longest, seconds: float) -> None:
    assert needed(longest, FLOOR) == seconds


@pytest.mark.parametrize(
    ("records", "longest"),
    [
        ([], Longest()),
        ([{"step": 1.0, "save": None}, {"step": 3, "save": 2.0}, {"step": 2.0}], Longest(3.0, None, 2.0)),
        ([{"step": "9", "save": -1, "evaluation": math.nan, "startup": math.inf}], Longest()),
        ([Longest(1.0, 2.0, 3.0, 4.0).to_json()], Longest(1.0, 2.0, 3.0, 4.0)),
    ],
)
def test_the_longest_of_several(records: list[dict[str, Any]], longest: Longest) -> None:
    assert Longest.of(records) == longest


seconds = st.floats(0, 1e6)


@given(step=seconds, evaluation=st.none() | seconds, save=seconds, floor=seconds)
def test_there_is_time_to_save(step: float, evaluation: float | None, save: float, floor: float) -> None:
    # Asked at the start of a step: the step, its evaluation, its regular save and the save that was asked for.
    longest = Longest(step, evaluation, save)
    assert lead(longest, floor) >= step + (evaluation or 0) + 2 * save + TEARDOWN
    assert needed(longest, floor) > lead(longest, floor)
