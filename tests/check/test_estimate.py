"""What a convergence run will take, by sums that can be done by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from seatrial.check.estimate import Measured, estimate, hours, judge_estimate
from seatrial.report.estimate import statement
from seatrial.spec.runspec import RunSpec
from tests.check.specs import build

GATE = Measured("gate-1", gpus=8, tokens_per_step=512 * 4096, step_seconds=12.0, startup_seconds=600.0, save_seconds=60)
NOW = datetime(2027, 1, 1, tzinfo=timezone.utc)


def spec(on: str = "gb200-8gpu", **changes: Any) -> RunSpec:
    return build("nano", on, kind="convergence", **({"train_iters": 48000, "save_interval": 1000} | changes))


def test_the_sums() -> None:
    found = estimate(spec(), GATE)
    assert found.tokens == 48_000 * 512 * 4_096
    assert (found.step_seconds, found.first_save_seconds, found.usable_seconds) == (12.0, 12_000.0, 14_400 - 660)
    work = 48_000 * 12 + 48 * 60
    assert found.slots == -(-work // 13_740) == 43
    assert found.wall_seconds == work + 43 * 660


def test_other_gpus_scale_by_their_number_alone() -> None:
    found = estimate(spec("gb200-64gpu"), replace(GATE, step_seconds=96.0))
    assert found.step_seconds == 12.0
    said = "\n".join(statement(found, NOW))
    assert "an estimate: gate-1 measured 96.00 s on 8 GPUs, scaled to 64" in said


def test_the_statement() -> None:
    lines = statement(estimate(spec(), GATE), NOW)
    assert [line.split()[0] for line in lines] == ["tokens", "step", "slots", "checkpoints", "end"]
    said = "\n".join(lines)
    for words in (
        "48,000 steps x 512 sequences x 4,096 tokens = 100.66B tokens",
        "12.00 s, measured by gate-1",
        "43 of 4.0 h (start-up 10.0 min, a save 60.0 s)",
        "48 of 430.7 GB are written; at most 4 lie on disk at once = 1.7 TB",
        "2027-01-08 00:41 UTC, after 7.0 d: without waiting in the queue",
    ):
        assert words in said


def test_nothing_is_made_up() -> None:
    found = estimate(spec())
    assert (found.step_seconds, found.slots, found.wall_seconds) == (None, None, None)
    assert "\n".join(statement(found, NOW)).count("unknown") == 3
    assert [(f.severity, "unknown" in f.rule) for f in judge_estimate(spec(), found)] == [("note", True)]
    found = estimate(spec(), replace(GATE, startup_seconds=None, save_seconds=None))
    assert "(start-up unknown, a save unknown)" in "\n".join(statement(found, NOW))
    assert found.usable_seconds == found.slot_seconds
    other = estimate(spec(), replace(GATE, tokens_per_step=1024))
    assert "its steps had 1,024 tokens, these have 2,097,152" in "\n".join(statement(other, NOW))


def test_a_save_takes_what_the_file_system_says_where_the_gate_does_not() -> None:
    slow = spec(profile={"disk_gb_per_second": 10.0})
    assert estimate(slow, replace(GATE, save_seconds=None)).save_seconds == pytest.approx(43.07, rel=0.001)
    assert estimate(slow, GATE).save_seconds == 60


@pytest.mark.parametrize(
    ("every", "step", "startup", "warned"),
    [
        (2000, 12.0, None, True),  # 6.7 h to the first save, and a slot of 4 h
        (1000, 12.0, None, False),
        (1200, 12.0, None, False),  # 14,400 s: with the slot's last second
        (1200, 12.0, 1.0, True),
        (1000, 14.0, 600.0, True),
        (1000, 13.8, 600.0, False),
    ],
)
def test_the_first_save_comes_within_the_slot(every: int, step: float, startup: float | None, warned: bool) -> None:
    run = spec(save_interval=every)
    found = estimate(run, replace(GATE, step_seconds=step, startup_seconds=startup, save_seconds=None))
    warnings = [f for f in judge_estimate(run, found) if f.severity == "warning"]
    assert len(warnings) == warned
    if warned:
        assert warnings[0].field == "checkpoint.save_interval"
        assert "the slot ends after 4.0 h" in warnings[0].rule
        assert "of at most" in warnings[0].fix
    if every == 2000:
        assert "6.7 h (12.0 s a step)" in warnings[0].rule


def test_a_slot_that_its_start_up_fills() -> None:
    found = estimate(spec(), replace(GATE, startup_seconds=14_400.0))
    assert found.slots is None
    assert "too short" in "\n".join(statement(found, NOW))
    assert "a longer time limit" in next(f for f in judge_estimate(spec(), found) if f.severity == "warning").fix


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.5 s"), (99, "99.0 s"), (120, "2.0 min"), (3600, "1.0 h"), (24_000, "6.7 h"), (259_200, "3.0 d")],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert hours(seconds) == text
