"""The parser reads what Megatron-Bridge 0.5.1 prints: ``logs/bridge_0_5_1.log``, made by its own logging code."""

from __future__ import annotations

import math
from pathlib import Path

from seatrial.judge.parse import LogParser
from seatrial.judge.records import EvaluationRecord, ExitNotice, Record, StepRecord

LOG = Path(__file__).parent / "logs" / "bridge_0_5_1.log"


def records() -> list[Record]:
    parser = LogParser()
    return [*parser.feed(LOG.read_text()), *parser.close()]


def test_steps() -> None:
    steps = {record.step: record for record in records() if isinstance(record, StepRecord)}
    assert sorted(steps) == list(range(1, 9)) and {record.of for record in steps.values()} == {8}
    losses = {step: record.losses.get("lm loss") for step, record in steps.items() if step not in (2, 4)}
    assert losses == {1: 12.25, 3: 10.125, 5: 9.75, 6: None, 7: math.inf, 8: 9.5}
    assert {step: (r.skipped, r.nan) for step, r in steps.items()} == {s: (s == 4, s == 4) for s in steps}
    norms = {step: record.grad_norm for step, record in steps.items() if step != 6}
    assert norms == {1: 3.5, 2: 2.25, 3: 1.0, 4: None, 5: math.inf, 7: 7.0, 8: 1.5}
    assert steps[6].grad_norm is not None and math.isnan(steps[6].grad_norm)
    one = steps[3]
    assert (one.consumed_samples, one.global_batch_size, one.learning_rate) == (48, 16, 1.6e-3)
    assert (one.step_time_ms, one.tflops_per_gpu, one.time) == (350.5, 350.5, "2026-07-20T12:00:00")


def test_what_a_step_without_a_loss_looks_like() -> None:
    """A skipped step prints a loss of 0 and says that it was skipped; a loss that is no number is not printed."""
    steps = {record.step: record for record in records() if isinstance(record, StepRecord)}
    assert steps[4].losses == {"lm loss": 0.0} and steps[4].skipped == 1
    assert steps[6].losses == {} and steps[6].nan == 0


def test_each_line_is_of_its_own_step() -> None:
    """Megatron-Core's loop prints the mean of the first two steps on the second line; Bridge's does not."""
    steps = [record for record in records() if isinstance(record, StepRecord)]
    assert (steps[1].losses, steps[1].recovered) == ({"lm loss": 11.5}, False)
    assert steps[1].step_time_ms == 350.5
    parser = LogParser()
    unmarked = parser.feed(LOG.read_text().replace("s GPU utilization: ", "").partition("iteration        3/")[0])
    assert [dict(record.losses) for record in unmarked if isinstance(record, StepRecord)][1] == {"lm loss": 10.75}


def test_evaluations() -> None:
    found = [record for record in records() if isinstance(record, EvaluationRecord)]
    assert [(record.iteration, record.which, dict(record.losses)) for record in found] == [
        (8, which, {"lm loss": 9.25}) for which in ("interval", "validation", "test")
    ]


def test_ways_to_leave() -> None:
    """Bridge says SIGTERM whatever the signal was."""
    found = [(record.reason, record.text) for record in records() if isinstance(record, ExitNotice)]
    assert found == [
        ("interval", "exiting program at iteration 8"),
        ("duration", "exiting program after 350.5 minutes"),
        ("signal", "exiting program after receiving SIGTERM"),
    ]
