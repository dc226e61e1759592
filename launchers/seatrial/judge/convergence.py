"""The verdict on a convergence run: its target proven, one whole curve over all attempts, held against a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Union

from seatrial.judge import convergence_rules as own
from seatrial.judge import reference_rules, rules, system_rules
from seatrial.judge.collect import collect_run
from seatrial.judge.convergence_rules import Voyage
from seatrial.judge.evidence import Expectations, GateEvidence
from seatrial.judge.expectations import against
from seatrial.judge.history import read_events, read_history
from seatrial.judge.records import StepRecord
from seatrial.judge.run_goodput import run_goodput
from seatrial.judge.verdict import INCONCLUSIVE, RuleResult, Verdict, overall
from seatrial.run.layout import RunFolder
from seatrial.run.records import read_object
from seatrial.run.reference import Held

_FINAL = ("done", "stop")
_NEEDED = (
    *own.NEEDED, rules.LOSSES, rules.GRAD_NORM, rules.SKIPPED, rules.LEARNING, system_rules.WORLD_SIZE,
    system_rules.DEVICE, system_rules.CUDA_GRAPHS,
)  # fmt: skip


def judge_convergence(evidence: GateEvidence, expected: Expectations, voyage: Voyage) -> Verdict:
    """Judge a convergence run. Pure: no file is read."""
    curve = evidence.curve
    merged = replace(evidence, steps=curve.steps)  # the last value of each step counts
    found = own.spikes(curve.steps)
    results: tuple[RuleResult, ...] = (
        own.target(merged, expected, voyage),
        own.step_set(merged, expected),
        rules.losses(merged, expected),
        rules.grad_norm(merged, expected),
        rules.skipped(merged, expected),
        own.replayed(evidence, curve),
        rules.evaluation(merged, expected),
        own.validation(merged, voyage),
        rules.learning(merged, expected),
        reference_rules.curve(merged, expected),
        reference_rules.speed(merged, expected),
        system_rules.world_size(merged, expected),
        system_rules.device(merged, expected),
        system_rules.hybridep(merged, expected),
        system_rules.cuda_graphs(merged, expected),
        own.spiky(merged, found),
        own.goodput(merged, voyage),
    )
    verdict = overall(results, _NEEDED)
    if not voyage.decision and verdict == "PASS":
        verdict = INCONCLUSIVE
    details = reference_rules.details(merged, expected) | own.details(evidence, voyage, curve, found)
    told = {key: value for key, value in details.items() if value is not None}
    return Verdict(verdict, evidence.rehearsal, evidence.scope, evidence.subject, "convergence", results, details=told)


def judge_voyage(
    run_folder: Union[str, Path], decision: Optional[Mapping[str, Any]] = None, held: Optional[Held] = None
) -> Verdict:
    """Judge the convergence run in ``run_folder``. ``decision``: what ends it, where that is not on record yet.

    ``held``: what it is held against, in place of its own reference.

    Raises SeatrialError where it holds no readable spec.json.
    """
    folder = RunFolder(Path(run_folder))
    evidence, expected = collect_run(folder.path)
    events = read_events(folder)
    decisions = [event for event in events if event.get("event") == "decision"]
    last = decisions[-1] if decisions and decisions[-1].get("decision") in _FINAL else {}
    history = read_history(folder, events)
    voyage = Voyage(decision or last, run_goodput(history, events), _due(folder, expected.steps))
    return judge_convergence(replace(evidence, steps=_filled(evidence)), against(expected, held), voyage)


def _filled(evidence: GateEvidence) -> tuple[StepRecord, ...]:
    """Return the step records, with those that only a rank's log tells of: a supervisor that was killed wrote none.

    In the order of attempts, so that the last pass over a step counts.
    """
    known = {(record.attempt, record.step) for record in evidence.steps}
    more = [record for record in evidence.logged_steps or () if (record.attempt, record.step) not in known]
    return tuple(sorted((*evidence.steps, *more), key=lambda record: record.attempt)) if more else evidence.steps


def _due(folder: RunFolder, steps: int) -> tuple[int, ...]:
    """Return the steps at which an evaluation on the way is due."""
    spec = read_object(folder.spec) or {}
    fields = spec.get("fields")
    every = _value(fields, "eval_interval") if _value(fields, "eval_iters") else None
    return tuple(range(every, steps, every)) if isinstance(every, int) and every > 0 else ()


def _value(fields: Any, dest: str) -> Any:
    found: Sequence[Any] = [
        field.get("value") for key, field in (fields.items() if isinstance(fields, dict) else ())
        if key.partition(".")[2] == dest and isinstance(field, dict)
    ]  # fmt: skip
    return found[0] if found else None
