"""Merging the passes over a step, and telling whether two loss curves are the same."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.compare import compare_losses
from seatrial.judge.merge import merge_logs, merge_steps
from seatrial.judge.parse import LogParser
from seatrial.judge.records import StepRecord
from tests.judge.gate_builder import LOGS, change_step, good_steps, loss_at, megatron_lines


def parse(lines: list[str]) -> list[StepRecord]:
    parser = LogParser()
    records = parser.feed("".join(f"{line}\n" for line in lines)) + parser.close()
    return [record for record in records if isinstance(record, StepRecord)]


LOSSES = [loss_at(step) for step in range(1, 101)]
UNDISTURBED = parse(megatron_lines(LOSSES))


def resumed(at: int, losses: list[float]) -> list[StepRecord]:
    """The curve of a run that stopped after step ``at`` and went on from there, each part in a log of its own."""
    logs = [parse(megatron_lines(losses[:at])), parse(megatron_lines(losses[at:], first_step=at + 1))]
    return list(merge_steps(merge_logs(logs)).steps)


def test_a_resumed_run_equals_the_undisturbed_one() -> None:
    curve = resumed(50, LOSSES)
    assert [record.step for record in curve if record.recovered] == [2, 52]
    comparison = compare_losses(UNDISTURBED, curve)
    assert comparison.equal and len(comparison.compared) == 100


@pytest.mark.parametrize("step", [1, 2, 49, 50, 51, 52, 53, 100])
def test_a_real_difference_is_found_where_it_is(step: int) -> None:
    losses = list(LOSSES)
    losses[step - 1] += 1e-5
    comparison = compare_losses(UNDISTURBED, resumed(50, losses))
    assert not comparison.equal
    assert [difference.step for difference in comparison.differences] == [step]
    assert comparison.first is not None and comparison.first.relative < 1e-5


def test_the_printed_mean_itself_would_differ() -> None:
    printed = parse(megatron_lines(LOSSES[50:], first_step=51))[1]
    mean = (LOSSES[50] + LOSSES[51]) / 2
    unrecovered = replace(printed, losses={"lm loss": float(f"{mean:.6E}")}, recovered=False)
    comparison = compare_losses(UNDISTURBED, [unrecovered], first_step=52, last_step=52)
    assert comparison.first is not None and comparison.first.step == 52


@given(st.lists(st.floats(0.01, 5000), min_size=6, max_size=12), st.integers(2, 4))
def test_no_resume_makes_a_false_difference(losses: list[float], at: int) -> None:
    assert compare_losses(parse(megatron_lines(losses)), resumed(at, losses)).equal


def test_printed_values_are_compared_exactly() -> None:
    other = change_step(good_steps(), 73, losses={"lm loss": loss_at(73) + 1e-6, "mtp_1 loss": loss_at(73) / 2})
    assert [d.step for d in compare_losses(good_steps(), other).differences] == [73]
    assert compare_losses(good_steps(), other, relative=1e-6).equal


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_or_missing_is_never_equal(value: float) -> None:
    bad = change_step(good_steps(), 5, losses={"lm loss": value, "mtp_1 loss": 1.0})
    assert [d.name for d in compare_losses(bad, bad).differences] == ["lm loss"]
    absent = change_step(good_steps(), 5, losses={"mtp_1 loss": loss_at(5) / 2})
    assert [(d.step, d.name, d.b) for d in compare_losses(good_steps(), absent).differences] == [(5, "lm loss", None)]
    assert not compare_losses([], []).equal


def test_a_missing_step_is_told() -> None:
    comparison = compare_losses(good_steps(1, 90), good_steps(2, 100))
    assert (comparison.only_a, comparison.only_b) == ((1,), tuple(range(91, 101)))
    assert not comparison.equal
    assert compare_losses(good_steps(1, 90), good_steps(2, 100), first_step=2, last_step=90).equal


def test_the_last_pass_over_a_step_counts_and_disagreements_are_kept() -> None:
    second = change_step(good_steps(51, 100, attempt=1), 60, losses={"lm loss": 9.0, "mtp_1 loss": loss_at(60) / 2})
    curve = merge_steps([*good_steps(1, 62), *second])
    assert [record.step for record in curve.steps] == list(range(1, 101))
    assert curve.repeated == tuple(range(51, 63))
    assert [(d.step, d.name, d.a, d.b) for d in curve.disagreements] == [(60, "lm loss", loss_at(60), 9.0)]
    assert curve.steps[59].losses["lm loss"] == 9.0


def test_replaying_a_step_whose_mean_was_printed_is_no_disagreement() -> None:
    replayed = parse([*megatron_lines(LOSSES[:60]), *megatron_lines(LOSSES[50:], first_step=51)])
    curve = merge_steps(replayed)
    assert curve.repeated == tuple(range(51, 61)) and curve.disagreements == ()


def test_logs_are_put_in_order_and_a_log_given_twice_counts_once() -> None:
    first, second = good_steps(1, 50), good_steps(51, 100, attempt=1)
    assert [record.step for record in merge_logs([second, (), first])] == list(range(1, 101))
    assert len(merge_logs([first, first, second])) == 100


def test_repetition_within_one_log_is_kept() -> None:
    assert len(merge_logs([(*good_steps(1, 50), *good_steps(41, 100))])) == 110


def test_the_smallest_printed_difference_counts_where_both_curves_recovered_the_step() -> None:
    losses = [LOSSES[0], LOSSES[1] + 2e-6, *LOSSES[2:]]
    assert [d.step for d in compare_losses(UNDISTURBED, parse(megatron_lines(losses))).differences] == [2]


def test_a_real_resume_equals_the_real_undisturbed_run() -> None:
    whole = parse((LOGS / "nano100.log").read_text(encoding="utf-8").splitlines())
    rest = parse((LOGS / "nano_resumed_at_50.log").read_text(encoding="utf-8").splitlines())
    assert [record.step for record in rest if record.recovered] == [52]
    assert compare_losses(whole, rest, first_step=51).equal
    shifted = change_step(rest, 52, losses={**rest[1].losses, "lm loss": rest[1].losses["lm loss"] + 5e-6})
    assert [(d.step, d.name) for d in compare_losses(whole, shifted, first_step=51).differences] == [(52, "lm loss")]
