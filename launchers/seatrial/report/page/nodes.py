"""The part about the nodes of one run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.judge.history import AttemptRecord
from seatrial.report.page.columns import steps_words
from seatrial.report.page.markup import Markup, details, html, table, tag
from seatrial.report.page.records import Run, listed, node_spans

_MOST_NODES = 1000


def nodes_part(run: Run) -> Markup:
    """Return the nodes of each attempt, and what each node went through."""
    used: dict[str, list[int]] = {}
    failed: dict[str, list[int]] = {}
    left_out: dict[str, list[str]] = {}
    rows = []
    for one in run.history:
        names = [str(node) for node in listed(one.data.get("nodes"))]
        rows.append([one.number, len(names) or "not recorded", node_spans(names)])
        for node in names:
            used.setdefault(node, []).append(one.number)
        if one.data.get("failed_node"):
            failed.setdefault(str(one.data["failed_node"]), []).append(one.number)
        for node in listed(decision_of(one).get("exclude")):
            left_out.setdefault(str(node), []).append(f"after attempt {one.number}")
    for event in run.events:
        if event.get("event") == "requeue_requested":
            for node in listed(event.get("exclude")):
                left_out.setdefault(str(node), []).append(f"by {event.get('by')}")
    if not rows:
        return Markup()
    names = sorted({*used, *failed, *left_out}, key=lambda node: (node not in failed, node not in left_out, node))
    nodes = [
        tag(
            "tr", tag("th", node, scope="row"), tag("td", steps_words(used.get(node, []))),
            tag("td", steps_words(failed.get(node, [])), class_="bad"), tag("td", ", ".join(left_out.get(node, []))),
            class_="changed" if node in failed or node in left_out else None,
        )
        for node in names[:_MOST_NODES]
    ]  # fmt: skip
    more = f", {_MOST_NODES} of them shown" if len(names) > _MOST_NODES else ""
    heads = ["node", "attempts", "failed first in", "left out"]
    return html(
        table(["attempt", "nodes", "which"], rows, "Nodes of each attempt", "snug"),
        details(f"each of {len(names)} nodes{more}: failures first", table(heads, nodes, "Nodes")),
    )


def decision_of(one: AttemptRecord) -> Mapping[str, Any]:
    """Return what was decided after an attempt; empty where nothing is on record."""
    found = one.data.get("decision")
    return found if isinstance(found, Mapping) else {}
