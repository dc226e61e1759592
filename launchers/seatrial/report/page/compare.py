"""The page of a comparison: curves laid over each other, what sets them apart, speeds, configurations. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.judge.records import LM_LOSS
from seatrial.report.compare import band_words, pair_words
from seatrial.report.page import columns
from seatrial.report.page.figures import Canvas, Chart, Line, Series, toolbar
from seatrial.report.page.group import differences_table
from seatrial.report.page.markup import Markup, code, html, table, tag
from seatrial.report.page.overlay import Overlaid, gaps, overlay
from seatrial.report.page.records import real
from seatrial.report.page.run import banners
from seatrial.report.page.shell import Part, document
from seatrial.report.page.verdicts import cell, pill

_COLUMNS = (LM_LOSS, columns.GRAD_NORM, columns.LEARNING_RATE, columns.STEP_TIME, columns.TOKENS)
_DIFFERENCE, _ABOVE, _BELOW = "difference", "tolerance above", "tolerance below"

Data = Mapping[str, Any]


def compare_page(comparison: Data) -> str:
    """Return the page of a comparison (see judge.comparison) as one HTML file."""
    runs, pairs = comparison["runs"], comparison["pairs"]
    names = [str(run["name"]) for run in runs]
    canvas = Canvas()
    # A third of the room is for the differences.
    most = 2 * columns.MOST_VALUES // (3 * len(runs))
    overlaid = [_overlaid(run, most) for run in runs]
    rehearsal = any(run.get("rehearsal") for run in runs)
    title = f"{names[0]} and {names[1]}" if len(names) == 2 else f"{names[0]} and {len(names) - 1} others"
    head = html(
        tag("div", tag("h1", title), pill(comparison["verdict"]), class_="title"),
        tag("p", f"comparison \N{MIDDLE DOT} the same {band_words(comparison['tolerance'])}", class_="muted"),
        banners(rehearsal, None, None),
    )  # fmt: skip
    lines = [_line(pair, names) for pair in pairs if pair["first_divergence"] is not None]
    curves = html(
        toolbar("First divergence"), tag("div", *overlay(canvas, overlaid, rehearsal, lines), class_="charts"),
        gaps(overlaid),
    )  # fmt: skip
    apart = [_pair(comparison, pair, canvas, most // 3) for pair in pairs]
    parts = [
        Part("verdict", "Verdict", html(*apart)),
        Part("curves", "Curves", curves),
        Part("speed", "Speed", _speed(runs)),
        Part("configuration", "Configuration", _configuration(comparison, names)),
        Part("sources", "Sources", _sources(runs)),
    ]
    return document(title, head, parts, canvas)


def _overlaid(run: Data, most: int) -> Overlaid:
    series = {name: run["series"][name] for name in _COLUMNS}
    evaluations = {
        int(one["step"]): value for one in run["evaluations"]
        if one["which"] != "test" and (value := real(one["losses"].get(LM_LOSS))) is not None and math.isfinite(value)
    }  # fmt: skip
    return Overlaid(str(run["name"]), columns.made(run["steps"], series, most), evaluations)


def _line(pair: Data, names: Sequence[str]) -> Line:
    found = pair["first_divergence"]
    return Line(found["step"], f"{names[pair['b']]} leaves the band: {found['name']}", "bad", True)


def _pair(comparison: Data, pair: Data, canvas: Canvas, most: int) -> Markup:
    first, other = (comparison["runs"][pair[side]] for side in ("a", "b"))
    heading = tag("h3", f"{other['name']} against {first['name']} ", pill(pair["verdict"]))
    words = tag("ul", *(tag("li", text) for text in pair_words(pair)))
    steps, series = _differences(first, other, comparison["tolerance"])
    if not steps:
        return html(heading, words)
    number = canvas.table(columns.made(steps, series, most).to_json())
    lines = [_line(pair, [run["name"] for run in comparison["runs"]])] if pair["first_divergence"] else []
    chart = Chart(
        f"difference-{pair['b']}", "Difference of lm loss",
        [Series(_DIFFERENCE, _DIFFERENCE, number, pair["b"]),
         *(Series(name, name, number, 7, True, "dashed", smooth=False) for name in (_ABOVE, _BELOW))],
        lines=lines, signed=True, bands=[(_ABOVE, _BELOW)],
        says=f"The tolerance is a band around zero: {band_words(comparison['tolerance'])}.",
    )  # fmt: skip
    return html(heading, words, canvas.figure(chart))


def _differences(first: Data, other: Data, tolerance: Data) -> tuple[list[int], dict[str, list[float | None]]]:
    """Return the steps that both have, how far apart lm loss lies, and how far it may."""
    theirs = dict(zip(first["steps"], first["series"][LM_LOSS], strict=True))
    steps: list[int] = []
    found: dict[str, list[float | None]] = {name: [] for name in (_DIFFERENCE, _ABOVE, _BELOW)}
    for step, b in zip(other["steps"], other["series"][LM_LOSS], strict=True):
        a = theirs.get(step)
        if a is None:
            continue
        band = tolerance["absolute"] + tolerance["relative"] * abs(a)
        steps.append(step)
        for name, value in ((_DIFFERENCE, None if b is None else b - a), (_ABOVE, band), (_BELOW, -band)):
            found[name].append(value)
    return steps, found


def _speed(runs: Sequence[Data]) -> Markup:
    keys = (("mean_ms", 1), ("median_ms", 1), ("p99_ms", 1), ("tokens_per_second_per_gpu", 0), ("tflops_per_gpu", 1))
    heads = ["run", "steps", *(tag("th", name, scope="col", class_="number") for name in (
        "mean ms", "median ms", "p99 ms", "tokens/s/GPU", "TFLOP/s/GPU", "to the first"))]  # fmt: skip
    rows = [
        [
            tag("th", run["name"], scope="row"),
            f"{run['speed']['first']}-{run['speed']['last']}" if run["speed"]["steps"] else "not known",
            *(cell(run["speed"][key], digits) for key, digits in keys), _ratio(run["speed"].get("ratio")),
        ]
        for run in runs
    ]  # fmt: skip
    return table(heads, rows, "Speed after the warm-up")


def _ratio(ratio: float | None) -> Markup:
    return tag("td", "not known" if ratio is None else f"{ratio:.3f} x", class_="number")


def _configuration(comparison: Data, names: Sequence[str]) -> Markup:
    known = [index for index, run in enumerate(comparison["runs"]) if run.get("configuration_known", True)]
    unknown = [name for index, name in enumerate(names) if index not in known]
    said = (
        tag("p", f"Not known of {', '.join(unknown)}: no whole argument dump and no readable spec.")
        if unknown
        else None
    )
    if len(known) < 2:
        return html(said)
    rows = [
        {"key": row["key"], "values": [row["values"][index] for index in known]} for row in comparison["configuration"]
    ]
    return html(said, differences_table(rows, [names[index] for index in known]))


def _sources(runs: Sequence[Data]) -> Markup:
    rows = [
        [tag("th", run["name"], scope="row"), run["kind"], run.get("recipe") or "not known",
         f"{run['steps'][0]}-{run['steps'][-1]} ({len(run['steps'])})" if run["steps"] else "none", code(run["source"])]
        for run in runs
    ]  # fmt: skip
    return table(["run", "kind", "recipe", "steps", "source"], rows, "Where the curves come from")
