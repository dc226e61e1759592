"""The page of a run group: its runs side by side, their curves laid over each other, then each of them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from seatrial.judge.configuration import differences, of_spec
from seatrial.judge.evidence import RUN
from seatrial.judge.records import LM_LOSS
from seatrial.report.facts import read_facts
from seatrial.report.page.charts import remarks
from seatrial.report.page.columns import MOST_VALUES, STEP_TIME, TOKENS, columns_of
from seatrial.report.page.figures import Canvas, toolbar
from seatrial.report.page.markup import Markup, code, details, facts, html, section, table, tag
from seatrial.report.page.overlay import Overlaid, gaps, overlay
from seatrial.report.page.records import Run, attempt_to, read_run
from seatrial.report.page.run import (
    banners,
    goodput_words,
    last_loss,
    run_parts,
    standing,
    typical,
    window,
    windowed_loss,
)
from seatrial.report.page.shell import Part, document
from seatrial.run.groups import Group
from seatrial.run.layout import RunFolder

# Values of a run's curves; and what its tables take of the page, counted as values.
_LEAST_VALUES, _OWN_PART = 15_000, 30_000


def group_page(group: Group, now: float | None, over: Collection[Path] = ()) -> str:
    """Return the page of a run group as one HTML file.

    ``now``: seconds since 1970 where runs may go on: those that have not ended, and are none of ``over`` (folders of
    runs whose jobs are known to be gone). None: all are over.
    """
    runs = [
        _read(RunFolder(one.folder), None if one.folder in over else now, f"run-{index}-")
        for index, one in enumerate(group.runs)
    ]
    canvas = Canvas()
    names = _names(runs)
    most = max(_LEAST_VALUES, MOST_VALUES // max(1, len(runs)) - _OWN_PART)
    overlaid = [_overlaid(run, name, most) for run, name in zip(runs, names, strict=True)]
    rehearsal = any(run.rehearsal for run in runs)
    live = now if any(run.now is not None for run in runs) else None
    head = html(
        tag("div", tag("h1", group.name), tag("span", f"{len(runs)} runs", class_="pill"), class_="title"),
        tag("p", f"run group \N{MIDDLE DOT} {group.kind} \N{MIDDLE DOT} ", code(group.id), class_="muted"),
        banners(rehearsal, None, live), _in_common(group),
    )  # fmt: skip
    curves = html(toolbar(), tag("div", *overlay(canvas, overlaid, rehearsal), class_="charts"), gaps(overlaid))
    parts = [
        Part("runs", "Runs", _runs(runs, names)),
        Part("curves", "Curves", curves),
        Part("differences", "Differences", attempt_to(lambda: _differences(runs, names)) or Markup()),
        *(Part(f"run-{index}", name, _one(run, one, canvas))
          for index, (run, name, one) in enumerate(zip(runs, names, overlaid, strict=True))),
    ]  # fmt: skip
    return document(group.name, head, parts, canvas)


def _read(folder: RunFolder, now: float | None, prefix: str) -> Run:
    known = attempt_to(lambda: read_facts(folder))
    return read_run(folder, None if known is None or known.ended else now, prefix)


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the recipes, by which people know the runs; the ids where two are of one recipe."""
    recipes = [str(run.spec.get("recipe") or run.name) for run in runs]
    return [recipe if recipes.count(recipe) == 1 else run.name for recipe, run in zip(recipes, runs, strict=True)]


def _overlaid(run: Run, name: str, most: int) -> Overlaid:
    columns = columns_of(run.curve.steps, run.gpus, run.sequence_length, most)
    evaluations = {
        one.iteration: one.losses[LM_LOSS] for one in run.evaluations()
        if one.which != "test" and math.isfinite(one.losses.get(LM_LOSS, math.nan))
    }  # fmt: skip
    return Overlaid(name, columns, evaluations)


def _in_common(group: Group) -> Markup:
    same = [(name, code(value if isinstance(value, str) else json.dumps(value))) for name, value in group.same.items()]
    other = (
        tag("p", tag("strong", "Not the same data: "), group.other_data, class_="banner") if group.other_data else None
    )
    return html(other, details("what the runs have in common", facts(same)) if same else None)


def _runs(runs: Sequence[Run], names: Sequence[str]) -> Markup:
    windows = {window(run) for run in runs}
    mean = f"mean of the last {windows.pop()}" if len(windows) == 1 else "mean of the last tenth"
    heads = ["run", "standing", *(tag("th", name, scope="col", class_="number") for name in (
        "steps", "of", "lm loss", mean, "step time (ms)", "tokens/s/GPU", "goodput", "attempts"))]  # fmt: skip
    rows = []
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        last = run.curve.steps[-1].step if run.curve.steps else 0
        cells = (
            f"{last:,}", "?" if run.total is None else f"{run.total:,}", last_loss(run), windowed_loss(run),
            typical(run, STEP_TIME, 0), typical(run, TOKENS, 0), goodput_words(run), len(run.history),
        )  # fmt: skip
        swatch = tag("span", class_="swatch", style=f"background:var(--s{index % 8})")
        link = tag("th", swatch, tag("a", name, href=f"#run-{index}"), scope="row")
        rows.append([link, standing(run), *(tag("td", cell, class_="number") for cell in cells)])
    return table(heads, rows, "Runs of the group")


def _differences(runs: Sequence[Run], names: Sequence[str]) -> Markup:
    return differences_table(differences([of_spec(run.spec) for run in runs], [RUN] * len(runs)), names)


def differences_table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> Markup:
    """Return the configuration keys whose values differ between runs."""
    if not rows:
        return tag("p", "No difference in configuration.")
    cells = [
        [tag("th", code(row["key"]), scope="row"), *(tag("td", code(_value(value))) for value in row["values"])]
        for row in rows
    ]
    return table(["key", *names], cells, "Differences in configuration")


def _value(value: Any) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


def _one(run: Run, one: Overlaid, canvas: Canvas) -> Markup:
    said = attempt_to(lambda: remarks(run, one.columns))
    parts = [part for part in run_parts(run, canvas) if part.body]
    inner = [section(f"{run.prefix}{part.anchor}", part.title, part.body, level=3) for part in parts]
    state = html(standing(run), " ", code(run.name))
    return html(tag("p", state), said, details("all about this run", *inner))
