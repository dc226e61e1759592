"""Charts of several runs laid over each other, a colour a run: for run groups and for comparisons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.judge.records import LM_LOSS
from seatrial.report.page.charts import besides
from seatrial.report.page.columns import Columns, steps_words
from seatrial.report.page.figures import Canvas, Chart, Line, Series
from seatrial.report.page.markup import Markup, tag


@dataclass(frozen=True)
class Overlaid:
    """One run of several: its name, its curves, and its evaluations of lm loss by step."""

    name: str
    columns: Columns
    evaluations: dict[int, float]


def overlay(canvas: Canvas, runs: Sequence[Overlaid], rehearsal: bool, lines: Sequence[Line] = ()) -> list[Markup]:
    """Return the charts of all runs: loss with evaluations, gradient norm, learning rate, step time, tokens."""
    tables = [canvas.table(run.columns.to_json()) for run in runs]
    losses = _series(runs, tables, LM_LOSS)
    for index, run in enumerate(runs):
        if run.evaluations:
            steps = sorted(run.evaluations)
            points = Columns(steps, {"evaluation": [run.evaluations[step] for step in steps]})
            label = f"{run.name}: validation"
            number = canvas.table(points.to_json())
            losses.append(Series(label, "evaluation", number, index, len(runs) < 4, "points", smooth=False))
    charts = [Chart("loss", "Loss", losses, lines=lines, tall=True)]
    charts += [
        Chart(anchor, title, _series(runs, tables, column), lines=lines, robust=robust)
        for anchor, title, column, robust in besides(rehearsal)
    ]
    return [canvas.figure(chart) for chart in charts]


def gaps(runs: Sequence[Overlaid]) -> Markup:
    """Return in words where curves have gaps, and which are thinned."""
    said = [
        tag("li", tag("strong", f"{run.name}: {name} is not finite", class_="bad"),
            f" at {len(found)} steps: {steps_words(step for step, _ in found)}.")
        for run in runs for name, found in run.columns.not_finite.items()
    ]  # fmt: skip
    said += [
        tag("li", f"{run.name}: {run.columns.shown} of {run.columns.of} steps are drawn; each stretch that is left out "
            "shows its least and its greatest loss.")
        for run in runs if run.columns.shown < run.columns.of
    ]  # fmt: skip
    said += [
        tag("li", tag("strong", f"{run.name}: no record", class_="bad"), f" of the steps {run.columns.missing()}.")
        for run in runs if run.columns.missing()
    ]  # fmt: skip
    return tag("ul", *said, class_="small") if said else Markup()


def _series(runs: Sequence[Overlaid], tables: Sequence[int], column: str) -> list[Series]:
    return [
        Series(run.name, column, table, index)
        for index, (run, table) in enumerate(zip(runs, tables, strict=True)) if column in run.columns.values
    ]  # fmt: skip
