"""A drill's rules: a drill that passes, broken in one place a line. Missing evidence never passes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge.drill_evidence import with_drill
from seatrial.judge.drill_rules import EQUAL, INJECTED, NAMES, RECOVERED
from seatrial.judge.evidence import CheckpointFound, DrilledAttempt, DrillEvidence, GateEvidence, Injected
from seatrial.judge.gate import judge_gate
from seatrial.judge.rules import STEP_SET
from seatrial.judge.verdict import RuleResult, Verdict
from tests.judge.gate_builder import (
    GOOD_EXPECTATIONS,
    good_gate,
    good_steps,
    loss_at,
    with_steps,
    write_metrics,
)

SAVES = tuple(range(10, 101, 10))
EXPECTED = replace(GOOD_EXPECTATIONS, save_steps=SAVES)
Change = Callable[[GateEvidence], GateEvidence]


def drill(
    fault: str = "kill-rank", *, resumed: int = 20, last: int = 29, name: str = "unknown",
    saved: tuple[int, ...] = (10, 20),
) -> GateEvidence:  # fmt: skip
    """The evidence of a rehearsed drill at step 30 that recovered."""
    steps = (*good_steps(1, last), *good_steps(resumed + 1, 100, attempt=1))
    found = DrillEvidence(
        fault, 30, (Injected(0, fault, 30, "n2", "rank 1 on n2: SIGKILL"),),
        (
            DrilledAttempt(0, name, None, 1, last, saved, ("n1", "n2")),
            DrilledAttempt(1, "complete", resumed, resumed + 1, 100, SAVES, ("n1", "n3")),
        ),
        "/runs/calm", good_steps(), None,
    )  # fmt: skip
    whole = {step: CheckpointFound(True, "whole", step) for step in SAVES}
    gate = replace(good_gate(), checkpoints=whole, drill=found, rehearsal=True)
    return with_steps(gate, steps)


FAULTS = {
    "kill-rank": drill(),
    "hang": drill("hang", name="hang"),
    "kill-node": drill("kill-node", name="node_failure"),
    "truncate-checkpoint": drill("truncate-checkpoint", resumed=10),
    "stop-signal": drill("stop-signal", resumed=31, last=31, name="cancelled", saved=(10, 20, 30, 31)),
}


def judge(gate: GateEvidence) -> Verdict:
    return judge_gate(gate, EXPECTED)


def rule(verdict: Verdict, name: str) -> RuleResult:
    return next(result for result in verdict.rules if result.rule == name)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_drill_that_recovered_passes_every_rule(fault: str) -> None:
    verdict = judge(FAULTS[fault])
    other = {result.rule: result.verdict for result in verdict.rules if result.verdict != "PASS"}
    assert other == dict.fromkeys(("reference curve", "speed", "resume check"), "NOT JUDGED")
    assert set(NAMES) < {result.rule for result in verdict.rules}
    assert (verdict.verdict, verdict.drill) == ("PASS", f"{fault}@30")
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_a_gate_that_is_no_drill_has_none_of_this() -> None:
    verdict = judge_gate(good_gate(), GOOD_EXPECTATIONS)
    assert verdict.drill is None and "drill" not in verdict.to_json()
    assert not set(NAMES) & {result.rule for result in verdict.rules}


def of_drill(**changes: Any) -> Change:
    return lambda gate: replace(gate, drill=replace(gate.drill, **changes))  # type: ignore[type-var]


def attempt(number: int, **changes: Any) -> Change:
    def change(gate: GateEvidence) -> GateEvidence:
        assert gate.drill is not None
        those = tuple(replace(a, **changes) if a.number == number else a for a in gate.drill.attempts)
        return replace(gate, drill=replace(gate.drill, attempts=those))

    return change


def attempts(*keep: int) -> Change:
    def change(gate: GateEvidence) -> GateEvidence:
        assert gate.drill is not None
        those = [DrilledAttempt(2, "complete", 60, 61, 100) if n == 2 else gate.drill.attempts[n] for n in keep]
        return replace(gate, drill=replace(gate.drill, attempts=tuple(those)))

    return change


def steps(*, without: int = 0, at: int = 0, loss: float | None = None, attempt_of: int | None = None) -> Change:
    """Take one step out of the records, or change its loss, in one attempt or in all of them."""

    def change(gate: GateEvidence) -> GateEvidence:
        kept = [record for record in gate.steps if record.step != without]
        if loss is not None:
            kept = [
                replace(record, losses={**record.losses, "lm loss": loss})
                if record.step == at and attempt_of in (None, record.attempt) else record for record in kept
            ]  # fmt: skip
        return with_steps(gate, kept)

    return change


def reference(*, without: int) -> Change:
    return of_drill(reference_steps=tuple(r for r in good_steps() if r.step != without))


def injected(**changes: Any) -> Change:
    one = Injected(0, "kill-rank", 30, "n2", "rank 1 on n2")
    return of_drill(injected=(replace(one, **changes),))


def also(*changes: Change) -> Change:
    def change(gate: GateEvidence) -> GateEvidence:
        for one in changes:
            gate = one(gate)
        return gate

    return change


OFF = loss_at(50) * (1 + 2e-6)
CUT_SHORT = also(attempt(1, name="node_failure", last_step=60), lambda gate: replace(gate, interrupted="a node"))

# (fault, what is wrong, change, rule, its verdict)
BROKEN: list[tuple[str, str, Change, str, str]] = [
    ("kill-rank", "no fault was put in", of_drill(injected=()), INJECTED, "INCONCLUSIVE"),
    ("kill-rank", "no fault was put in", of_drill(injected=()), RECOVERED, "INCONCLUSIVE"),
    ("kill-rank", "no fault was put in", of_drill(injected=()), EQUAL, "INCONCLUSIVE"),
    ("kill-rank", "another step", injected(step=31), INJECTED, "FAIL"),
    ("kill-rank", "another fault", injected(fault="hang"), INJECTED, "FAIL"),
    ("kill-rank", "twice", of_drill(injected=(Injected(0, "kill-rank", 30, None, ""),) * 2), INJECTED, "FAIL"),
    ("kill-rank", "the step was made all the same", attempt(0, last_step=30), INJECTED, "FAIL"),
    ("kill-rank", "too early", attempt(0, last_step=28), INJECTED, "FAIL"),
    ("stop-signal", "before its step", attempt(0, last_step=29), INJECTED, "FAIL"),
    ("kill-rank", "its attempt left no record", attempt(0, name=None, last_step=None), INJECTED, "INCONCLUSIVE"),
    ("kill-rank", "its attempt left no record", attempt(0, name=None, last_step=None), RECOVERED, "INCONCLUSIVE"),
    ("kill-rank", "no second attempt", attempts(0), RECOVERED, "FAIL"),
    ("kill-rank", "no second attempt", attempts(0), EQUAL, "INCONCLUSIVE"),
    ("kill-rank", "the second left no record", attempt(1, name=None, first_step=None), RECOVERED, "INCONCLUSIVE"),
    ("kill-rank", "an older checkpoint", attempt(1, resume_step=10, first_step=11), RECOVERED, "FAIL"),
    ("kill-rank", "a newer one than there is", attempt(1, resume_step=30, first_step=31), RECOVERED, "FAIL"),
    ("kill-rank", "from the beginning", attempt(1, resume_step=None, first_step=1), RECOVERED, "FAIL"),
    ("kill-rank", "a step was left out", attempt(1, first_step=22), RECOVERED, "FAIL"),
    ("truncate-checkpoint", "the one that was cut", attempt(1, resume_step=20, first_step=21), RECOVERED, "FAIL"),
    ("stop-signal", "steps were lost", attempt(1, resume_step=30, first_step=31), RECOVERED, "FAIL"),
    ("stop-signal", "not saved on the signal", attempt(0, saved_steps=(10, 20, 30)), RECOVERED, "FAIL"),
    ("stop-signal", "over before it", also(attempt(0, name="complete", last_step=100), attempts(0)), RECOVERED,
     "INCONCLUSIVE"),
    ("kill-rank", "another end", attempt(0, name="nan"), RECOVERED, "FAIL"),
    ("hang", "not seen as one", attempt(0, name="unknown"), RECOVERED, "FAIL"),
    ("kill-node", "not seen as a node's", attempt(0, name="unknown"), RECOVERED, "FAIL"),
    ("kill-node", "on the lost node again", also(attempt(1, nodes=("n1", "n2")), of_drill(has_spares=True)), RECOVERED,
     "FAIL"),
    ("kill-node", "nobody knows where", also(attempt(1, nodes=()), of_drill(has_spares=True)), RECOVERED,
     "INCONCLUSIVE"),
    ("kill-rank", "the next one failed, too", attempt(1, name="unknown", last_step=60), RECOVERED, "FAIL"),
    ("kill-rank", "a third was needed", attempts(0, 1, 2), RECOVERED, "FAIL"),
    ("kill-rank", "ended from outside after it", CUT_SHORT, RECOVERED, "INCONCLUSIVE"),
    ("kill-rank", "a replayed step is another", steps(at=25, loss=4.0, attempt_of=0), STEP_SET, "FAIL"),
    ("kill-rank", "a loss after the resume is another", steps(at=50, loss=OFF), EQUAL, "FAIL"),
    ("kill-rank", "the last loss is another", steps(at=100, loss=1.0), EQUAL, "FAIL"),
    ("kill-rank", "a loss is no number", steps(at=60, loss=math.nan), EQUAL, "FAIL"),
    ("kill-rank", "a loss before the fault is another", steps(at=5, loss=4.0), EQUAL, "FAIL"),
    ("kill-rank", "a step after the resume is missing", steps(without=70), EQUAL, "INCONCLUSIVE"),
    ("kill-rank", "a step after the resume is missing", steps(without=70), STEP_SET, "FAIL"),
    ("kill-rank", "a step is missing there", reference(without=70), EQUAL, "INCONCLUSIVE"),
    ("kill-rank", "nothing is there", of_drill(reference_steps=()), EQUAL, "INCONCLUSIVE"),
    ("kill-rank", "no undisturbed run", of_drill(reference_problem="it is gone"), EQUAL, "INCONCLUSIVE"),
    ("kill-rank", "a checkpoint is missing", lambda gate: replace(gate, checkpoints={
        step: found for step, found in gate.checkpoints.items() if step != 40}), "checkpoints", "FAIL"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "wrong", "change", "name", "outcome"), BROKEN, ids=[f"{b[0]}: {b[1]}: {b[3]}" for b in BROKEN]
)
def test_a_drill_with_one_thing_wrong(fault: str, wrong: str, change: Change, name: str, outcome: str) -> None:
    verdict = judge(change(FAULTS[fault]))
    assert rule(verdict, name).verdict == outcome
    assert verdict.verdict != "PASS"


def test_a_step_that_one_attempt_printed_twice_is_no_replay() -> None:
    gate = FAULTS["kill-rank"]
    again = with_steps(gate, [*gate.steps[:10], gate.steps[9], *gate.steps[10:]])
    assert (rule(judge(again), STEP_SET).verdict, rule(judge(again), STEP_SET).steps) == ("FAIL", (10,))


@pytest.mark.parametrize(("off", "equal"), [(5e-7, "PASS"), (5e-6, "FAIL")])
def test_on_hardware_sums_may_differ_in_the_seventh_digit(off: float, equal: str) -> None:
    gate = replace(FAULTS["kill-rank"], rehearsal=False)
    told = rule(judge(steps(at=50, loss=loss_at(50) * (1 + off))(gate)), EQUAL)
    assert told.verdict == equal
    assert "1e-06 relative: GPUs may sum in another order" in told.expected
    rehearsed = rule(judge(steps(at=50, loss=loss_at(50) * (1 + off))(FAULTS["kill-rank"])), EQUAL)
    assert rehearsed.verdict == "FAIL"


def test_what_differs_is_named() -> None:
    told = rule(judge(steps(at=50, loss=4.5)(FAULTS["kill-rank"])), EQUAL)
    assert told.steps == (50,)
    assert "100 steps compared, 80 of them after the resume" in told.seen
    assert f"first 50: lm loss {loss_at(50):.6E} undisturbed, 4.500000E+00 here" in told.seen


SAME = {"arguments": "a", "train": "t"}
PROFILE = {"executor": "slurm", "spare_nodes": 1, "device": "cpu", "nodes": 2, "gpus_per_node": 1}


def folder(root: Path, name: str, spec: dict[str, Any], verdict: str | None = None) -> Path:
    path = root / name
    (path / "attempts" / "000").mkdir(parents=True)
    written = {"kind": "gate", "same": SAME, "world_size": 2, "profile": PROFILE, **spec}
    (path / "spec.json").write_text(json.dumps(written))
    write_metrics(path, good_steps())
    if verdict:
        (path / "verdict.json").write_text(json.dumps({"verdict": verdict}))
    return path


def evidence_of(path: Path, **of: Any) -> GateEvidence:
    return with_drill(replace(good_gate(), interrupted="node_failure of n2", **of), path)


def disturbed(root: Path, calm: Path | None) -> Path:
    there = {"fault": "kill-node", "step": 30, "reference": str(calm) if calm else None}
    path = folder(root, "drill", {"drill": there})
    event = {"event": "drill_injected", "attempt": 0, "fault": "kill-node", "step": 30, "node": "n2", "what": "gone"}
    (path / "events.jsonl").write_text(json.dumps(event) + "\n" + '{"event": "drill_inj')
    record = {"class": "node_failure", "first_step": 1, "last_step": 29, "saved_steps": [10, 20], "nodes": ["n1", "n2"]}
    (path / "attempts/000/record.json").write_text(json.dumps(record))
    return path


def test_what_a_run_folder_tells_of_its_drill(tmp_path: Path) -> None:
    calm = folder(tmp_path, "calm", {}, "PASS")
    path = disturbed(tmp_path, calm)
    found = evidence_of(path)
    assert found.drill == DrillEvidence(
        "kill-node", 30, (Injected(0, "kill-node", 30, "n2", "gone"),),
        (DrilledAttempt(0, "node_failure", None, 1, 29, (10, 20), ("n1", "n2")),), str(calm), good_steps(), None, True,
    )  # fmt: skip
    assert found.interrupted is None, "what ended the last attempt was the drill, and nobody else"
    (path / "attempts" / "001").mkdir()
    assert evidence_of(path).interrupted == "node_failure of n2"
    assert evidence_of(calm).drill is None


@pytest.mark.parametrize(
    ("spec", "verdict", "problem"),
    [
        ({}, "FAIL", "the verdict of"),
        ({}, None, "is not there"),
        ({"kind": "convergence"}, "PASS", "no undisturbed gate"),
        ({"drill": {"fault": "hang", "step": 3}}, "PASS", "no undisturbed gate"),
        ({"same": {"arguments": "b"}}, "PASS", "not the same thing"),
        ({"world_size": 4}, "PASS", "another layout"),
        ({"profile": PROFILE | {"nodes": 1, "gpus_per_node": 2}}, "PASS", "another layout"),
        (None, "PASS", "no run that can be read"),
    ],
)
def test_what_is_nothing_to_compare_with(
    tmp_path: Path, spec: dict[str, Any] | None, verdict: str | None, problem: str
) -> None:
    calm = folder(tmp_path, "calm", spec or {}, verdict)
    if spec is None:
        (calm / "spec.json").unlink()
    found = evidence_of(disturbed(tmp_path, calm)).drill
    assert found is not None and problem in str(found.reference_problem)
    assert found.reference_steps == ()


def test_a_drill_that_names_no_undisturbed_run_is_judged_all_the_same(tmp_path: Path) -> None:
    found = evidence_of(disturbed(tmp_path, None)).drill
    assert found is not None and found.reference_problem == "no undisturbed run is named"
