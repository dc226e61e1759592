"""The gates over a set of nodes as people see them."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from seatrial.judge.nodes import FAILED, NOT_JUDGED, QUALIFIED, SUSPECT, NodeResult
from seatrial.report import all_nodes
from seatrial.report.all_nodes import GroupRow, follow, group_row, print_results
from tests.report.test_status import job, rows


def text(terminal: bool = False) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=140, highlight=False, force_terminal=terminal), stream


def test_a_gate_that_was_not_submitted() -> None:
    row = group_row(["a", "b"], None, "sbatch refused", None)
    assert (row.nodes, row.state, row.note, row.over) == ("a,b", "not submitted", "sbatch refused", True)


def test_rows() -> None:
    (running,) = rows(job("RUNNING"))
    running = replace(running, step=12, total=100, verdict=None, needs_action=None)
    assert group_row(["a"], "r", None, running) == GroupRow("a", "r", "RUNNING", "12/100", "-", "", False)
    assert group_row(["a"], "r", None, replace(running, verdict="PASS")).over  # its job may still be ending
    assert group_row(["a"], "r", None, replace(running, state="FAILED", final=True)).over
    assert group_row(["a"], "r", None, replace(running, state="PENDING", reason="Resources")).note == "Resources"
    assert not group_row(["a"], "r", None, replace(running, state="UNKNOWN", reason="squeue: no answer")).over


def test_following_tells_changes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_nodes, "_POLL_SECONDS", 0.0)
    first = GroupRow("a,b", "r1", "RUNNING", "1/100", "-", "", False)
    last = replace(first, state="COMPLETED", step="100/100", verdict="PASS", over=True)
    looks = [[first], [replace(first, step="2/100")], [last]]
    out, stream = text()
    follow(lambda: looks.pop(0), out)
    assert stream.getvalue().splitlines() == [
        "a,b: RUNNING  step 1/100  verdict -", "a,b: COMPLETED  step 100/100  verdict PASS",
    ]  # fmt: skip
    out, stream = text(terminal=True)
    looks = [[first], [last]]
    follow(lambda: looks.pop(0), out)
    assert "PASS" in stream.getvalue() and not looks


def test_results_name_the_bad() -> None:
    out, stream = text()
    results = {
        "n1": NodeResult(QUALIFIED, "", ("r1",)), "n2": NodeResult(FAILED, "[its] gate failed", ("r1", "r2")),
        "n3": NodeResult(SUSPECT, "x", ("r3",)), "n4": NodeResult(NOT_JUDGED, "down"),
    }  # fmt: skip
    print_results(out, results, {"n1": "nvl72-01"})
    said = stream.getvalue()
    assert said.splitlines()[-4:] == ["1 qualified", "1 failed: n2", "1 suspect: n3", "1 not judged: n4"]
    assert "nvl72-01" in said and "[its] gate failed" in said
    out, stream = text()
    print_results(out, {"n1": NodeResult(SUSPECT), "n2": NodeResult(SUSPECT)}, None)
    assert stream.getvalue().splitlines()[-1].startswith("no gate has passed: look at the recipe")
