"""From facts and a job's state to a row, as a table of cases."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.report.facts import Facts
from seatrial.report.status import Row, cells, duration, print_list, print_status, remarks, row
from seatrial.slurm.state_records import JobState

FACTS = Facts(Path("/runs/nano-gate-1"), recipe="nano", kind="gate", total=100, created="2026-12-01T05:34:06+00:00")
STEPS = ({"step": 40, "step_time_ms": 2000.0, "losses": {"lm loss": 4.5}},)


def facts(**changes: Any) -> Facts:
    return Facts(**{**FACTS.__dict__, **changes})


def job(state: str, final: bool = False, **more: Any) -> JobState:
    return JobState(state, final, more.pop("reason", ""), "squeue", "123", **more)


def decided(decision: str, code: int, reason: str = "why") -> dict[str, Any]:
    return {"decision": {"decision": decision, "exit_code": code, "reason": reason}, "ended": True}


@pytest.mark.parametrize(
    ("one", "state", "expected"),
    [
        (FACTS, job("PENDING", reason="Priority"), {"step": 0, "eta_seconds": None, "needs_action": None}),
        (
            facts(steps=STEPS, stepped_at=990.0),
            job("RUNNING"),
            {"step": 40, "loss": 4.5, "age_seconds": 10.0, "eta_seconds": 120.0, "needs_action": None},
        ),
        # A clock of the file server that is ahead of ours.
        (facts(steps=STEPS, stepped_at=1005.0), job("RUNNING"), {"age_seconds": 0.0}),
        (facts(steps=STEPS), job("PENDING", reason="BeginTime"), {"eta_seconds": None}),
        (FACTS, job("PENDING", needs_action="release it"), {"needs_action": "release it"}),
        (facts(**decided("done", 0), verdict="PASS"), job("COMPLETED", True), {"needs_action": None}),
        (facts(**decided("stop", 83)), job("FAILED", True), {"needs_action": None, "decision": "stop"}),
        (
            facts(attempt=2, decision={"decision": "restart", "class": "network"}), job("RUNNING"),
            {"attempts": 3, "last_class": "network", "goodput": None, "needs_action": None},
        ),
        (facts(**decided("stop", 88)), job("FAILED", True), {"needs_action": None}),
        (facts(**decided("stop", 1, "rank 3")), job("FAILED", True), {"needs_action": "it stopped: rank 3"}),
        (
            facts(**decided("stop", 81, "loss"), verdict="FAIL"), job("FAILED", True),
            {"needs_action": "verdict FAIL: loss"},
        ),
        (FACTS, job("CANCELLED", True), {"needs_action": None}),
        (
            facts(kind="gate"), job("NODE_FAIL", True),
            {"needs_action": "its job ended, and its supervisor recorded no decision: see its logs"},
        ),
        (
            facts(kind="convergence"), job("NODE_FAIL", True),
            {"needs_action": "its job ended, and its supervisor recorded no decision: seatrial tend brings it back"},
        ),
        (FACTS, job("UNKNOWN", reason="sacct: no answer"), {"state": "UNKNOWN", "needs_action": None}),
        (facts(unreadable="no spec"), job("UNKNOWN"), {"needs_action": "no spec"}),
    ],
)  # fmt: skip
def test_a_row(one: Facts, state: JobState, expected: dict[str, Any]) -> None:
    found = row(one, state, 1000.0)
    assert {key: getattr(found, key) for key in expected} == expected
    json.dumps(found.to_json(), allow_nan=False)


def test_a_loss_that_is_no_number_is_json() -> None:
    found = row(facts(steps=({"step": 1, "losses": {"lm loss": "nan"}},)), job("RUNNING"), 0.0)
    assert found.to_json()["loss"] == "nan"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "0 s"), (99.4, "99 s"), (101, "2 min"), (3540, "59 min"), (3599, "1 h"), (3600 * 5 + 1200, "5 h 20 min"),
        (3600 * 23 + 3590, "1 d"), (3600 * 52, "2 d 4 h"), (3600 * 24 * 9, "9 d"),
    ],
)  # fmt: skip
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def rows(*states: JobState) -> list[Row]:
    return [row(facts(path=Path(f"/runs/run-{n}")), state, 0.0) for n, state in enumerate(states)]


def test_remarks_say_equal_things_once() -> None:
    silent = job("UNKNOWN", reason="squeue: no answer")
    found = remarks(rows(silent, silent, job("PENDING", needs_action="release it"), job("RUNNING"), silent))
    assert found == [("?", "squeue: no answer", "3 runs, first run-0"), ("!", "release it", "run-2")]


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("show", [print_status, print_list])
def test_every_run_has_its_line(count: int, show: Any) -> None:
    out = io.StringIO()
    show(Console(file=out, width=140), rows(*[job("RUNNING")] * count))
    text = out.getvalue()
    assert all(f"run-{n} " in text for n in range(count))
    assert text.count("RUNNING") == count


def test_names_are_no_markup() -> None:
    out = io.StringIO()
    print_status(Console(file=out, width=140), [row(facts(path=Path("/runs/a[red]b")), job("PENDING"), 0.0)])
    assert "a[red]b" in out.getvalue()


def test_cells_before_anything_happened() -> None:
    assert cells(row(Facts(Path("/runs/x")), job("PENDING"), 0.0))[1:] == ["123", "PENDING", "0/?", *["-"] * 5]
