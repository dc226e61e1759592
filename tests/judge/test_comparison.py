"""Curves held against each other: what differs is found where it is, and what is missing never makes them the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seatrial.judge.comparison import compare_curves, distinct_names, overall
from seatrial.judge.comparison_pair import DIFFERENT, INCOMPLETE, NOTHING, SAME, Tolerance, compare_pair
from seatrial.judge.curves import RunCurve, read_curve
from seatrial.judge.evidence import RUN
from seatrial.judge.records import EvaluationRecord, StepRecord
from tests.judge.gate_builder import LOGS

EXACT, WIDE = Tolerance(0.0, 0.0), Tolerance()
NANO, RESUMED = (read_curve(LOGS / f"{name}.log") for name in ("nano100", "nano_resumed_at_50"))
Losses = Mapping[int, Optional[float]]


def curve(losses: Losses, name: str = "a", **changes: Any) -> RunCurve:
    """A loss of None: Megatron left it out of the line."""
    steps = tuple(
        StepRecord(step, 100, step_time_ms=100.0, global_batch_size=4, grad_norm=1.0, learning_rate=1e-6 * step,
                   losses={} if loss is None else {"lm loss": loss})
        for step, loss in losses.items()
    )  # fmt: skip
    return RunCurve(name, f"/{name}", RUN, steps, **changes)


def line(first: int, last: int, every: int = 1) -> dict[int, Optional[float]]:
    return {step: 6.0 - step / 100 for step in range(first, last + 1, every)}


def hold(a: Losses, b: Losses, tolerance: Tolerance = WIDE, **both: Any) -> dict[str, Any]:
    return compare_pair(curve(a, **both), curve(b, **both), tolerance)


finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.one_of(st.none(), st.floats())
curves = st.dictionaries(st.integers(1, 12), numbers, max_size=12)
whole_curves = st.lists(st.floats(0.01, 1e4), min_size=1, max_size=30).map(lambda values: dict(enumerate(values, 1)))
bands = st.builds(Tolerance, st.floats(0, 0.5), st.floats(0, 1), st.integers(1, 5))


@given(whole_curves, bands)
def test_a_curve_equals_itself(losses: Losses, tolerance: Tolerance) -> None:
    for held in (tolerance, EXACT):
        pair = hold(losses, losses, held)
        assert (pair["verdict"], pair["compared"], pair["largest"]) == (SAME, len(losses), None)


@given(whole_curves, bands, st.data())
def test_one_changed_value_is_found_at_its_step(losses: Losses, tolerance: Tolerance, data: st.DataObject) -> None:
    step = data.draw(st.sampled_from(sorted(losses)))
    value = losses[step]
    assert value is not None
    away = tolerance.band(value) * data.draw(st.floats(1.01, 3)) + 1e-6
    pair = hold(losses, {**losses, step: value + away}, tolerance)
    assert (pair["verdict"], pair["differing"], pair["first_divergence"]["step"]) == (DIFFERENT, 1, step)
    assert pair["first_divergence"]["difference"] > pair["first_divergence"]["tolerance"]
    within = hold(losses, {**losses, step: value + tolerance.band(value) * 0.99}, tolerance)
    assert within["verdict"] == SAME


@given(whole_curves, st.data())
def test_a_missing_step_is_never_the_same(losses: Losses, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(sorted(losses)), min_size=1))
    rest = {step: loss for step, loss in losses.items() if step not in gone}
    expected = INCOMPLETE if rest else NOTHING
    assert hold(losses, rest)["verdict"] == hold(rest, losses)["verdict"] == expected
    asked = Tolerance(first=1, last=max(losses))
    assert hold(losses, losses, asked)["verdict"] == SAME
    assert hold(losses, rest, asked)["verdict"] == expected
    assert hold(rest, rest, asked, configuration={"log_interval": 1})["verdict"] == expected


@given(curves, curves)
def test_it_is_the_same_from_either_side(a: Losses, b: Losses) -> None:
    one, other = hold(a, b, EXACT), hold(b, a, EXACT)
    for key in ("verdict", "compared", "differing", "neither", "not_comparable"):
        assert one[key] == other[key]
    assert (one["only_a"], one["only_b"]) == (other["only_b"], other["only_a"])
    first, mirrored = one["first_divergence"], other["first_divergence"]
    assert (first is None) == (mirrored is None)
    if first is not None:
        assert (first["step"], first["a"], first["b"]) == (mirrored["step"], mirrored["b"], mirrored["a"])


@example({1: 1.7e308, 2: 1.7e308}, {1: -1.7e308, 2: -1.7e308}, Tolerance(0.5, 1.0, 2))
@example({1: 1.7e308, 2: 1.7e308}, {1: 1.0, 2: 1.0}, Tolerance(10.0, 1.0, 2))
@given(curves, curves, bands)
def test_any_comparison_is_json_and_only_numbers_are_the_same(a: Losses, b: Losses, tolerance: Tolerance) -> None:
    data = compare_curves([curve(a), curve(b)], tolerance)
    json.dumps(data, allow_nan=False)
    if data["verdict"] == SAME:
        assert a.keys() == b.keys()
        for step in a:
            x, y = a[step], b[step]
            assert x is not None and y is not None
            assert abs(x - y) <= tolerance.band(x)


@pytest.mark.parametrize("a", [1.0, None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("b", [1.0, None, math.nan, math.inf, -math.inf])
def test_what_is_no_number(a: Optional[float], b: Optional[float]) -> None:
    pair = hold({1: 1.0, 2: a, 3: 1.0}, {1: 1.0, 2: b, 3: 1.0}, Tolerance(relative=10, absolute=10))
    one, other = a == 1.0, b == 1.0
    expected = SAME if one and other else DIFFERENT if one or other else INCOMPLETE
    assert pair["verdict"] == expected
    assert pair["not_comparable"] == ("2" if expected == INCOMPLETE else "")
    if expected == DIFFERENT:
        assert pair["first_divergence"]["step"] == 2
        assert pair["first_divergence"]["difference"] is None


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "verdict", "only_a", "only_b", "neither"),
    [
        (line(1, 100), line(51, 100), Tolerance(), INCOMPLETE, "1-50", "", ""),
        (line(1, 100), line(51, 100), Tolerance(first=51), SAME, "", "", ""),
        (line(1, 60), line(1, 100), Tolerance(), INCOMPLETE, "", "61-100", ""),
        (line(1, 60), line(1, 100), Tolerance(last=60), SAME, "", "", ""),
        (line(1, 60), line(1, 60), Tolerance(last=100), INCOMPLETE, "", "", "61-100"),
        (line(11, 60), line(11, 60), Tolerance(first=1), INCOMPLETE, "", "", "1-10"),
        (line(1, 30) | line(41, 60), line(1, 30) | line(41, 60), Tolerance(), INCOMPLETE, "", "", "31-40"),
        (line(1, 10), line(11, 20), Tolerance(), NOTHING, "1-10", "11-20", ""),
        (line(1, 10), line(1, 10), Tolerance(first=50), NOTHING, "", "", ""),
        ({}, {}, Tolerance(), NOTHING, "", "", ""),
        (line(10, 100, 10), line(10, 100, 10), Tolerance(first=1, last=105), SAME, "", "", ""),
        (line(10, 100, 10), line(10, 100, 10), Tolerance(last=110), INCOMPLETE, "", "", "101-110"),
        ({1: 6.0} | line(10, 100, 10), {1: 6.0} | line(10, 100, 10), Tolerance(), SAME, "", "", ""),
    ],
)
def test_steps_that_are_missing(
    a: Losses, b: Losses, tolerance: Tolerance, verdict: str, only_a: str, only_b: str, neither: str
) -> None:
    pair = hold(a, b, tolerance)
    assert (pair["verdict"], pair["only_a"], pair["only_b"], pair["neither"]) == (verdict, only_a, only_b, neither)


def test_a_run_and_its_resumed_twin_bit_for_bit() -> None:
    pair = compare_pair(NANO, RESUMED, Tolerance(0.0, 0.0, first=51))
    assert (pair["verdict"], pair["compared"], pair["largest"]) == (SAME, 50, None)
    whole = compare_pair(NANO, RESUMED, EXACT)
    assert (whole["verdict"], whole["compared"], whole["only_a"]) == (INCOMPLETE, 50, "1-50")


@pytest.mark.parametrize("step", [51, 53, 100])
def test_exact_finds_the_last_printed_digit(step: int) -> None:
    steps = tuple(
        replace(record, losses={**record.losses, "lm loss": record.losses["lm loss"] + 1e-6})
        if record.step == step else record
        for record in RESUMED.steps
    )  # fmt: skip
    changed = replace(RESUMED, steps=steps)
    pair = compare_pair(NANO, changed, Tolerance(0.0, 0.0, first=51))
    assert (pair["verdict"], pair["first_divergence"]["step"]) == (DIFFERENT, step)
    assert compare_pair(NANO, changed, Tolerance(first=51))["verdict"] == SAME


def test_the_second_step_after_a_start_has_the_room_of_its_recovery() -> None:
    """It was printed as a mean of two: its own value is known to some 2 units of the last digit."""
    (record,) = [record for record in RESUMED.steps if record.step == 52]
    assert record.recovered

    def moved(by: float) -> str:
        losses = {**record.losses, "lm loss": record.losses["lm loss"] + by}
        steps = tuple(replace(record, losses=losses) if one is record else one for one in RESUMED.steps)
        return str(compare_pair(NANO, replace(RESUMED, steps=steps), Tolerance(0.0, 0.0, first=51))["verdict"])

    assert (moved(2e-6), moved(1e-5)) == (SAME, DIFFERENT)


def test_windows_tell_drift_from_noise() -> None:
    flat: Losses = dict.fromkeys(range(1, 41), 5.0)
    noise: Losses = {step: 5.0 + (0.1 if step % 2 else -0.1) for step in flat}
    drift: Losses = {step: 5.0 + (0.1 if step > 20 else 0.0) for step in flat}
    assert hold(flat, noise)["windows"] == {"steps": 10, "compared": 4, "differing": 0, "first": None}
    windows = hold(flat, drift)["windows"]
    assert (windows["compared"], windows["differing"]) == (4, 2)
    assert (windows["first"]["first"], windows["first"]["last"]) == (21, 30)
    assert hold(flat, drift, Tolerance(window=1))["windows"] is None
    assert hold(flat, drift, EXACT)["windows"] is None


def test_other_losses_count_unless_one_is_named() -> None:
    a = curve(line(1, 5))
    steps = tuple(replace(record, losses={**record.losses, "mtp_1 loss": 3.0}) for record in a.steps)
    b = replace(a, steps=steps)
    pair = compare_pair(a, b, Tolerance())
    assert (pair["verdict"], pair["first_divergence"]["name"]) == (DIFFERENT, "mtp_1 loss")
    assert compare_pair(a, b, Tolerance(losses=("lm loss",)))["verdict"] == SAME
    assert compare_pair(a, b, Tolerance(losses=("no such loss",)))["verdict"] == NOTHING


def with_evaluations(*found: tuple[int, str, float]) -> RunCurve:
    records = tuple(EvaluationRecord(step, which, {"lm loss": loss}) for step, which, loss in found)
    return curve(line(1, 100), evaluations=records)


@pytest.mark.parametrize(
    ("a", "b", "verdict", "told"),
    [
        ([(50, "interval", 4.0)], [(50, "interval", 4.01)], SAME, {"compared": 1, "differing": 0}),
        ([(50, "interval", 4.0)], [(50, "interval", 4.1)], DIFFERENT, {"compared": 1, "differing": 1}),
        ([(50, "interval", 4.0)], [(60, "interval", 4.0)], SAME, {"compared": 0, "only_a": "50", "only_b": "60"}),
        ([(50, "interval", 4.0)], [(50, "test", 9.0)], SAME, {"compared": 0, "only_a": "50", "only_b": "50"}),
        ([(50, "interval", math.nan)], [(50, "interval", 4.0)], DIFFERENT, {"differing": 1}),
        ([(50, "interval", math.nan)], [(50, "interval", math.nan)], INCOMPLETE, {"not_comparable": "50"}),
    ],
)
def test_evaluations(a: list[Any], b: list[Any], verdict: str, told: dict[str, object]) -> None:
    pair = compare_pair(with_evaluations(*a), with_evaluations(*b), Tolerance())
    assert pair["verdict"] == verdict
    assert pair["evaluations"].items() >= told.items()
    if verdict == DIFFERENT:
        assert pair["first_divergence"]["name"] == "validation lm loss"
        assert pair["differing"] == 0


def test_grad_norm_and_learning_rate_are_told_and_do_not_decide() -> None:
    a = curve(line(1, 5))
    b = replace(a, steps=tuple(replace(one, grad_norm=2.0, learning_rate=2e-6 * one.step) for one in a.steps))
    pair = compare_pair(a, b, Tolerance())
    assert pair["verdict"] == SAME
    assert [(beside["name"], beside["differing"]) for beside in pair["besides"]] == [
        ("grad norm", 5), ("learning rate", 5),
    ]  # fmt: skip


def test_all_are_held_against_the_first() -> None:
    data = compare_curves([curve(line(1, 5), "a"), curve(line(1, 5), "b"), curve(line(1, 3), "c")], Tolerance())
    assert [(pair["a"], pair["b"], pair["verdict"]) for pair in data["pairs"]] == [(0, 1, SAME), (0, 2, INCOMPLETE)]
    assert data["verdict"] == INCOMPLETE


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([SAME, SAME], SAME), ([SAME, INCOMPLETE], INCOMPLETE), ([SAME, NOTHING], INCOMPLETE), ([NOTHING], NOTHING),
        ([INCOMPLETE, DIFFERENT, SAME], DIFFERENT), ([], NOTHING),
    ],
)  # fmt: skip
def test_overall(verdicts: list[str], expected: str) -> None:
    assert overall(verdicts) == expected


def test_speed_side_by_side() -> None:
    slow, setting = curve(line(1, 30), "slow"), {"gpus": 2, "sequence_length": 64}
    fast = replace(slow, name="fast", steps=tuple(replace(one, step_time_ms=50.0) for one in slow.steps))
    known = [replace(one, **setting) for one in (slow, fast)]  # type: ignore[arg-type]
    runs = compare_curves(known, Tolerance(first=5, last=9))["runs"]
    assert [run["speed"]["ratio"] for run in runs] == [1.0, 2.0]
    assert runs[0]["speed"].items() >= {"steps": 20, "first": 11, "last": 30, "mean_ms": 100.0, "p99_ms": 100.0}.items()
    assert runs[1]["speed"]["tokens_per_second_per_gpu"] == 4 * 64 / 0.05 / 2
    assert (runs[0]["steps"], runs[0]["series"]["tokens/s/GPU"]) == ([5, 6, 7, 8, 9], [1280.0] * 5)
    assert [run["speed"]["ratio"] for run in compare_curves([slow, fast], Tolerance())["runs"]] == [1.0, 2.0]
    other_work = replace(fast, steps=tuple(replace(one, global_batch_size=8) for one in fast.steps))
    assert compare_curves([slow, other_work], Tolerance())["runs"][1]["speed"]["ratio"] is None


def test_a_step_without_a_time_leaves_no_speed() -> None:
    steps = tuple(replace(one, step_time_ms=None if one.step == 20 else 1.0) for one in curve(line(1, 30)).steps)
    run = compare_curves([replace(curve({}), steps=steps), curve({})], Tolerance())["runs"][0]
    assert (run["speed"]["steps"], run["speed"]["mean_ms"], run["speed"]["ratio"]) == (0, None, None)


def test_names_are_told_apart() -> None:
    one = curve({}, "x")
    assert distinct_names([one, replace(one, source="/other"), curve({}, "y")]) == ["/x", "/other", "y"]
    assert distinct_names([one, one]) == ["/x #1", "/x #2"]


def test_nan_is_a_gap_in_a_series() -> None:
    run = compare_curves([curve({1: 5.0, 2: math.nan, 3: None}), curve({})], Tolerance())["runs"][0]
    assert run["series"]["lm loss"] == [5.0, None, None]
