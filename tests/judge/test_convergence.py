"""The verdict on a convergence run: a good one over three attempts, broken in one place a line; and real folders."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.convergence import judge_convergence
from seatrial.judge.convergence_rules import Voyage, spikes
from seatrial.judge.evidence import CheckpointFound, GateEvidence
from seatrial.judge.judging import judge_folder
from seatrial.judge.records import EvaluationRecord, StepRecord
from seatrial.judge.verdict import RuleResult, Verdict, schema
from tests.judge.gate_builder import GOOD_EXPECTATIONS, good_gate, good_steps, loss_at
from tests.synthetic_run import write_run

# Attempt 0 made 60 steps, attempt 1 resumed at 50 and made 20 more, attempt 2 resumed at 70.
STEPS = (*good_steps(1, 60), *good_steps(51, 80, attempt=1), *good_steps(71, 100, attempt=2))
GOOD = replace(
    good_gate(), steps=STEPS, logged_steps=STEPS,
    checkpoints={100: CheckpointFound(True, "whole", 100)},
    evaluations=(*(EvaluationRecord(step, "interval", {"lm loss": 4.0}) for step in (40, 80)),
                 *good_gate().evaluations[1:]),
)  # fmt: skip
VOYAGE = Voyage({"decision": "done", "class": "complete"}, None, (40, 80))
INFORMATION = {"reference curve", "speed", "spikes", "goodput"}


def judge(gate: GateEvidence = GOOD, voyage: Voyage = VOYAGE) -> Verdict:
    return judge_convergence(gate, replace(GOOD_EXPECTATIONS, save_steps=(100,)), voyage)


def rule(verdict: Verdict, name: str) -> RuleResult:
    return next(one for one in verdict.rules if one.rule == name)


def with_steps(*steps: StepRecord) -> GateEvidence:
    return replace(GOOD, steps=steps)


def spoilt(attempt: int, step: int, **changes: Any) -> GateEvidence:
    return with_steps(*(replace(r, **changes) if (r.attempt, r.step) == (attempt, step) else r for r in STEPS))


def lm(value: float) -> dict[str, float]:
    return {"lm loss": value, "mtp_1 loss": 1.0}


def retrained(factor: float) -> GateEvidence:
    """Attempt 1 makes its first ten steps again with another loss."""
    return with_steps(
        *(replace(r, losses=lm(loss_at(r.step) * factor)) if r.attempt == 1 and r.step <= 60 else r for r in STEPS)
    )


def test_a_run_over_three_attempts_passes() -> None:
    verdict = judge()
    assert verdict.verdict == "PASS"
    assert {one.rule for one in verdict.rules if one.verdict != "PASS"} == INFORMATION
    assert "20 steps ran again; all equal" in rule(verdict, "replayed steps").seen
    jsonschema.validate(verdict.to_json(), schema())
    assert Verdict.from_json(verdict.to_json()) == verdict


BROKEN: list[tuple[str, GateEvidence, Voyage, str, str]] = [
    ("it goes on", GOOD, replace(VOYAGE, decision={}), "target step", "INCONCLUSIVE"),
    ("it was stopped", GOOD, replace(VOYAGE, decision={"decision": "stop", "class": "nan"}), "target step", "FAIL"),
    ("no checkpoint at the end", replace(GOOD, checkpoints={}), VOYAGE, "target step", "FAIL"),
    ("a checkpoint that is not whole", replace(GOOD, checkpoints={100: CheckpointFound(False, "cut", 100)}), VOYAGE,
     "target step", "FAIL"),
    ("the last step is missing", with_steps(*(r for r in STEPS if r.step < 100)), VOYAGE, "target step", "FAIL"),
    ("a gap", with_steps(*(r for r in STEPS if r.step != 73)), VOYAGE, "step set", "FAIL"),
    ("a gap between attempts", with_steps(*(r for r in STEPS if not 50 <= r.step <= 60)), VOYAGE, "step set", "FAIL"),
    ("a step beyond", with_steps(*STEPS, replace(STEPS[-1], step=101)), VOYAGE, "step set", "FAIL"),
    ("nothing on record", with_steps(), VOYAGE, "step set", "INCONCLUSIVE"),
    ("NaN that counts", spoilt(1, 55, losses=lm(math.nan)), VOYAGE, "losses", "FAIL"),
    ("no loss at a step", spoilt(2, 90, losses={"mtp_1 loss": 1.0}), VOYAGE, "losses", "FAIL"),
    ("grad norm infinite", spoilt(2, 90, grad_norm=math.inf), VOYAGE, "grad norm", "FAIL"),
    ("a step skipped", spoilt(2, 90, skipped=1), VOYAGE, "skipped and NaN iterations", "FAIL"),
    ("trained otherwise after a resume", retrained(1.02), VOYAGE, "replayed steps", "FAIL"),
    ("losses gone wild", retrained(1e306), VOYAGE, "replayed steps", "FAIL"),
    ("an evaluation missing", replace(GOOD, evaluations=GOOD.evaluations[1:]), VOYAGE, "validation curve",
     "INCONCLUSIVE"),
    ("an evaluation NaN", replace(GOOD, evaluations=(
        EvaluationRecord(40, "interval", {"lm loss": math.nan}), *GOOD.evaluations[1:])), VOYAGE, "validation curve",
     "FAIL"),
    ("no test loss", replace(GOOD, evaluations=GOOD.evaluations[:-1]), VOYAGE, "validation and test loss",
     "INCONCLUSIVE"),
    ("no evidence of graphs", replace(GOOD, evidence_lines=()), VOYAGE, "CUDA graphs", "INCONCLUSIVE"),
]  # fmt: skip


@pytest.mark.parametrize(("gate", "voyage", "name", "expected"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_one_thing_wrong_is_found_by_its_rule(gate: Any, voyage: Any, name: str, expected: str) -> None:
    verdict = judge(gate, voyage)
    assert rule(verdict, name).verdict == expected
    assert verdict.verdict == ("FAIL" if "FAIL" in {one.verdict for one in verdict.rules} else "INCONCLUSIVE")
    jsonschema.validate(verdict.to_json(), schema())


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (spoilt(0, 55, losses=lm(math.nan)), "1 of them with another loss"),  # the later pass counts
        (spoilt(1, 55, losses={"lm loss": loss_at(55) * 1.03, "mtp_1 loss": loss_at(55) / 2}), "farthest 3.00% at 55"),
        (retrained(1.005), "10 of them with another loss"),
    ],
)
def test_disagreement_between_passes_is_told(gate: GateEvidence, words: str) -> None:
    verdict = judge(gate)
    assert (verdict.verdict, rule(verdict, "replayed steps").verdict) == ("PASS", "PASS")
    assert words in rule(verdict, "replayed steps").seen
    assert verdict.to_json()["passes"]["disagreements"]


def curve(*spiked: tuple[int, float], steps: int = 400) -> list[StepRecord]:
    at = dict(spiked)
    return [
        StepRecord(step, steps, losses={"lm loss": at.get(step, 3.0 + 0.01 * math.sin(step))})
        for step in range(1, steps + 1)
    ]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (curve(), []),
        (curve((200, 6.0)), [200]),
        (curve((200, 4.0), (201, 6.0), (202, 5.0)), [201]),
        (curve((200, 6.0), (300, 5.0)), [200, 300]),
        (curve((200, 3.2)), []),
        (curve((200, math.nan), (300, math.inf)), []),
        (curve((10, 30.0)), []),
        ([], []),
    ],
)
def test_spikes_are_found(steps: list[StepRecord], found: list[int]) -> None:
    assert [one.step for one in spikes(steps)] == found


@given(st.sets(st.integers(1, 100), min_size=1), st.booleans())
def test_no_run_with_a_gap_passes(steps: set[int], spoil: bool) -> None:
    kept = tuple(
        replace(record, losses=lm(math.nan)) if record.step in steps else record
        for record in STEPS
        if spoil or record.step not in steps
    )
    assert judge(with_steps(*kept)).verdict != "PASS"


def folder(tmp_path: Path, change: Callable[[Path], None] = lambda _: None, **options: Any) -> Path:
    run = write_run(tmp_path / "run", steps=400, attempts=4, **options).path
    change(run)
    return run


def test_a_run_folder_is_judged_by_its_kind(tmp_path: Path) -> None:
    verdict = judge_folder(folder(tmp_path, logs=True))
    assert (verdict.kind, rule(verdict, "step set").verdict, rule(verdict, "target step").verdict) == (
        "convergence", "PASS", "PASS",
    )  # fmt: skip
    told = verdict.to_json()
    jsonschema.validate(told, schema())
    assert told["goodput"]["attempts"] == 4 and told["speed"]["gpus"] == 64


def test_steps_that_only_a_log_tells_of_close_a_gap(tmp_path: Path) -> None:
    def lose(run: Path) -> None:
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run / "metrics.jsonl").write_text("".join(line for line in lines if '"step":123,' not in line))

    run = folder(tmp_path, lose, logs=True)
    assert rule(judge_folder(run), "step set").verdict == "PASS"
    for log in run.glob("attempts/*/rank-*.log"):
        log.unlink()
    found = rule(judge_folder(run), "step set")
    assert (found.verdict, found.steps) == ("FAIL", (123,))
