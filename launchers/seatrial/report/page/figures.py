"""What the page's charts show, as data for its script, and the places that they are drawn in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.report.page.markup import Markup, tag

COLORS = 8  # of series, in page.css


@dataclass(frozen=True)
class Series:
    """A column of a table of the page. ``draw``: "line", "dashed" or "points". ``shown``: from the start."""

    label: str
    column: str
    table: int = 0
    color: int = 0
    shown: bool = True
    draw: str = "line"
    smooth: bool = True


@dataclass(frozen=True)
class Line:
    """An upright line at ``x``. ``tone``: good, bad, warn, plain or live."""

    x: float
    label: str
    tone: str = "plain"
    strong: bool = False


@dataclass(frozen=True)
class Span:
    """A stretch of the x axis; a bar has a label, a shaded one has none."""

    first: float
    last: float
    tone: str
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart. ``x``: "step", or "time" in seconds since 1970. Charts of one ``group`` move together, by default of
    one ``x``.

    ``flags``: places of ``flagged`` (a series) without a finite value, and what was seen. ``bands``: pairs of series
    with the area between them. ``robust``: the axis leaves outliers out until they are asked for.
    ``signed``: values lie on both sides of 0, so that no logarithmic axis is offered.
    """

    anchor: str
    title: str
    series: Sequence[Series]
    x: str = "step"
    group: str = ""
    lines: Sequence[Line] = ()
    spans: Sequence[Span] = ()
    bars: Sequence[Span] = ()
    flags: Sequence[tuple[float, str]] = ()
    flagged: str = ""
    bands: Sequence[tuple[str, str]] = ()
    robust: bool = False
    log: bool = False
    signed: bool = False
    tall: bool = False
    note: Any = None
    says: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title, "x": self.x, "group": self.group or self.x,
            "robust": self.robust, "log": self.log, "signed": self.signed or self.x == "time", "tall": self.tall,
            "series": [dict(one.__dict__, color=one.color % COLORS) for one in self.series],
            "lines": [line.__dict__ for line in self.lines],
            "spans": [{"from": one.first, "to": one.last, "tone": one.tone} for one in self.spans],
            "bars": [{"from": one.first, "to": one.last, "tone": one.tone, "label": one.label} for one in self.bars],
            "flags": [list(flag) for flag in self.flags], "flagged": self.flagged, "bands": list(self.bands),
        }  # fmt: skip


@dataclass
class Canvas:
    """The charts and tables of one page, in the order they were added."""

    charts: list[Chart] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)

    def table(self, data: dict[str, Any]) -> int:
        """Add a table (``x`` as runs of steps, or ``times``; ``columns``); return its number."""
        self.tables.append(data)
        return len(self.tables) - 1

    def figure(self, chart: Chart) -> Markup:
        """Add a chart; return its place. A chart without any series is none."""
        if not chart.series:
            return Markup()
        self.charts.append(chart)
        name = f"chart-{chart.anchor}"
        plot = tag(
            "div", class_="plot", tabindex="0", role="img", aria_describedby="keys",
            aria_label=f"Chart: {chart.title}. {chart.says}".strip(),
        )  # fmt: skip
        return tag(
            "figure",
            tag("figcaption", tag("h3", chart.title), tag("span", class_="controls js-only")),
            tag("div", class_="legend"), plot, chart.note,
            class_="chart tall" if chart.tall else "chart", id=name, data_chart=str(len(self.charts) - 1),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {"charts": [chart.to_json() for chart in self.charts], "tables": self.tables}


def toolbar(marks: str = "") -> Markup:
    """Return the controls of all charts that have steps. ``marks``: what may be hidden; empty: nothing."""
    moves = (("in", "+", "Zoom in"), ("out", "\N{MINUS SIGN}", "Zoom out"), ("left", "\N{LEFTWARDS ARROW}", "Earlier"),
             ("right", "\N{RIGHTWARDS ARROW}", "Later"), ("reset", "Reset", "Show all steps"))  # fmt: skip
    buttons = [
        tag("button", sign, type="button", data_go=move, aria_label=said, title=said) for move, sign, said in moves
    ]
    slider = tag("input", type="range", id="smoothing", min="0", max="0.99", step="0.01", value="0")
    return tag(
        "div",
        tag("span", tag("label", "Smoothing", for_="smoothing"), slider,
            tag("output", "0.00", id="smoothing-value", for_="smoothing"), class_="group"),
        tag("span", *buttons, tag("output", "all steps", id="range"), class_="group"),
        _switch("outliers", "Outliers", False), _switch("marks", marks, True) if marks else None,
        tag("span", "Drag to zoom, double-click to reset. Keys on a chart: arrows move, + and \N{MINUS SIGN} zoom, "
            "0 resets; Shift and an arrow read values.", class_="muted small", id="keys"),
        class_="toolbar js-only",
    )  # fmt: skip


def _switch(name: str, label: str, on: bool) -> Markup:
    box = tag("input", type="checkbox", id=name, checked=True if on else None)
    return tag("span", box, tag("label", label, for_=name), class_="group")
