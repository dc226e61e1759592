"""The way of one run through time: its steps by the clock, its attempts and what was decided about them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from seatrial.judge import clock
from seatrial.judge.history import AttemptRecord
from seatrial.judge.records import StepRecord
from seatrial.report.decisions import FINAL, class_words, decision_words
from seatrial.report.page.columns import encoded
from seatrial.report.page.figures import Canvas, Chart, Line, Series, Span
from seatrial.report.page.markup import Markup, tag
from seatrial.report.page.records import Run, attempt_to
from seatrial.report.watch import event_words

_MOST_POINTS = 2000  # of the way through time
NO_FAILURE = ("complete", "time_limit", "preempted", "cancelled")
# Events that a time line marks, and how.
_MARKED = {
    "hang_detected": "bad", "node_failed": "bad", "requeue_requested": "warn", "nodes_excluded": "warn",
    "stop_requested": "plain",
}  # fmt: skip


def way_through_time(run: Run, canvas: Canvas) -> Markup:
    """Return the chart of steps over the wall time: a fall is a resume from an earlier checkpoint, a level is lost."""
    times, steps = _way(run)
    if not times:
        return Markup()
    number_of = canvas.table({"times": times, "columns": {"step": encoded(steps)}})
    bars = [
        Span(one.started, one.ended, tone_of(one), f"attempt {one.number}: {class_of(one)}")
        for one in run.history if one.started is not None and one.ended is not None
    ]  # fmt: skip
    note = tag(
        "p", "Each bar at the bottom is an attempt, red where a failure ended it. Where the line falls, steps were "
        "trained again from an earlier checkpoint; where it is level, no step was made. Lines mark stops, restarts and "
        "requeues: point at one to read it.", class_="muted small",
    )  # fmt: skip
    series = [Series("step", "step", number_of, smooth=False)]
    says = f"{len(run.history)} attempts; the table of attempts below tells the same."
    chart = Chart(
        f"{run.prefix}time", "Steps over time", series, x="time", group=f"{run.prefix}time",
        lines=list(_event_lines(run)), bars=bars, tall=True, note=note, says=says,
    )  # fmt: skip
    return canvas.figure(chart)


def tone_of(one: AttemptRecord) -> str:
    """Return how an attempt's end is coloured."""
    name = one.data.get("class")
    if one.live:
        return "live"
    return "good" if name == "complete" else "plain" if name in NO_FAILURE else "bad"


def class_of(one: AttemptRecord) -> str:
    """Return an attempt's end in a word or two."""
    return "goes on" if one.live else class_words(one.data.get("class") or "unknown")


def _event_lines(run: Run) -> Iterator[Line]:
    for event in run.events:
        time, name = clock.of_record(event.get("time")), str(event.get("event"))
        if time is None:
            continue
        if name == "decision":
            final = event.get("decision") in FINAL
            good = event.get("decision") == "done" or event.get("class") in NO_FAILURE
            words = attempt_to(lambda event=event: decision_words(event)) or "decision"  # type: ignore[misc]
            yield Line(time, words, "good" if final and good else "plain" if good else "bad", final)
        elif name in _MARKED:
            words = attempt_to(lambda event=event: event_words(event)) or name  # type: ignore[misc]
            yield Line(time, words, _MARKED[name])


def _way(run: Run) -> tuple[list[float], list[float]]:
    """Return times and the steps that were done then; NaN between attempts."""
    of: dict[int, list[StepRecord]] = {}
    for record in run.steps:
        of.setdefault(record.attempt, []).append(record)
    stride = max(1, len(run.steps) // _MOST_POINTS)
    times: list[float] = []
    steps: list[float] = []
    for one in run.history:
        own = of.get(one.number, [])
        if not own or one.started is None:
            continue
        shown = own[::stride] if (len(own) - 1) % stride == 0 else [*own[::stride], own[-1]]
        ended = math.inf if one.ended is None else one.ended
        known = clock.printed([record.time for record in shown], one.started, min(ended, one.started + 1e9))
        for record, time in zip(shown, known, strict=True):
            if time is not None and (not times or time > times[-1]):
                times.append(round(time, 2))
                steps.append(float(min(record.step, 2**53)))
        if times and not math.isnan(steps[-1]):
            times.append(times[-1] + 0.01)
            steps.append(math.nan)
    return times, steps
