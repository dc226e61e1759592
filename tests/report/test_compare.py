"""A comparison on a terminal: each thing that was found stands there once, in words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.comparison import compare_curves
from seatrial.judge.comparison_pair import Tolerance
from seatrial.judge.curves import RunCurve, read_curve
from seatrial.judge.evidence import LOG, RUN
from seatrial.judge.records import StepRecord
from seatrial.report.compare import band_words, chart, pair_words, print_comparison
from tests.judge.gate_builder import LOGS

LOSSES = {"ok": "ok100.log", "exit": "exit60.log", "nan": "nan.log", "nano": "nano100.log"}


def compared(*names: str, **tolerance: Any) -> dict[str, Any]:
    return compare_curves([read_curve(LOGS / LOSSES[name]) for name in names], Tolerance(**tolerance))


def test_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compared("ok", "exit", "nan", last=50))
    said = capsys.readouterr().out
    for text in (
        "exit60.log against ok100.log: different",
        "first divergence at step 2: lm loss 4.854105 against 4.736259, 0.118 apart where 0.0485 is allowed",
        "means of lm loss over 10 steps: 5 of 5 differ, the first steps 1-10: 4.860363 against 4.399082",
        "besides: grad norm differs at 48 of 50 steps, the first step 3: 1.091 against 1.062",
        "first divergence at step 2: lm loss 4.854105 against none",
    ):
        assert said.count(text) == 1, text
    for text in ("49 of 50 steps differ", "evaluations differ at 1 of 1", "first lacks evaluations at 10, 20, 30, 40"):
        assert said.count(text) == 2, text
    rows = [" ".join(line.split()) for line in said.splitlines()]
    assert "exit60.log 11-60 26.0 25.9 38.9 4,922.7 - 0.804 x" in rows
    assert "lr_decay_iters 48000 not set not set" in rows
    assert rows.index("lr_warmup_iters 480 0 0") < rows.index("eval_interval 50 10 10")
    assert rows[-1] == "DIFFERENT within 1% + 1e-06, to step 50"


def test_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compared("nano", "nano", last=120))
    said = capsys.readouterr().out
    assert "neither has steps 101-120" in said
    assert "not known: the configuration of" in said
    assert said.rstrip().endswith("INCOMPLETE within 1% + 1e-06, to step 120")


def test_without_a_terminal_there_is_no_sign_beyond_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compared("ok", "exit"))
    said = capsys.readouterr().out
    assert said.isascii()
    assert "\x1b" not in said


def curve(losses: list[float], name: str = "a", kind: str = RUN, **configuration: Any) -> RunCurve:
    steps = tuple(StepRecord(step, 9, losses={"lm loss": loss}) for step, loss in enumerate(losses, 1))
    return RunCurve(name, f"/{name}", kind, steps, configuration=configuration or None)


def test_names_of_runs_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    odd = "[bold]x[/"
    print_comparison(compare_curves([curve([5.0], odd, a=odd), curve([5.0], "b", a=1)], Tolerance()))
    said = capsys.readouterr().out
    assert f"b against {odd}: same" in said


def test_runs_without_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compare_curves([curve([]), curve([])], Tolerance()))
    said = capsys.readouterr().out
    assert "no step that both have" in said
    assert said.rstrip().endswith("NOTHING TO COMPARE within 1% + 1e-06")


def test_a_long_configuration_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    long = replace(curve([5.0]), configuration={f"key{number:03d}": number for number in range(50)})
    print_comparison(compare_curves([long, curve([5.0], "b", z=1)], Tolerance()))
    assert "… and 11 more: --json has all" in capsys.readouterr().out


def test_equal_configurations_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compare_curves([curve([5.0], a=1), curve([5.0], "b", a=1)], Tolerance()))
    assert "no difference in configuration" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tolerance", "words"),
    [
        (Tolerance(), "within 1% + 1e-06"),
        (Tolerance(0.0, 0.0), "bit for bit as printed"),
        (Tolerance(0.00025, 0.0, first=3), "within 0.0250% + 0, from step 3"),
        (Tolerance(0.0, 0.0, last=9, losses=("lm loss",)), "bit for bit as printed, to step 9, lm loss only"),
    ],
)
def test_band_words(tolerance: Tolerance, words: str) -> None:
    assert band_words(compare_curves([curve([5.0]), curve([5.0])], tolerance)["tolerance"]) == words


def test_nothing_is_said_of_what_is_as_it_should_be() -> None:
    data = compare_curves([curve([5.0, 4.0]), curve([5.0, 4.0])], Tolerance(window=1))
    assert pair_words(data["pairs"][0]) == ["no loss differs at the 2 steps that both have"]


def chart_of(*losses: list[float], blocks: bool = False, **more: Any) -> list[str]:
    curves = [curve(one, name) for one, name in zip(losses, "abc", strict=False)]
    return chart(compare_curves([*curves, curve([], "z")], Tolerance())["runs"], blocks=blocks, **more)


def test_chart() -> None:
    falling, short = [9.0, 8.0, 7.0, 6.0, 5.0], [9.0, math.nan, 7.0]
    assert chart_of(falling, short)[:3] == ["lm loss, steps 1-5, 0 is 5 and 9 is 9", "a  97520", "b  9 5"]
    assert chart_of(falling, blocks=True)[1] == "a  █▇▅▃▁"
    assert chart_of([5.0, 5.0])[1] == "a  00"
    assert chart_of([math.nan]) == []
    assert chart_of([9.0] * 50 + [5.0] * 50, width=4)[1] == "a  9900"
    assert chart_of([1.7e308, 1.7e308, -1.7e308], width=2)[1] == "a  90"


def test_a_chart_is_aligned_by_step() -> None:
    late = replace(curve([7.0, 6.0, 5.0], "b"), kind=LOG)
    late = replace(late, steps=tuple(replace(one, step=one.step + 2) for one in late.steps))
    data = compare_curves([curve([9.0, 8.0, 7.0, 6.0, 5.0]), late], Tolerance())
    assert chart(data["runs"], blocks=False)[1:] == ["a  97520", "b    520"]


@given(st.lists(st.lists(st.floats(), max_size=9), min_size=1, max_size=3), st.booleans(), st.integers(1, 9))
def test_any_chart_has_its_width(losses: list[list[float]], blocks: bool, width: int) -> None:
    rows = chart_of(*losses, blocks=blocks, width=width)
    assert all(len(row) <= len("a  ") + width for row in rows[1:])
