"""What is on record of nodes, and what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.run import records
from seatrial.run.node_history import GATE_FAILED, GATE_PASSED, PREFLIGHT, RELEASED, add, path_for, summary


def line(node: str, what: str, day: int) -> dict[str, Any]:
    return {
        "node": node,
        "what": what,
        "time": f"2026-12-{day:02d}T00:00:00Z",
        "reason": f"why {day}",
        "run": f"r{day}",
    }


@pytest.mark.parametrize(
    ("lines", "failures", "last", "qualified"),
    [
        ([line("n1", PREFLIGHT, 1)], {"preflight": 1}, "why 1", None),
        ([line("n1", PREFLIGHT, 1), line("n1", "gpu_fault", 2), line("n1", PREFLIGHT, 3)],
         {"preflight": 2, "gpu_fault": 1}, "why 3", None),
        ([line("n1", GATE_PASSED, 1)], {}, None, "2026-12-01T00:00:00Z"),
        ([line("n1", PREFLIGHT, 1), line("n1", GATE_PASSED, 2)], {"preflight": 1}, "why 1", "2026-12-02T00:00:00Z"),
        ([line("n1", GATE_PASSED, 1), line("n1", GATE_FAILED, 2)], {"gate_failed": 1}, "why 2", None),
        ([line("n1", "hang", 1), line("n1", RELEASED, 2)], {"hang": 1}, "why 1", None),
        ([None, 7, {}, {"node": 3}, line("n1", "hang", 1)], {"hang": 1}, "why 1", None),
    ],
)  # fmt: skip
def test_summary(lines: list[Any], failures: dict[str, int], last: str | None, qualified: str | None) -> None:
    (found,) = summary(lines).values()
    assert (found.of, found.failures) == (failures, sum(failures.values()))
    assert (found.last_reason, found.qualified) == (last, qualified)


def test_what_is_added_is_found_again_and_a_torn_line_is_not(tmp_path: Path) -> None:
    path = path_for(tmp_path / "runs", "rack")
    add(path, "n1", PREFLIGHT, "no answer", "run-1", 0)
    add(path, "n2", "hang", "no step", "run-1", 3)
    with path.open("a") as stream:
        stream.write('{"node": "n3", "wh')
    found = summary(records.read_lines(path))
    assert [(one.node, one.last_what, one.last_run) for one in found.values()] == [
        ("n1", "preflight", "run-1"), ("n2", "hang", "run-1")
    ]  # fmt: skip


NAMES = st.sampled_from(["n1", "n2", 3, None])
LINES = st.lists(st.fixed_dictionaries({"node": NAMES, "what": st.text() | st.none(), "time": st.text() | st.none()}))


@given(LINES)
def test_no_line_is_counted_twice_or_lost(lines: list[dict[str, Any]]) -> None:
    found = summary(lines)
    bad = [one for one in lines if isinstance(one["node"], str) and str(one["what"]) not in (GATE_PASSED, RELEASED)]
    assert sum(one.failures for one in found.values()) == len(bad)
    assert all(one.failures == sum(one.of.values()) for one in found.values())
