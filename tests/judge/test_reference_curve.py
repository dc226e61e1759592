"""A reference is made of a whole, finite curve, and of nothing else; what is written is what the judge reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.judge.curves import RunCurve, read_curve
from seatrial.judge.evidence import LOG, RUN
from seatrial.judge.records import EvaluationRecord, StepRecord
from seatrial.judge.reference_curve import make_reference, reference_text
from seatrial.run.reference import read_reference
from tests.judge.gate_builder import LOGS


def curve(steps: list[int], of: int | None = None, kind: str = RUN, **odd: Any) -> RunCurve:
    """``odd``: s<step> = another loss."""
    records = tuple(
        StepRecord(step, of or steps[-1], step_time_ms=100.0, global_batch_size=4,
                   losses={"lm loss": odd.get(f"s{step}", 6.0)})
        for step in steps
    )  # fmt: skip
    return RunCurve("run-1", "/runs/run-1", kind, records, gpus=2, sequence_length=64, arguments="abc", seed=1)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "reference.json"
    path.write_text(reference_text(make_reference(read_curve(LOGS / "ok100.log"), "2026-12-01T00:00:00", "a note")))
    found = read_reference(path)
    assert (found.name, found.note, found.gpus, found.tokens_per_step) == ("ok100.log", "a note", 2, 256)
    assert (len(found.steps), found.steps[1], found.arguments) == (100, 4.851285, None)
    assert found.tokens_per_second_per_gpu is not None
    data = json.loads(path.read_text())
    assert data["validation"] == [[50, 4.574218], [100, 3.634062]]
    assert (data["every"], data["speed"]["steps"]) == (1, 90)


def test_a_long_run_keeps_every_tenth_step_after_2000() -> None:
    made = make_reference(curve(list(range(1, 48_001))), "now")
    assert made["every"] == 10
    assert [row[0] for row in made["steps"]] == [*range(1, 2001), *range(2010, 48_001, 10)]
    assert len(reference_text(made)) < 500_000


def test_a_very_long_run_stays_small() -> None:
    made = make_reference(curve(list(range(1, 200_001))), "now")
    assert made["every"] == 100
    assert len(reference_text(made)) < 500_000


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (RunCurve("x", "/x", RUN), "without steps"),
        (curve([1, 2, 3], of=100), "at step 3 of 100"),
        (curve([1, 2, 3, 7, 8, 9, 12]), "no step 4-6, 10-11"),
        (curve(list(range(51, 101))), "no step 1-50"),
        (curve([1, 2, 3], s2=math.nan), "no finite lm loss at step 2"),
        (curve([1, 2, 3], s3=math.inf), "no finite lm loss at step 3"),
    ],
)
def test_what_is_no_reference(bad: RunCurve, what: str) -> None:
    with pytest.raises(SeatrialError, match=what):
        make_reference(bad, "now")


def test_a_loss_that_megatron_left_out_is_refused() -> None:
    with pytest.raises(SeatrialError, match="no finite lm loss at step 2-60"):
        make_reference(read_curve(LOGS / "nan.log"), "now")


def test_a_validation_loss_that_is_no_number_is_refused() -> None:
    whole = curve([1, 2])
    odd = RunCurve(**{**whole.__dict__, "evaluations": (EvaluationRecord(2, "interval", {"lm loss": math.nan}),)})
    with pytest.raises(SeatrialError, match="validation loss at step 2"):
        make_reference(odd, "now")


@pytest.mark.parametrize("steps", [[1, 10, 20, 30], [10, 20, 30]])
def test_a_log_that_prints_each_tenth_step_has_no_gap(steps: list[int]) -> None:
    made = make_reference(curve(steps, of=100, kind=LOG), "now")
    assert [row[0] for row in made["steps"]] == steps


def test_a_run_whose_times_are_not_known_has_a_curve_and_no_speed() -> None:
    whole = curve([1, 2])
    made = make_reference(
        RunCurve("x", "/x", LOG, tuple(StepRecord(s.step, 2, losses=s.losses) for s in whole.steps)), ""
    )
    assert made["speed"] is None
