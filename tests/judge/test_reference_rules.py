"""Runs held against a reference: its speed and its curve, and what cannot be held against it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.evidence import GateEvidence
from seatrial.judge.gate import judge_gate
from seatrial.judge.speed import Setting, peak_of, windows
from seatrial.judge.verdict import RuleResult
from seatrial.run.reference import Held, Reference, Tolerances
from tests.judge.gate_builder import GOOD_EXPECTATIONS, change_step, evidence_line, good_gate, good_steps, loss_at

# 4 sequences of 4,096 tokens in 30 ms on 2 GPUs
RATE = 4 * 4096 / 0.030 / 2
REFERENCE = Reference(
    "card", {step: loss_at(step) for step in range(1, 101)}, arguments="a", gpu_type="gb200", gpus=2,
    tokens_per_step=4 * 4096, tokens_per_second_per_gpu=RATE,
)  # fmt: skip
EXPECTED = replace(
    GOOD_EXPECTATIONS, gpu_type="gb200", sequence_length=4096, global_batch_size=4,
    held=Held(REFERENCE, arguments="a"),
)  # fmt: skip


def judge(name: str, gate: GateEvidence | None = None, **changes: Any) -> RuleResult:
    held = {key: changes.pop(key) for key in ("reference", "tolerances", "asked", "arguments", "problem")
            if key in changes}  # fmt: skip
    expected = replace(EXPECTED, held=replace(EXPECTED.held, **held), **changes)
    verdict = judge_gate(gate or good_gate(), expected)
    return next(one for one in verdict.rules if one.rule == name)


def slower(factor: float) -> GateEvidence:
    return replace(good_gate(), steps=tuple(replace(r, step_time_ms=30.0 * factor) for r in good_steps()))


def with_loss(step: int, value: float | None) -> GateEvidence:
    losses = {"mtp_1 loss": 1.0} | ({} if value is None else {"lm loss": value})
    return replace(good_gate(), steps=change_step(good_steps(), step, losses=losses))


def without(step: int) -> GateEvidence:
    return replace(good_gate(), steps=tuple(record for record in good_steps() if record.step != step))


def without_time(step: int) -> GateEvidence:
    return replace(good_gate(), steps=change_step(good_steps(), step, step_time_ms=None))


SPEED = [
    ("as fast", None, {}, "PASS"),
    ("9% slower", slower(1 / 0.91), {}, "PASS"),
    ("11% slower", slower(1 / 0.89), {}, "FAIL"),
    ("faster", slower(0.5), {}, "PASS"),
    ("a tolerance of 1% is one of 5%", slower(1 / 0.96), {"tolerances": Tolerances(speed=0.01)}, "PASS"),
    ("and no more", slower(1 / 0.94), {"tolerances": Tolerances(speed=0.01)}, "FAIL"),
    ("a step without a time", without_time(60), {}, "INCONCLUSIVE"),
    (
        "a time gone wild",
        replace(good_gate(), steps=change_step(good_steps(), 60, step_time_ms=1e308)),
        {},
        "INCONCLUSIVE",
    ),
    ("no time of the first step", without_time(1), {}, "PASS"),
    ("no sequence length", None, {"sequence_length": None, "global_batch_size": None}, "INCONCLUSIVE"),
    ("other GPUs", None, {"gpu_type": "h100"}, "NOT JUDGED"),
    ("other GPUs, but asked for", None, {"gpu_type": "h100", "asked": True}, "INCONCLUSIVE"),
    ("another number of GPUs", None, {"reference": replace(REFERENCE, gpus=64)}, "NOT JUDGED"),
    ("other arguments", None, {"arguments": "b"}, "NOT JUDGED"),
    ("other arguments, but asked for", None, {"arguments": "b", "asked": True}, "PASS"),
    ("a rehearsal's speed", None, {"reference": replace(REFERENCE, rehearsal=True)}, "NOT JUDGED"),
    ("no speed in it", None, {"reference": replace(REFERENCE, tokens_per_second_per_gpu=None)}, "NOT JUDGED"),
    ("no reference", None, {"reference": None}, "NOT JUDGED"),
    ("a reference that is none", None, {"reference": None, "problem": "not JSON"}, "INCONCLUSIVE"),
]


@pytest.mark.parametrize(("gate", "changes", "expected"), [c[1:] for c in SPEED], ids=[c[0] for c in SPEED])
def test_speed_is_held_against_the_reference(gate: Any, changes: Any, expected: str) -> None:
    found = judge("speed", gate, **changes)
    assert found.verdict == expected and found.expected and found.seen


CURVE = [
    ("the same", None, {}, "PASS", ()),
    ("4% off at one step", with_loss(40, loss_at(40) * 1.04), {}, "PASS", ()),
    ("6% off at one step", with_loss(40, loss_at(40) * 0.94), {}, "FAIL", (40,)),
    ("NaN at one step", with_loss(40, math.nan), {}, "FAIL", (40,)),
    ("no loss at one step", with_loss(40, None), {}, "FAIL", (40,)),
    ("a step missing", without(40), {}, "INCONCLUSIVE", (40,)),
    ("the last step missing", without(100), {}, "INCONCLUSIVE", (100,)),
    ("the end 3% off", replace(good_gate(), steps=tuple(
        replace(r, losses={"lm loss": loss_at(r.step) * (1.03 if r.step > 90 else 1)}) for r in good_steps())),
     {}, "FAIL", ()),
    ("losses gone wild", replace(good_gate(), steps=tuple(replace(r, losses={"lm loss": 1e308}) for r in good_steps())),
     {}, "FAIL", tuple(range(1, 101))),
    ("a reference that ends earlier", None,
     {"reference": replace(REFERENCE, steps={s: loss_at(s) for s in range(1, 91)})}, "INCONCLUSIVE", ()),
    ("a longer reference", None,
     {"reference": replace(REFERENCE, steps={s: loss_at(s) for s in range(1, 48_001)})}, "PASS", ()),
    ("another batch", None, {"global_batch_size": 8}, "NOT JUDGED", ()),
    ("no curve in it", None, {"reference": replace(REFERENCE, steps={})}, "NOT JUDGED", ()),
    ("a reference that is none", None, {"reference": None, "problem": "not JSON"}, "INCONCLUSIVE", ()),
]  # fmt: skip


@pytest.mark.parametrize(("gate", "changes", "expected", "steps"), [c[1:] for c in CURVE], ids=[c[0] for c in CURVE])
def test_the_curve_is_held_against_the_reference(gate: Any, changes: Any, expected: str, steps: Any) -> None:
    found = judge("reference curve", gate, **changes)
    assert (found.verdict, found.steps) == (expected, steps)


@given(st.sets(st.integers(1, 100), min_size=1))
def test_no_curve_with_a_gap_passes(steps: set[int]) -> None:
    gate = replace(good_gate(), steps=tuple(record for record in good_steps() if record.step not in steps))
    assert judge("reference curve", gate).verdict in ("FAIL", "INCONCLUSIVE")


def test_the_windows_say_mean_median_p99_and_rates() -> None:
    steps = tuple(replace(r, step_time_ms=20.0 if r.step < 100 else 120.0, tflops_per_gpu=500.0) for r in good_steps())
    last, warm = windows(steps, Setting(2, 4096, *peak_of("gb200", "cuda")))
    assert (last.first, last.last, last.mean_ms, last.median_ms, last.p99_ms) == (91, 100, 30.0, 20.0, 120.0)
    assert (warm.first, warm.steps, warm.p99_ms) == (11, 90, 120.0)
    assert last.tokens_per_second_per_gpu == pytest.approx(RATE) and last.mfu == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("gpu", "device", "peak"),
    [("NVIDIA GB200", "cuda", 2500), ("gb200", None, 2500), ("NVIDIA B200", "cuda", 2250), ("odd", "cuda", None),
     ("NVIDIA H100 80GB HBM3", "cuda", 989.5), ("gb200", "cpu", None), (None, "cuda", None)],
)  # fmt: skip
def test_the_peak_is_that_of_the_gpu(gpu: Any, device: Any, peak: Any) -> None:
    assert peak_of(gpu, device)[0] == peak and peak_of(gpu, device)[1]


def test_mfu_is_told_with_its_peak() -> None:
    steps = tuple(replace(r, tflops_per_gpu=687.0) for r in good_steps())
    lines = (evidence_line("first step", 1, gpu="NVIDIA GB200"), evidence_line("end", 100, gpu="NVIDIA GB200"))
    found = judge("speed", replace(good_gate(), steps=steps, evidence_lines=lines))
    assert "MFU 27.5%" in found.seen and "2500 TFLOP/s, dense BF16 of GB200" in found.seen
