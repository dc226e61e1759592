"""Columns of a page: all that is known of every step, gaps where nothing is, thinned only where there is no room."""

from __future__ import annotations

import base64
import json
import math
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.records import StepRecord
from seatrial.report.page.columns import TOKENS, columns_of, made, steps_words


def record(step: int, loss: float = 2.0, **more: Any) -> StepRecord:
    return StepRecord(step, 100, losses={"lm loss": loss}, **more)


def decoded(text: str) -> list[float]:
    return array("f", base64.b64decode(text)).tolist()


def expanded(spans: Sequence[Sequence[int]]) -> list[int]:
    return [first + number * stride for first, count, stride in spans for number in range(count)]


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=80, unique=True), st.data())
def test_a_page_holds_every_step_and_value_where_there_is_room(steps: list[int], data: st.DataObject) -> None:
    losses = {step: data.draw(st.floats(width=32) | st.just(math.nan) | st.just(math.inf)) for step in sorted(steps)}
    columns = columns_of([record(step, loss) for step, loss in losses.items()], None, None)
    table = json.loads(json.dumps(columns.to_json(), allow_nan=False))
    shown = dict(zip(expanded(table["x"]), decoded(table["columns"]["lm loss"]), strict=True))
    assert list(shown) == sorted(shown)
    odd = dict(columns.not_finite.get("lm loss", []))
    for step, loss in losses.items():
        if abs(loss) < 3.4e38:
            assert shown[step] == loss
        else:
            assert math.isnan(shown[step])
            assert step in odd
    assert all(math.isnan(value) for step, value in shown.items() if step not in losses)


@pytest.mark.parametrize(
    ("steps", "gaps", "missing"),
    [
        ([1, 2, 3], [], ""), ([1, 10, 20, 30], [], ""), ([1, 2, 3, 7, 8], [4], "4-6"),
        ([10, 20, 30, 60, 70], [31], "31-59"), ([5], [], ""), ([1, 2, 3, 4, 6, 7, 1000], [5, 8], "5, 8-999"),
        ([3, 4, 5], [], "1-2"),
    ],
)  # fmt: skip
def test_no_line_crosses_steps_that_have_no_record(steps: list[int], gaps: list[int], missing: str) -> None:
    columns = columns_of([record(step) for step in steps], None, None)
    found = [s for s, value in zip(columns.steps, columns.values["lm loss"], strict=True) if math.isnan(value)]
    assert found == gaps
    assert columns.missing() == missing


def test_thinning_keeps_every_spike_and_counts_what_it_left_out() -> None:
    losses: list[float | None] = [2.0 + math.sin(step) / 100 for step in range(50_000)]
    losses[31_234], losses[17_000] = 9.0, math.nan
    columns = made(list(range(50_000)), {"lm loss": losses, "grad norm": losses}, most=4_000)
    assert 1_000 < columns.shown <= 2_002
    assert columns.of == 50_000
    assert max(value for value in columns.values["lm loss"] if not math.isnan(value)) == 9.0
    assert columns.not_finite["lm loss"] == [(17_000, "nan")]
    assert (columns.steps[0], columns.steps[-1]) == (0, 49_999)


def test_tokens_a_second_and_gpu() -> None:
    steps = [record(1, step_time_ms=500.0, global_batch_size=8), record(2, step_time_ms=0.0, global_batch_size=8)]
    assert columns_of(steps, 4, 1024).values[TOKENS][0] == 8 * 1024 / 0.5 / 4
    assert math.isnan(columns_of(steps, 4, 1024).values[TOKENS][1])
    assert TOKENS not in columns_of(steps, None, 1024).values


def test_steps_in_words() -> None:
    assert steps_words([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert steps_words([1, 3, 5, 7, 8], most=2) == "1, 3 and 3 more"
    assert steps_words([]) == ""
