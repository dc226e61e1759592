"""The table in the docs is the one that jobs end by."""

from __future__ import annotations

from pathlib import Path

from seatrial.supervise.exit_codes import MEANINGS

DOCS = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def test_every_exit_code_of_ours_is_documented() -> None:
    table = DOCS.read_text().partition("## Jobs")[2]
    rows = [
        line.strip("| ").split(" | ", 1) for line in table.splitlines() if line.startswith("| ") and line[2].isdigit()
    ]
    assert {int(code): meaning for code, meaning in rows} == MEANINGS
