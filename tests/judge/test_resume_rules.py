"""A gate's resume check: two passes that agree, and each way in which they may not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.evidence import GateEvidence, SecondPass
from seatrial.judge.gate import judge_gate
from seatrial.judge.verdict import RuleResult, Verdict
from tests.judge.gate_builder import GOOD_EXPECTATIONS, change_step, good_gate, good_steps

EXPECTED = replace(GOOD_EXPECTATIONS, resume_from=50)
SECOND = SecondPass(50, good_steps(51, 100, attempt=1), "complete", "100 steps, whole checkpoint, final evaluation")


def judge(second: SecondPass | None, **gate: Any) -> tuple[Verdict, RuleResult]:
    evidence: GateEvidence = replace(good_gate(), second_pass=second, **gate)
    verdict = judge_gate(evidence, EXPECTED)
    return verdict, next(one for one in verdict.rules if one.rule == "resume check")


def losses(step: int, factor: float) -> tuple[Any, ...]:
    record = next(one for one in SECOND.steps if one.step == step)
    return change_step(SECOND.steps, step, losses={**record.losses, "lm loss": record.losses["lm loss"] * factor})


def without(*steps: int) -> tuple[Any, ...]:
    return tuple(record for record in SECOND.steps if record.step not in steps)


def test_two_passes_that_agree_pass_and_every_step_is_told() -> None:
    verdict, rule = judge(SECOND)
    assert (verdict.verdict, rule.verdict) == ("PASS", "PASS")
    assert "50 of them equal as printed" in rule.seen
    told = verdict.to_json()["resume_check"]
    assert told["from"] == 50 and [row["step"] for row in told["steps"]] == list(range(51, 101))
    assert all(row["first"] == row["second"] for row in told["steps"])


CASES = [
    # what is wrong, the second pass, verdict, steps, words
    ("nothing there", None, "INCONCLUSIVE", (), "no second pass"),
    ("nothing but a folder", SecondPass(), "INCONCLUSIVE", (), "no second pass"),
    ("final loss 1.1% off", replace(SECOND, steps=losses(100, 1.011)), "FAIL", (100,), "apart"),
    ("final loss 0.9% off", replace(SECOND, steps=losses(100, 1.009)), "PASS", (), "farthest apart at 100"),
    ("another step off", replace(SECOND, steps=losses(73, 1.5)), "PASS", (), "farthest apart at 73"),
    ("NaN at the end", replace(SECOND, steps=losses(100, math.nan)), "FAIL", (100,), "no finite lm loss"),
    ("infinite on the way", replace(SECOND, steps=losses(60, math.inf)), "FAIL", (60,), "no finite lm loss"),
    ("a step missing", replace(SECOND, steps=without(73)), "FAIL", (73,), "73"),
    ("the last step missing", replace(SECOND, steps=without(100)), "FAIL", (100,), "100"),
    ("began again at step 1", replace(SECOND, loaded=None, steps=good_steps()), "FAIL", tuple(range(1, 51)), "None"),
    ("another checkpoint", replace(SECOND, loaded=40, steps=good_steps(41, 100)), "FAIL", tuple(range(41, 51)), "40"),
    ("it crashed", replace(SECOND, name="unknown", reason="rank 1 exited 1", steps=without(100)), "FAIL", (100,),
     "did not end well: rank 1 exited 1"),
    ("its supervisor was gone", replace(SECOND, name=None, reason=None), "INCONCLUSIVE", (), "did not end well"),
    ("the time limit came", replace(SECOND, name="time_limit", interrupted="time_limit: the end", steps=without(99)),
     "INCONCLUSIVE", (99,), "time_limit"),
]  # fmt: skip


@pytest.mark.parametrize(("second", "expected", "steps", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_second_pass_is_held_against_the_first(second: Any, expected: str, steps: Any, words: str) -> None:
    verdict, rule = judge(second)
    assert (rule.verdict, rule.steps) == (expected, steps) and words in rule.seen
    assert verdict.verdict == expected


def test_a_first_pass_with_a_gap_cannot_be_confirmed() -> None:
    _, rule = judge(SECOND, steps=tuple(r for r in good_steps() if r.step != 60))
    assert (rule.verdict, rule.steps) == ("INCONCLUSIVE", (60,))


def test_nothing_is_asked_of_a_gate_without_the_check() -> None:
    verdict = judge_gate(good_gate(), GOOD_EXPECTATIONS)
    rule = next(one for one in verdict.rules if one.rule == "resume check")
    assert (verdict.verdict, rule.verdict) == ("PASS", "NOT JUDGED") and "resume_check" not in verdict.to_json()


@given(st.sets(st.integers(51, 100), min_size=1), st.sampled_from(["gone", "nan", "inf"]))
def test_no_second_pass_with_a_gap_passes(steps: set[int], how: str) -> None:
    value = {"nan": math.nan, "inf": math.inf}.get(how)
    kept = tuple(
        record if record.step not in steps else replace(record, losses={"lm loss": value})
        for record in SECOND.steps
        if value is not None or record.step not in steps
    )
    verdict, _ = judge(replace(SECOND, steps=kept))
    assert verdict.verdict != "PASS"
