"""Gates over a set of nodes: how each stands while they go on, and what they have said of each node at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from seatrial.judge.nodes import FAILED, NOT_JUDGED, QUALIFIED, SUSPECT, NodeResult
from seatrial.report.status import Row
from seatrial.report.terminal import STYLES

_POLL_SECONDS = 2.0
_RESULTS = {QUALIFIED: "green", FAILED: "bold red", SUSPECT: "yellow", NOT_JUDGED: "dim"}


@dataclass(frozen=True)
class GroupRow:
    """One gate of the table. ``run`` None: it was not submitted. ``over``: nothing more comes of it."""

    nodes: str
    run: str | None
    state: str
    step: str
    verdict: str
    note: str
    over: bool


def group_row(nodes: Sequence[str], run: str | None, error: str | None, row: Row | None) -> GroupRow:
    """Return the row of a gate; ``row`` is its run's, None where there is no run."""
    names = ",".join(nodes)
    if row is None:
        return GroupRow(names, run, "not submitted", "-", "-", error or "", True)
    total = "?" if row.total is None else row.total
    note = row.needs_action or (row.reason if row.state in ("PENDING", "UNKNOWN") else "")
    over = row.verdict is not None or row.final
    return GroupRow(names, run, row.state, f"{row.step}/{total}", row.verdict or "-", note, over)


def follow(look: Callable[[], Sequence[GroupRow]], out: Console) -> None:
    """Show the gates until all are over: a live table on a terminal, elsewhere a line for each change of one."""
    if not out.is_terminal:
        _lines(look, out)
        return
    with Live(console=out, refresh_per_second=4, vertical_overflow="crop") as live:
        while True:
            rows = look()
            live.update(table(rows))
            if all(row.over for row in rows):
                return
            time.sleep(_POLL_SECONDS)


def _lines(look: Callable[[], Sequence[GroupRow]], out: Console) -> None:
    shown: dict[int, tuple[str, str, str]] = {}
    while True:
        rows = look()
        for number, row in enumerate(rows):
            now = (row.state, row.verdict, row.note)
            if shown.get(number) != now:
                shown[number] = now
                note = f"  ({row.note})" if row.note else ""
                words = f"{row.nodes}: {row.state}  step {row.step}  verdict {row.verdict}{note}"
                out.print(words, soft_wrap=True, markup=False)
                out.file.flush()
        if all(row.over for row in rows):
            return
        time.sleep(_POLL_SECONDS)


def table(rows: Sequence[GroupRow]) -> Table:
    """Return the table of gates."""
    found = _table("nodes", "run", "state", "step", "verdict", "")
    for row in rows:
        style = STYLES.get(row.verdict, "")
        verdict = f"[{style}]{row.verdict}[/]" if style else row.verdict
        found.add_row(*map(escape, (row.nodes, row.run or "-", row.state, row.step)), verdict, escape(row.note))
    return found


def print_results(out: Console, results: Mapping[str, NodeResult], blocks: Mapping[str, str] | None) -> None:
    """Print one row a node, then how many there are of each result; the bad ones by name."""
    found = _table("node", "block", "result", "gates", "why")
    for node, one in results.items():
        block, runs = (blocks or {}).get(node, "-"), "\n".join(one.runs) or "-"
        result = f"[{_RESULTS[one.result]}]{one.result}[/]"
        found.add_row(escape(node), escape(block), result, escape(runs), escape(one.why))
    out.print(found)
    for result, style in _RESULTS.items():
        nodes = [node for node, one in results.items() if one.result == result]
        if nodes:
            names = "" if result == QUALIFIED else f": {', '.join(nodes)}"
            out.print(f"[{style}]{len(nodes)} {result}[/]{escape(names)}", soft_wrap=True)
    if not any(one.result == QUALIFIED for one in results.values()) and len(results) > 1:
        out.print("no gate has passed: look at the recipe and the image first, then at nodes", soft_wrap=True)


def _table(*heads: str) -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold")
    for name in heads:
        found.add_column(name, overflow="fold")
    return found
