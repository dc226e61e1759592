"""A group in one line, and its runs followed together."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.report.facts import read_facts
from seatrial.report.groups import Followed, follow, group_json, group_words
from seatrial.report.status import Row, row
from seatrial.run import records
from seatrial.run.groups import Group
from seatrial.run.layout import RunFolder
from seatrial.slurm.state_records import JobState

DONE = {"decision": "done", "exit_code": 0, "reason": "20 steps", "class": "complete"}
STOP = {"decision": "stop", "exit_code": 1, "reason": "it failed", "class": "crash_loop"}
PAIR = Group("pair-1", "pair", "2027-01-15T08:00:00+00:00", ())


def make(root: Path, name: str, *, steps: int = 0, decision: dict[str, Any] | None = None) -> RunFolder:
    folder = RunFolder.create(root / name)
    records.write_json(folder.spec, {
        "recipe": name, "kind": "convergence", "fields": {"schedule.train_iters": {"value": 20}}, "group": "pair-1",
    })  # fmt: skip
    for step in range(1, steps + 1):
        record = {"attempt": 0, "step": step, "of": 20, "losses": {"lm loss": 4.0}, "step_time_ms": 10.0}
        records.append_line(folder.metrics, record)
    if decision:
        records.append_event(folder.events, "decision", attempt=0, **decision)
    return folder


def row_of(folder: RunFolder, state: str, final: bool = False) -> Row:
    return row(read_facts(folder), JobState(state, final, "", "squeue", "7"), 0.0)


def test_a_group_in_one_line(tmp_path: Path) -> None:
    rows = [
        row_of(make(tmp_path, "a", steps=20, decision=DONE), "COMPLETING"),
        row_of(make(tmp_path, "b", steps=7), "RUNNING"),
        row_of(make(tmp_path, "c", steps=9, decision=STOP), "FAILED", True),
        row_of(make(tmp_path, "d"), "PENDING"),
        row_of(RunFolder(tmp_path / "removed"), "UNKNOWN"),
    ]
    said = "group pair-1: 5 runs: 1 done, 1 running, 1 stopped, 1 pending, 1 unknown; 36 of ? steps; 2 need a person"
    assert group_words(PAIR, rows) == said
    assert group_words(PAIR, rows[:2]) == "group pair-1: 2 runs: 1 done, 1 running; 27 of 40 steps"
    assert group_json(PAIR, rows[:2])["total"] == {
        "runs": 2, "states": {"done": 1, "running": 1}, "steps": 27, "of": 40, "needs_action": 0,
    }  # fmt: skip
    assert [one.group for one in rows] == ["pair-1"] * 4 + [None]


@pytest.mark.parametrize("terminal", [False, True])
def test_both_are_followed_until_both_are_over(tmp_path: Path, terminal: bool) -> None:
    first, second = make(tmp_path, "nano", steps=13), make(tmp_path, "qwen")
    out = io.StringIO()
    looks = iter(range(100))

    def look() -> dict[Path, str | None]:
        at = next(looks)
        if at == 1:
            for step in range(14, 21):
                records.append_line(first.metrics, {"attempt": 0, "step": step, "of": 20, "losses": {"lm loss": 3.0}})
            records.append_event(first.events, "decision", attempt=0, **DONE)
        assert at < 4
        return {first.path: "", second.path: "PENDING: Priority" if at < 2 else None}

    console = Console(file=out, force_terminal=terminal, width=140, highlight=False, color_system=None)
    follow([Followed("nano", first, 20), Followed("qwen", second, 20)], look, console)
    said = out.getvalue()
    assert "nano: decision: done (exit code 0, complete): 20 steps" in said
    if terminal:
        assert "qwen: step 0/20  (starting)  [PENDING: Priority]" in said
        assert "nano: step 13/20  loss 4.0000" in said
    else:
        steps = [line.partition("  ")[0] for line in said.splitlines() if line.startswith("nano: step")]
        assert steps == [f"nano: step {step}/20" for step in (1, 10, 20)]
        assert "qwen" not in said, "a run that waits has nothing to tell"


def test_odd_records_are_passed_over(tmp_path: Path) -> None:
    folder = make(tmp_path, "nano", steps=2)
    losses, norm = {"step": 3, "of": 20, "losses": 4}, {"step": 3, "of": 20, "grad_norm": "?"}
    for odd in (3, None, [], {}, {"step": "x", "of": 20}, {"step": 3}, losses, norm):
        records.append_line(folder.metrics, odd)
        records.append_line(folder.events, odd)
    with folder.events.open("a") as stream:
        stream.write('{"event": "decis')
    one = Followed("nano", folder, 20)
    (said,) = one.read("", plain=True)
    assert said.startswith("nano: step 1/20  loss 4.0000") and one.line().startswith("nano: step 3/20")
    assert not one.over
