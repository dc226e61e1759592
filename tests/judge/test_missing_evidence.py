"""Whatever is taken away from a gate that passes, or from its log, what is left never passes without its evidence."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from seatrial.judge.evidence import GateEvidence, SecondPass
from seatrial.judge.gate import judge_gate, judge_logs
from tests.judge.gate_builder import GOOD_EXPECTATIONS, LOGS, good_gate, good_steps

EXPECTED = replace(GOOD_EXPECTATIONS, resume_from=50)
FULL = replace(good_gate(), second_pass=SecondPass(50, good_steps(51, 100, attempt=1), "complete", "done"))
Change = Callable[[GateEvidence], GateEvidence]


def without_checkpoint(step: int, gate: GateEvidence) -> GateEvidence:
    return replace(gate, checkpoints={at: found for at, found in gate.checkpoints.items() if at != step})


def without_evaluation(which: str, gate: GateEvidence) -> GateEvidence:
    return replace(gate, evaluations=tuple(one for one in gate.evaluations if one.which != which))


def without_exit(rank: int, gate: GateEvidence) -> GateEvidence:
    return replace(gate, exits=tuple(one for one in gate.exits or () if one.rank != rank))


def without_line(when: str, gate: GateEvidence) -> GateEvidence:
    return replace(gate, evidence_lines=tuple(one for one in gate.evidence_lines if one.when != when))


def second(**changes: object) -> Change:
    return lambda gate: replace(gate, second_pass=replace(gate.second_pass or SecondPass(), **changes))  # type: ignore[arg-type]


PIECES: dict[str, Change] = {
    "checkpoint 50": functools.partial(without_checkpoint, 50),
    "checkpoint 100": functools.partial(without_checkpoint, 100),
    "validation": functools.partial(without_evaluation, "validation"),
    "test": functools.partial(without_evaluation, "test"),
    "exit of rank 0": functools.partial(without_exit, 0),
    "exit of rank 1": functools.partial(without_exit, 1),
    "evidence of the end": functools.partial(without_line, "end"),
    "rank logs": lambda gate: replace(gate, logged_steps=None),
    "step records": lambda gate: replace(gate, steps=()),
    "a step": lambda gate: replace(gate, steps=gate.steps[:72] + gate.steps[73:]),
    "grad norms": lambda gate: replace(gate, steps=tuple(replace(one, grad_norm=None) for one in gate.steps)),
    "counts": lambda gate: replace(gate, steps=tuple(replace(one, skipped=None) for one in gate.steps)),
    "second pass": lambda gate: replace(gate, second_pass=None),
    "its steps": second(steps=()),
    "its record": second(name=None),
    "its checkpoint": second(loaded=None),
}


def test_all_of_it_passes() -> None:
    assert judge_gate(FULL, EXPECTED).verdict == "PASS"


@given(st.sets(st.sampled_from(sorted(PIECES)), min_size=1))
def test_nothing_may_be_missing(names: set[str]) -> None:
    gate = FULL
    for name in sorted(names):
        gate = PIECES[name](gate)
    assert judge_gate(gate, EXPECTED).verdict != "PASS"


LINES = (LOGS / "ok100.log").read_text(encoding="utf-8").splitlines(keepends=True)
ITERATION = re.compile(r"iteration\s+(\d+)/\s+100 \|")
# The evaluation of the last interval is no part: the final one tells the validation loss at the same step.
TOLD = ("validation loss at iteration 100 on", "successfully saved checkpoint")
NEEDED = [
    index for index, line in enumerate(LINES) if ITERATION.search(line) or any(words in line for words in TOLD)
]  # fmt: skip


def test_the_lines_that_a_log_needs_are_there() -> None:
    assert sum(ITERATION.search(LINES[index]) is not None for index in NEEDED) == 100 and len(NEEDED) >= 104


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(NEEDED), min_size=1, max_size=30), st.sets(st.integers(0, len(LINES) - 1), max_size=200))
@example({NEEDED[0]}, set())
@example({NEEDED[-1]}, set())
def test_a_log_that_lacks_a_line_never_passes(tmp_path_factory: object, needed: set[int], other: set[int]) -> None:
    path = Path(tmp_path_factory.mktemp("log")) / "log"  # type: ignore[attr-defined]
    path.write_text("".join(line for index, line in enumerate(LINES) if index not in needed | other), encoding="utf-8")
    assert judge_logs([path]).verdict != "PASS"
