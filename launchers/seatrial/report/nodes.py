"""What is known of a profile's nodes, as a table and as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seatrial.judge.exclusions import active
from seatrial.run.node_history import NodeRecord, summary
from seatrial.run.records import iso


@dataclass(frozen=True)
class NodeRow:
    """A node. ``excluded_until``: ISO UTC, None where it is not avoided now; ``why``: then, why."""

    past: NodeRecord
    excluded_until: str | None = None
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self.past), "excluded_until": self.excluded_until, "why": self.why}


def node_rows(history: Iterable[Any], exclusions: Iterable[Any], now: float) -> list[NodeRow]:
    """Return the nodes by name, from the lines of both records. ``now``: seconds since 1970. Pure."""
    past: Mapping[str, NodeRecord] = summary(history)
    avoided = {one.node: one for one in active(exclusions, now)}
    return [
        NodeRow(past.get(node, NodeRecord(node)), iso(avoided[node].expires), avoided[node].reason)
        if node in avoided else NodeRow(past[node])
        for node in sorted({*past, *avoided})
    ]  # fmt: skip


def print_nodes(console: Console, profile: str, rows: Sequence[NodeRow]) -> None:
    """Print the table of one profile."""
    table = Table(title=f"nodes of {escape(profile)}", title_justify="left", box=None, pad_edge=False)
    for name in ("node", "failures", "last failure", "why", "left out until", "passed a gate"):
        table.add_column(name, overflow="fold")
    for row in rows:
        past = row.past
        kinds = ", ".join(f"{count} {what}" for what, count in sorted(past.of.items()))
        last = f"{_minute(past.last_time)} {past.last_what}" if past.last_time else "-"
        table.add_row(
            escape(past.node), escape(kinds or "0"), escape(last), escape(row.why or past.last_reason or "-"),
            _minute(row.excluded_until), _minute(past.qualified),
        )  # fmt: skip
    console.print(table)


def _minute(time: str | None) -> str:
    return (time or "-")[:16].replace("T", " ")
