"""The verdict on a gate: from a run folder, from anybody's Megatron logs, or from evidence already at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional, Union

from seatrial.judge import drill_rules, reference_rules, resume_rules, rules, system_rules
from seatrial.judge.collect import collect_logs, collect_run
from seatrial.judge.drill_evidence import with_drill
from seatrial.judge.evidence import RUN, Expectations, GateEvidence
from seatrial.judge.expectations import against
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, RuleResult, Verdict, overall
from seatrial.run.reference import Held

_Rule = Callable[[GateEvidence, Expectations], RuleResult]

# In the order of the table that people read.
_RULES = (
    rules.step_set,
    rules.losses,
    rules.grad_norm,
    rules.skipped,
    system_rules.checkpoints,
    rules.evaluation,
    system_rules.exits,
    system_rules.world_size,
    system_rules.device,
    system_rules.hybridep,
    system_rules.cuda_graphs,
    rules.learning,
    reference_rules.curve,
    reference_rules.speed,
    resume_rules.resume_check,
    rules.agreement,
)
_ALWAYS_NEEDED = (
    rules.STEP_SET,
    rules.LOSSES,
    rules.GRAD_NORM,
    rules.SKIPPED,
    rules.EVALUATION,
    rules.LEARNING,
    system_rules.CHECKPOINTS,
)
# What a gate that was ended from outside cannot have.
_NEED_THE_END = (
    rules.STEP_SET,
    rules.EVALUATION,
    rules.LEARNING,
    system_rules.CHECKPOINTS,
    system_rules.EXITS,
    system_rules.WORLD_SIZE,
    system_rules.DEVICE,
    system_rules.HYBRIDEP,
    system_rules.CUDA_GRAPHS,
    reference_rules.CURVE,
    reference_rules.SPEED,
)
# A run folder can answer these, so not being able to judge them is no pass.
_NEEDED_OF_A_RUN = (
    *_ALWAYS_NEEDED,
    system_rules.EXITS,
    system_rules.WORLD_SIZE,
    system_rules.DEVICE,
    system_rules.CUDA_GRAPHS,
    rules.AGREEMENT,
)


def judge_gate(evidence: GateEvidence, expectations: Expectations) -> Verdict:
    """Judge ``evidence``. Pure: no file is read."""
    drill = evidence.drill
    asked = _RULES if drill is None else (*map(_of_a_drill, _RULES), *drill_rules.RULES)
    results = tuple(rule(evidence, expectations) for rule in asked)
    if evidence.interrupted is not None:
        results = (*map(_cut_short, results), _interruption(evidence))
    needed = _NEEDED_OF_A_RUN if evidence.scope == RUN else _ALWAYS_NEEDED
    if drill is not None:
        needed = (*needed, *drill_rules.NAMES)
    if expectations.resume_from is not None:
        needed = (*needed, resume_rules.RESUME_CHECK)
    verdict = overall(results, needed)
    name = f"{drill.fault}@{drill.step}" if drill is not None else None
    details = reference_rules.details(evidence, expectations)
    if expectations.resume_from is not None and evidence.second_pass is not None:
        steps = resume_rules.passes(evidence, expectations.resume_from, expectations.steps)
        details["resume_check"] = {"from": expectations.resume_from, "steps": steps}
    return Verdict(verdict, evidence.rehearsal, evidence.scope, evidence.subject, "gate", results, name, _told(details))


def _told(details: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in details.items() if value is not None}


def _of_a_drill(rule: _Rule) -> _Rule:
    """A drill repeats the steps since its checkpoint, and must."""
    return drill_rules.step_set if rule is rules.step_set else rule


def _cut_short(result: RuleResult) -> RuleResult:
    """What is missing because the gate was ended from outside says nothing against it."""
    if result.verdict == FAIL and result.rule in _NEED_THE_END:
        return replace(result, verdict=INCONCLUSIVE)
    return result


def _interruption(evidence: GateEvidence) -> RuleResult:
    return RuleResult(
        "undisturbed", INCONCLUSIVE, "nothing ends the gate from outside", str(evidence.interrupted),
        evidence=evidence.places.get("record", ""),
    )  # fmt: skip


def judge_run(run_folder: Union[str, Path], held: Optional[Held] = None) -> Verdict:
    """Judge the gate in ``run_folder``. ``held``: what it is held against, in place of its own reference.

    Raises SeatrialError where it holds no readable spec.json.
    """
    evidence, expected = collect_run(Path(run_folder))
    return judge_gate(with_drill(evidence, Path(run_folder)), against(expected, held))


def judge_logs(
    paths: Iterable[Union[str, Path]], steps: int = 100, save_steps: Sequence[int] = (50, 100),
    held: Optional[Held] = None,
) -> Verdict:  # fmt: skip
    """Judge Megatron logs of one gate (one combined log, or one per rank or attempt, in any order).

    Raises SeatrialError for a file that cannot be read, and where no file holds an iteration line.
    """
    evidence, expected = collect_logs([Path(path) for path in paths], steps, tuple(save_steps))
    return judge_gate(evidence, against(expected, held))
