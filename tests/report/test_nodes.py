"""What people are shown of nodes."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from seatrial.report.nodes import node_rows, print_nodes

NOW = 1_796_000_000.0
FAILED = {"node": "n1", "what": "preflight", "time": "2026-12-01T10:00:00Z", "reason": "gpus: 3 [of 4]", "run": "r"}
PASSED = {"node": "n2", "what": "gate_passed", "time": "2026-12-01T11:00:00Z", "run": "r"}


def avoided(node: str, expires: str) -> dict[str, Any]:
    return {"node": node, "expires": expires, "reason": "Xid 79", "run": "r"}


def test_one_row_a_node_from_both_records() -> None:
    exclusions = [avoided("n1", "2030-01-01T00:00:00Z"), avoided("n2", "2020-01-01T00:00:00Z"),
                  avoided("n3", "2030-01-01T00:00:00Z")]  # fmt: skip
    rows = node_rows([FAILED, PASSED, None], exclusions, NOW)
    assert [(row.past.node, row.past.failures, row.excluded_until is not None, row.why) for row in rows] == [
        ("n1", 1, True, "Xid 79"), ("n2", 0, False, None), ("n3", 0, True, "Xid 79"),
    ]  # fmt: skip
    assert rows[0].to_json()["last_reason"] == "gpus: 3 [of 4]"


def test_the_table_tells_it_and_takes_no_markup_from_records() -> None:
    console = Console(width=120, record=True)
    print_nodes(console, "rack", node_rows([FAILED, PASSED], [], NOW))
    text = console.export_text()
    assert "gpus: 3 [of 4]" in text and "1 preflight" in text and "2026-12-01 11:00" in text
