"""The charts of one run: its curves by step, and its way through time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from seatrial.judge.history import AttemptRecord
from seatrial.judge.records import LM_LOSS, StepRecord
from seatrial.judge.rules import stretches
from seatrial.report.page.columns import (
    GRAD_NORM,
    LEARNING_RATE,
    STEP_TIME,
    TOKENS,
    Columns,
    columns_of,
    steps_words,
)
from seatrial.report.page.figures import Canvas, Chart, Line, Series, Span, toolbar
from seatrial.report.page.markup import Markup, details, html, table, tag
from seatrial.report.page.records import Run, listed, mappings, real
from seatrial.report.page.timeline import class_of, tone_of
from seatrial.report.status import number
from seatrial.run.fields import whole


def curves(run: Run, canvas: Canvas) -> Markup:
    """Return all that is charted by step."""
    columns = columns_of(run.curve.steps, run.gpus, run.sequence_length)
    said = remarks(run, columns)
    if not columns.steps:
        return tag("p", "No step is on record yet.")
    number_of = canvas.table(columns.to_json())
    lines, spans = list(_attempt_lines(run)), [Span(a, b, "warn") for a, b in stretches(run.curve.repeated)]
    charts = [_losses(run, columns, canvas, number_of)]
    for anchor, title, column, robust in besides(run.rehearsal):
        if column in columns.values:
            flags = columns.not_finite.get(column, [])
            series = [Series(column, column, number_of, smooth=column != LEARNING_RATE)]
            says = _says(columns, column)
            charts.append(Chart(anchor, title, series, flags=flags, flagged=column, robust=robust, says=says))
    figures = [canvas.figure(Chart(**{**chart.__dict__, "lines": lines, "spans": spans})) for chart in charts]
    return html(
        toolbar("Attempt lines"), _without_script(run, columns), tag("div", *figures, class_="charts"), said,
    )  # fmt: skip


def besides(rehearsal: bool) -> list[tuple[str, str, str, bool]]:
    """Return what is charted beside the loss: anchor, title, column, and whether outliers are left out at first."""
    return [
        ("grad-norm", "Gradient norm", GRAD_NORM, True), ("learning-rate", "Learning rate", LEARNING_RATE, False),
        ("step-time", "Step time (ms)", STEP_TIME, True), ("tokens", rate_title(rehearsal), TOKENS, True),
    ]  # fmt: skip


def rate_title(rehearsal: bool) -> str:
    """Return what tokens are counted by: the ranks of a rehearsal have no GPU."""
    return "Tokens/s/rank (on a CPU)" if rehearsal else "Tokens/s/GPU"


def _losses(run: Run, columns: Columns, canvas: Canvas, number_of: int) -> Chart:
    names = columns.losses
    series = [
        # Balancing losses have a scale of their own, which would flatten the others.
        Series(name, name, number_of, index, name == LM_LOSS or name.startswith("mtp"))
        for index, name in enumerate(names)
    ]
    color = len(names)
    for which, label in (("validation", "validation"), ("test", "test")):
        points = {
            one.iteration: one.losses[LM_LOSS] for one in run.evaluations()
            if (one.which == "test") == (which == "test") and math.isfinite(one.losses.get(LM_LOSS, math.nan))
        }  # fmt: skip
        color = _points(series, canvas, points, label, color)
    reference = {
        step: value for row in listed(_curve(run).get("steps")) if len(listed(row)) == 3
        and (step := whole(row[0])) is not None and (value := real(row[1])) is not None and math.isfinite(value)
    }  # fmt: skip
    _points(series, canvas, reference, f"reference {_curve(run).get('reference')}", color, "dashed")
    flags = columns.not_finite.get(LM_LOSS, [])
    return Chart("loss", "Loss", series, flags=flags, flagged=LM_LOSS, tall=True, says=_says(columns, LM_LOSS))


def _points(
    series: list[Series], canvas: Canvas, points: dict[int, float], label: str, color: int, draw: str = "points"
) -> int:
    """Add a series of few values; return the next color."""
    if not points:
        return color
    steps = sorted(points)
    table = Columns(steps, {label: [points[step] for step in steps]}).to_json()
    series.append(Series(label, label, canvas.table(table), color, True, draw, smooth=False))
    return color + 1


def _curve(run: Run) -> dict[str, object]:
    found = run.verdict.get("curve")
    return found if isinstance(found, dict) else {}


def _attempt_lines(run: Run) -> Iterator[Line]:
    ended: dict[int, AttemptRecord] = {one.number: one for one in run.history}
    before: StepRecord | None = None
    for record in run.curve.steps:
        if before is not None and record.attempt != before.attempt:
            last = ended.get(before.attempt)
            tone = "plain" if last is None else tone_of(last)
            why = "" if last is None else f" after {class_of(last)}"
            yield Line(record.step, f"attempt {record.attempt}{why}", "plain" if tone == "live" else tone)
        before = record


def _says(columns: Columns, name: str) -> str:
    finite = [
        (step, value) for step, value in zip(columns.steps, columns.values.get(name, ()), strict=False)
        if not math.isnan(value)
    ]  # fmt: skip
    if not finite:
        return "No finite value."
    (a, first), (b, last) = finite[0], finite[-1]
    return f"{name} goes from {first:.6g} at step {a} to {last:.6g} at step {b}."


def remarks(run: Run, columns: Columns) -> Markup:
    """Return in words what a chart can only mark, and the evaluations."""
    said = [
        tag("li", tag("strong", f"{name} is not finite", class_="bad"), f" at {len(found)} steps: "
            f"{steps_words([step for step, _ in found], 30)}. These are gaps in the chart, marked at its top.")
        for name, found in columns.not_finite.items()
    ]  # fmt: skip
    if columns.missing():
        said.append(tag("li", tag("strong", "no record", class_="bad"), f" of the steps {columns.missing()}."))
    for label, steps in (
        ("lm loss is missing", [one.step for one in run.curve.steps if LM_LOSS not in one.losses]),
        ("iterations were skipped", [one.step for one in run.curve.steps if one.skipped]),
        ("NaN iterations were counted", [one.step for one in run.curve.steps if one.nan]),
    ):
        if steps:
            words = f" at {len(steps)} printed steps: {steps_words(steps, 30)}."
            said.append(tag("li", tag("strong", label, class_="bad"), words))
    for spike in mappings(run.verdict.get("spikes"))[:20]:
        loss, before = (number(real(spike.get(key))) for key in ("loss", "before"))
        words = f"step {spike.get('step')}: {loss} after a median of {before}"
        said.append(tag("li", tag("strong", "a spike of the loss", class_="warn"), f" at {words}."))
    if run.curve.repeated:
        differ = len({one.step for one in run.curve.disagreements})
        words = f"{len(run.curve.repeated)} steps were trained again after resumes (shaded): the last pass counts. "
        words += (
            f"At {differ} of them the passes printed different losses."
            if differ
            else "All passes printed the same losses."
        )
        said.append(tag("li", words))
    if columns.of > columns.shown:
        words = f"{columns.shown} of {columns.of} steps are drawn: of neighbours the least and the greatest loss."
        said.append(tag("li", words))
    return html(tag("ul", *said, class_="small") if said else None, _evaluations(run))


def _evaluations(run: Run) -> Markup:
    found = run.evaluations()
    if not found:
        return Markup()
    names = list(dict.fromkeys(name for one in found for name in one.losses))[:8]
    rows = [[one.iteration, one.which, *(number(one.losses.get(name)) for name in names)] for one in found[-500:]]
    return details(f"{len(found)} evaluations", table(["step", "which", *names], rows, "Evaluations"))


def _without_script(run: Run, columns: Columns) -> Markup:
    """Return the curve for browsers that run no script: a still picture, and numbers from all along the run."""
    loss = columns.values.get(LM_LOSS, ())
    finite = [(step, value) for step, value in zip(columns.steps, loss, strict=False) if not math.isnan(value)]
    picture = Markup()
    if len(finite) > 1:
        shown = finite[:: max(1, len(finite) // 360)]
        least, most = min(value for _, value in finite), max(value for _, value in finite)
        width, height = shown[-1][0] - shown[0][0] or 1, most - least or 1
        points = " ".join(
            f"{720 * (s - shown[0][0]) / width:.1f},{196 - 190 * (v - least) / height:.1f}" for s, v in shown
        )
        line = tag("polyline", points=points)
        picture = tag("svg", line, viewBox="0 0 720 200", class_="static", role="img", aria_label="lm loss by step")
    records = run.curve.steps
    places = sorted({round(share * (len(records) - 1)) for share in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)})
    rows = [
        [one.step, number(one.losses.get(LM_LOSS)), number(one.grad_norm), one.learning_rate, one.step_time_ms]
        for one in (records[place] for place in places)
    ]
    heads = ["step", "lm loss", "grad norm", "learning rate", "step time (ms)"]
    return tag(
        "noscript", tag("p", "Charts need JavaScript. These are the numbers that matter:"), picture,
        table(heads, rows, "Numbers along the run"),
    )  # fmt: skip
