"""The part about where the wall time of one run went. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.judge.run_goodput import Goodput
from seatrial.report.explain_words import goodput_words
from seatrial.report.page.markup import Markup, html, table, tag
from seatrial.report.status import duration

_SHARES = {
    "queue": "waiting for a job", "startup": "start-up of ranks and kernels",
    "productive": "steps made for the first time",
    "replayed": "steps made again after a resume", "saving": "saving checkpoints", "evaluating": "evaluating",
    "idle": "within a job, and none of these",
}  # fmt: skip
_NAMES = {"startup": "start-up"}


def times_part(goodput: Goodput) -> Markup:
    """Return where the wall time went."""
    if goodput.wall <= 0:
        return tag("p", "Nothing has taken time yet.")
    rows: list[list[Any]] = [
        [
            tag("td", tag("span", class_=f"swatch {name}"), _NAMES.get(name, name)),
            tag("td", duration(seconds), class_="number"), tag("td", f"{seconds / goodput.wall:.1%}", class_="number"),
            tag("td", _SHARES.get(name, ""), class_="muted"),
        ]
        for name, seconds in goodput.shares.items()
    ]  # fmt: skip
    rows.append([tag("th", "wall time", scope="row"), tag("td", duration(goodput.wall), class_="number"),
                 tag("td", "100%", class_="number"), ""])  # fmt: skip
    words = goodput_words(goodput.to_json())
    heads = ["share", tag("th", "time", scope="col", class_="number"), tag("th", "%", scope="col", class_="number"), ""]
    return html(
        shares_bar(goodput.shares, "Time shares"), tag("p", tag("strong", f"{words[0].upper()}{words[1:]}.")),
        table(heads, rows, "Time shares", "snug"),
        tag("p", f"{goodput.steps_productive} steps for the first time, {goodput.steps_replayed} again."),
    )  # fmt: skip


def shares_bar(shares: Mapping[str, float], name: str) -> Markup:
    """Return shares as one bar."""
    total = sum(shares.values())
    said = (
        [f"{_NAMES.get(key, key)} {value / total:.1%}" for key, value in shares.items() if value > 0] if total else []
    )
    parts = [
        tag("span", class_=key, style=f"flex:{value / total:.5f}", title=f"{_NAMES.get(key, key)}: {duration(value)}")
        for key, value in shares.items() if total and value > 0
    ]  # fmt: skip
    return tag("div", *parts, class_="bar", role="img", aria_label=f"{name}: {', '.join(said) or 'none'}")
