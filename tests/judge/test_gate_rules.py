"""The gate's rules: a gate that passes, broken in one place a line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.evidence import (
    CheckpointFound,
    Expectations,
    GateEvidence,
    RankExit,
    asks_for_hybridep,
    graphs_asked_off,
    required_losses,
)
from seatrial.judge.gate import judge_gate
from seatrial.judge.records import ArgumentDump, EvaluationRecord, SaveRecord, StepRecord
from seatrial.judge.verdict import RuleResult, Verdict
from tests.judge.gate_builder import (
    GOOD_EXPECTATIONS,
    change_step,
    evidence_line,
    good_gate,
    good_steps,
    loss_at,
    with_steps,
)

GOOD = good_gate()
NOTHING_TO_HOLD_AGAINST = {"reference curve", "speed", "resume check"}


def judge(gate: GateEvidence, **expected: Any) -> Verdict:
    return judge_gate(gate, replace(GOOD_EXPECTATIONS, **expected))


def rule(verdict: Verdict, name: str) -> RuleResult:
    return next(result for result in verdict.rules if result.rule == name)


def test_a_good_gate_passes_every_rule() -> None:
    verdict = judge(GOOD)
    assert verdict.verdict == "PASS"
    assert {result.rule for result in verdict.rules if result.verdict != "PASS"} == NOTHING_TO_HOLD_AGAINST
    assert Verdict.from_json(verdict.to_json()) == verdict


def at(step: int, **changes: Any) -> Callable[[GateEvidence], GateEvidence]:
    return lambda gate: with_steps(gate, change_step(gate.steps, step, **changes))


def lm(value: float, step: int = 1) -> dict[str, float]:
    return {"lm loss": value, "mtp_1 loss": loss_at(step) / 2}


def without_step(step: int) -> Callable[[GateEvidence], GateEvidence]:
    return lambda gate: with_steps(gate, (record for record in gate.steps if record.step != step))


def nan_from(step: int) -> Callable[[GateEvidence], GateEvidence]:
    return lambda gate: with_steps(gate, (replace(r, losses=lm(math.nan)) if r.step >= step else r for r in gate.steps))


def absent_from(step: int) -> Callable[[GateEvidence], GateEvidence]:
    """A NaN loss as Megatron prints it: not at all."""
    return lambda gate: with_steps(
        gate, (replace(r, losses={"mtp_1 loss": 1.0}) if r.step >= step else r for r in gate.steps)
    )


def flat(value: float) -> Callable[[GateEvidence], GateEvidence]:
    return lambda gate: with_steps(gate, (replace(r, losses=lm(value)) for r in gate.steps))


def evaluations(*records: EvaluationRecord) -> Callable[[GateEvidence], GateEvidence]:
    return lambda gate: replace(gate, evaluations=records)


def evidence_lines(*lines: Any) -> Callable[[GateEvidence], GateEvidence]:
    return lambda gate: replace(gate, evidence_lines=lines)


def at_end(**changes: Any) -> Callable[[GateEvidence], GateEvidence]:
    return evidence_lines(evidence_line("first step", 1), evidence_line("end", 100, **changes))


def exits(*left: RankExit) -> Callable[[GateEvidence], GateEvidence]:
    return lambda gate: replace(gate, exits=left)


def checkpoint(step: int, found: Any) -> Callable[[GateEvidence], GateEvidence]:
    def change(gate: GateEvidence) -> GateEvidence:
        kept = {at: state for at, state in gate.checkpoints.items() if at != step}
        return replace(gate, checkpoints=kept if found is None else {**kept, step: found})

    return change


VALIDATION, TEST = GOOD.evaluations[1:]
REPLAYED = (*good_steps(1, 60), *good_steps(51, 100, attempt=1))
STAND_IN = {"file": "cpu/deep_ep.py", "version": "0", "stand_in": True}

BROKEN = [
    # what is wrong, change, rule, that rule's verdict, its steps
    ("no loss printed at one step", at(2, losses={"mtp_1 loss": 1.0}), "losses", "FAIL", [2]),
    ("no loss printed from 2 on", absent_from(2), "losses", "FAIL", list(range(2, 22))),
    ("NaN at the last step", at(100, losses=lm(math.nan)), "losses", "FAIL", [100]),
    ("NaN from 50 on", nan_from(50), "losses", "FAIL", list(range(50, 70))),
    ("infinite loss", at(7, losses=lm(math.inf)), "losses", "FAIL", [7]),
    ("second loss missing once", at(9, losses={"lm loss": loss_at(9)}), "losses", "FAIL", [9]),
    ("loss that occurs once only", at(9, losses={**lm(loss_at(9), 9), "z_loss": 1.0}), "losses", "FAIL", None),
    ("gradient norm NaN", at(33, grad_norm=math.nan), "grad norm", "FAIL", [33]),
    ("gradient norm missing once", at(33, grad_norm=None), "grad norm", "FAIL", [33]),
    ("step skipped", at(12, skipped=1), "skipped and NaN iterations", "FAIL", [12]),
    ("NaN iteration counted", at(12, nan=1), "skipped and NaN iterations", "FAIL", [12]),
    ("counts not printed", at(12, nan=None), "skipped and NaN iterations", "INCONCLUSIVE", [12]),
    ("step 73 missing", without_step(73), "step set", "FAIL", [73]),
    ("99 of 100 steps", without_step(100), "step set", "FAIL", [100]),
    ("first step missing", without_step(1), "step set", "FAIL", [1]),
    ("a step too many", lambda g: with_steps(g, (*g.steps, replace(g.steps[-1], step=101))), "step set", "FAIL", [101]),
    ("steps repeated", lambda g: with_steps(g, REPLAYED), "step set", "FAIL", list(range(51, 61))),
    ("no step at all", lambda g: with_steps(g, ()), "step set", "INCONCLUSIVE", None),
    ("flat loss", flat(4.85), "learning", "FAIL", list(range(91, 101))),
    ("loss explodes at the end", at(95, losses=lm(1e4, 95)), "learning", "FAIL", list(range(91, 101))),
    ("no evaluation", evaluations(), "validation and test loss", "INCONCLUSIVE", []),
    ("no validation", evaluations(TEST), "validation and test loss", "INCONCLUSIVE", []),
    ("no test", evaluations(VALIDATION), "validation and test loss", "INCONCLUSIVE", []),
    ("evaluated at 50 only", evaluations(replace(VALIDATION, iteration=50), replace(TEST, iteration=50)),
     "validation and test loss", "INCONCLUSIVE", []),
    ("test loss NaN", evaluations(VALIDATION, replace(TEST, losses={"lm loss": math.nan})),
     "validation and test loss", "FAIL", [100]),
    ("test without a loss", evaluations(VALIDATION, replace(TEST, losses={})),
     "validation and test loss", "FAIL", [100]),
    ("NaN in an evaluation on the way", evaluations(EvaluationRecord(50, "interval", lm(math.nan)), VALIDATION, TEST),
     "validation and test loss", "FAIL", [50]),
    ("no checkpoint at 100", checkpoint(100, None), "checkpoints", "FAIL", [100]),
    ("no checkpoint at 50", checkpoint(50, None), "checkpoints", "FAIL", [50]),
    ("truncated shard", checkpoint(50, CheckpointFound(False, "shard is short", 50)), "checkpoints", "FAIL", [50]),
    ("checkpoint of another step", checkpoint(50, CheckpointFound(True, "whole", 40)), "checkpoints", "FAIL", [50]),
    ("a rank failed", exits(RankExit(0, 0), RankExit(1, 1, "exception", "boom")), "exit records", "FAIL", []),
    ("a rank left no record", exits(RankExit(0, 0)), "exit records", "INCONCLUSIVE", []),
    ("an unreadable record", exits(RankExit(0, 0), RankExit(1, None)), "exit records", "INCONCLUSIVE", []),
    ("no exit records", exits(), "exit records", "INCONCLUSIVE", []),
    ("other world size", at_end(world_size=1), "world size", "FAIL", []),
    ("no evidence line: world size", evidence_lines(), "world size", "INCONCLUSIVE", []),
    ("no evidence line: device", evidence_lines(), "device", "INCONCLUSIVE", []),
    ("ran on a CPU", at_end(device="cpu"), "device", "FAIL", []),
    ("HybridEP configured only", evidence_lines(), "HybridEP dispatch", "INCONCLUSIVE", []),
    ("another dispatcher ran", at_end(dispatcher_backend="deepep"), "HybridEP dispatch", "FAIL", []),
    ("no flex dispatcher ran", at_end(dispatcher="MoEAlltoAllTokenDispatcher", dispatcher_backend=None),
     "HybridEP dispatch", "FAIL", []),
    ("never dispatched", at_end(dispatch_calls=0), "HybridEP dispatch", "FAIL", []),
    ("dispatches not counted", at_end(dispatch_calls=None), "HybridEP dispatch", "INCONCLUSIVE", []),
    ("stand-in on hardware", at_end(deep_ep=STAND_IN), "HybridEP dispatch", "FAIL", []),
    ("unknown deep_ep", at_end(deep_ep=None), "HybridEP dispatch", "INCONCLUSIVE", []),
    ("graph captured", at_end(cuda_graphs_captured=1), "CUDA graphs", "FAIL", []),
    ("no evidence line: graphs", evidence_lines(), "CUDA graphs", "INCONCLUSIVE", []),
    ("evidence of the first step only", evidence_lines(GOOD.evidence_lines[0]), "CUDA graphs", "INCONCLUSIVE", []),
    ("graphs not counted", at_end(cuda_graphs_captured=None), "CUDA graphs", "INCONCLUSIVE", []),
    ("no rank logs", lambda g: replace(g, logged_steps=None), "logs agree with records", "INCONCLUSIVE", []),
    ("logs lack a step", lambda g: replace(g, logged_steps=good_steps(1, 99)),
     "logs agree with records", "FAIL", [100]),
    ("logs tell another loss", lambda g: replace(g, logged_steps=change_step(g.steps, 4, losses=lm(9.0, 4))),
     "logs agree with records", "FAIL", [4]),
    ("logs tell another count", lambda g: replace(g, logged_steps=change_step(g.steps, 4, skipped=1)),
     "logs agree with records", "FAIL", [4]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "name", "expected", "steps"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_one_thing_wrong_is_found_by_its_rule(change: Any, name: str, expected: str, steps: Any) -> None:
    verdict = judge(change(GOOD))
    found = rule(verdict, name)
    assert found.verdict == expected and found.expected and found.seen
    if steps is not None:
        assert found.to_json()["steps"] == steps
    assert verdict.verdict != "PASS"
    assert verdict.verdict == ("FAIL" if "FAIL" in {r.verdict for r in verdict.rules} else "INCONCLUSIVE")


def test_many_steps_are_counted_and_the_list_is_cut() -> None:
    found = rule(judge(nan_from(50)(GOOD)), "losses")
    assert len(found.to_json()["steps"]) == 20 and "50-100" in found.seen


@pytest.mark.parametrize(
    ("change", "expected", "verdict"),
    [
        (flat(4.85), {"learning_ratio": 0.99}, "FAIL"),
        (flat(4.85), {}, "FAIL"),
        (lambda g: g, {"learning_ratio": 0.5}, "FAIL"),
        (lambda g: g, {"learning_ratio": 0.99}, "PASS"),
    ],
)
def test_learning_holds_the_ends_of_the_curve_against_the_ratio(change: Any, expected: Any, verdict: str) -> None:
    assert rule(judge(change(GOOD), **expected), "learning").verdict == verdict


def test_learning_reads_the_recovered_value_of_step_two() -> None:
    seen = rule(judge(at(2, losses=lm(5.0, 2), recovered=True)(GOOD)), "learning").seen
    assert seen.startswith(f"{(sum(map(loss_at, range(1, 11))) - loss_at(2) + 5.0) / 10:.6g}")


def test_a_dense_model_is_not_judged_on_its_dispatcher_but_on_graphs() -> None:
    dense = at_end(dispatcher=None, dispatcher_backend=None, deep_ep=None, dispatch_calls=0)(GOOD)
    verdict = judge(dense, hybridep=False)
    assert (verdict.verdict, rule(verdict, "HybridEP dispatch").verdict) == ("PASS", "NOT JUDGED")
    assert rule(verdict, "CUDA graphs").verdict == "PASS"
    assert judge(replace(dense, evidence_lines=()), hybridep=False).verdict == "INCONCLUSIVE"


def test_a_rehearsal_may_use_the_stand_in_and_is_labelled() -> None:
    lines = tuple(replace(line, device="cpu", rehearsal=True, deep_ep=STAND_IN) for line in GOOD.evidence_lines)
    verdict = judge(replace(GOOD, evidence_lines=lines, rehearsal=True), device="cpu")
    assert (verdict.verdict, verdict.rehearsal) == ("PASS", True)


def test_a_loss_that_must_be_printed_and_never_is() -> None:
    steps = tuple(replace(r, losses={"lm loss": r.losses["lm loss"]}) for r in GOOD.steps)
    found = rule(judge(with_steps(GOOD, steps)), "losses")
    assert found.verdict == "FAIL" and "'mtp_1 loss' at 1-100" in found.seen


def test_a_short_gate_is_judged_too() -> None:
    gate = replace(
        with_steps(GOOD, good_steps(1, 4)),
        evaluations=(replace(VALIDATION, iteration=4), replace(TEST, iteration=4)),
        checkpoints={4: CheckpointFound(True, "whole", 4)},
    )
    assert judge(gate, steps=4, save_steps=(4,), learning_ratio=0.99).verdict == "PASS"
    assert judge(with_steps(gate, good_steps(1, 1)), steps=1, save_steps=(4,)).verdict != "PASS"


# Only a log: what it cannot tell is not judged, what it can tell is held to the same rules.

LOG = replace(
    GOOD,
    scope="log",
    evidence_lines=(),
    exits=None,
    checkpoints={},
    logged_steps=None,
    saves=(
        SaveRecord(50, "ck", "finished"),
        SaveRecord(100, "ck", "started"),
        SaveRecord(100, "ck", "finished"),
    ),
)
ANY = Expectations()
HYBRIDEP = {
    "num_experts": "128",
    "moe_token_dispatcher_type": "flex",
    "moe_flex_dispatcher_backend": "hybridep",
}
DENSE = {"num_experts": "None", "cuda_graph_impl": "none"}


def dump(values: dict[str, str], complete: bool = True) -> dict[str, Any]:
    return {"arguments": ArgumentDump(values, complete)}


@pytest.mark.parametrize(
    ("changes", "verdict", "name", "outcome"),
    [
        ({}, "PASS", "checkpoints", "PASS"),
        ({}, "PASS", "exit records", "NOT JUDGED"),
        ({}, "PASS", "HybridEP dispatch", "NOT JUDGED"),
        (dump(DENSE), "PASS", "CUDA graphs", "NOT JUDGED"),
        (dump({**HYBRIDEP, "cuda_graph_impl": "none"}), "INCONCLUSIVE", "HybridEP dispatch", "INCONCLUSIVE"),
        (dump(DENSE, complete=False), "INCONCLUSIVE", "HybridEP dispatch", "INCONCLUSIVE"),
        (dump({**DENSE, "cuda_graph_impl": "local"}), "INCONCLUSIVE", "CUDA graphs", "INCONCLUSIVE"),
        ({**dump(HYBRIDEP), "evidence_lines": GOOD.evidence_lines}, "PASS", "HybridEP dispatch", "PASS"),
        (
            {"evidence_lines": (evidence_line("end", 100, cuda_graphs_captured=2),)},
            "FAIL",
            "CUDA graphs",
            "FAIL",
        ),
        ({**dump({"world_size": "8"}), "evidence_lines": GOOD.evidence_lines}, "FAIL", "world size", "FAIL"),
        ({"saves": ()}, "INCONCLUSIVE", "checkpoints", "INCONCLUSIVE"),
        ({"saves": LOG.saves[1:]}, "FAIL", "checkpoints", "FAIL"),
        ({"saves": LOG.saves[:2]}, "FAIL", "checkpoints", "FAIL"),
        ({"evaluations": ()}, "INCONCLUSIVE", "validation and test loss", "INCONCLUSIVE"),
        ({"steps": good_steps(1, 60)}, "FAIL", "step set", "FAIL"),
    ],
)
def test_a_log_is_judged_on_its_own_words(changes: Any, verdict: str, name: str, outcome: str) -> None:
    judged = judge_gate(replace(LOG, **changes), ANY)
    assert (judged.verdict, rule(judged, name).verdict) == (verdict, outcome)


@pytest.mark.parametrize(
    ("arguments", "asked", "off", "losses"),
    [
        ({}, None, None, ["lm loss"]),
        (HYBRIDEP, True, None, ["lm loss"]),
        ({**HYBRIDEP, "num_experts": None}, False, None, ["lm loss"]),
        ({**HYBRIDEP, "moe_token_dispatcher_type": "alltoall"}, False, None, ["lm loss"]),
        ({**HYBRIDEP, "moe_flex_dispatcher_backend": "deepep"}, False, None, ["lm loss"]),
        ({"cuda_graph_impl": "none"}, None, True, ["lm loss"]),
        ({"cuda_graph_impl": "transformer_engine"}, None, False, ["lm loss"]),
        ({"cuda_graph_impl": "none", "enable_cuda_graph": "True"}, None, False, ["lm loss"]),
        ({"enable_cuda_graph": False}, None, True, ["lm loss"]),
        ({"mtp_num_layers": "2"}, None, None, ["lm loss", "mtp_1 loss", "mtp_2 loss"]),
        ({"num_experts": 8, "moe_router_load_balancing_type": "['seq_aux_loss']"}, None, None,
         ["lm loss", "seq_load_balancing_loss"]),
        ({"num_experts": 8, "moe_router_load_balancing_type": "aux_loss"}, None, None,
         ["lm loss", "load_balancing_loss"]),
    ],
)  # fmt: skip
def test_what_arguments_ask_for(arguments: Any, asked: Any, off: Any, losses: list[str]) -> None:
    assert asks_for_hybridep(arguments) is asked
    assert graphs_asked_off(arguments) is off
    assert list(required_losses(arguments)) == losses


# Whatever is missing, no gate passes; whatever the records hold, the judge answers.

NEEDED = [("evaluations", i) for i in (1, 2)] + [("evidence_lines", 1)] + [("exits", i) for i in (0, 1)]


@pytest.mark.parametrize(("field", "index"), NEEDED)
def test_without_a_needed_piece_there_is_no_pass(field: str, index: int) -> None:
    kept = list(getattr(GOOD, field))
    del kept[index]
    assert judge(replace(GOOD, **{field: tuple(kept)})).verdict == "INCONCLUSIVE"


NUMBERS = st.sampled_from([None, 0, 1, 2, 1.5, -1.0, math.nan, math.inf, 1e308])
RECORDS = st.builds(
    StepRecord,
    step=st.integers(0, 6),
    of=st.just(4),
    losses=st.dictionaries(st.sampled_from(["lm loss", "mtp_1 loss"]), NUMBERS.filter(lambda n: n is not None)),
    grad_norm=NUMBERS,
    skipped=st.sampled_from([None, 0, 1]),
    nan=st.sampled_from([None, 0, 1]),
    recovered=st.booleans(),
)


@given(st.lists(RECORDS, max_size=8), st.none() | st.lists(RECORDS, max_size=8).map(tuple), st.booleans())
def test_any_records_get_a_verdict_and_only_a_full_finite_set_passes(steps: Any, logged: Any, log: bool) -> None:
    gate = replace(LOG if log else GOOD, steps=tuple(steps), logged_steps=logged)
    verdict = judge_gate(gate, replace(ANY if log else GOOD_EXPECTATIONS, steps=4))
    Verdict.from_json(verdict.to_json())
    if verdict.verdict == "PASS":
        assert sorted(record.step for record in steps) == [1, 2, 3, 4]
        assert all(math.isfinite(record.losses["lm loss"]) for record in steps)


@given(st.sets(st.integers(1, 100), min_size=1), st.sampled_from([b[1] for b in BROKEN]))
def test_dropping_steps_never_makes_a_pass(dropped: set[int], change: Any) -> None:
    gate = change(GOOD)
    assert judge(with_steps(gate, (r for r in gate.steps if r.step not in dropped))).verdict != "PASS"


NODE_LOST = "node_failure of gb200-003: Slurm says: srun: error: Node failure on gb200-003"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "INCONCLUSIVE"),
        ({"steps": change_step(good_steps(last=30), 5, losses={"lm loss": math.nan, "mtp_1 loss": 1.0})}, "FAIL"),
        ({"steps": change_step(good_steps(last=30), 5, grad_norm=math.inf)}, "FAIL"),
        ({"steps": change_step(good_steps(last=30), 5, skipped=1)}, "FAIL"),
    ],
    ids=["only cut short", "a NaN before", "an infinite norm before", "a skipped step before"],
)
def test_a_gate_that_a_node_ended_is_inconclusive_unless_it_failed_before(
    change: dict[str, Any], expected: str
) -> None:
    cut = {"steps": good_steps(last=30), "exits": (RankExit(0, 1), RankExit(1, None)), "checkpoints": {}}
    wanted = cut | {"evaluations": (), "evidence_lines": (), "interrupted": NODE_LOST} | change
    verdict = judge(replace(GOOD, **wanted, logged_steps=wanted["steps"]))
    assert verdict.verdict == expected
    assert rule(verdict, "undisturbed").seen == NODE_LOST
    assert judge(replace(GOOD, interrupted=NODE_LOST)).verdict == "INCONCLUSIVE", "never a PASS"
