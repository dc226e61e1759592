"""The page of one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import fmean, median

from seatrial.judge.records import LM_LOSS
from seatrial.judge.speed import warm
from seatrial.report.page import attempts, charts, nodes, settings, timeline, times, verdicts
from seatrial.report.page.columns import STEP_TIME, TOKENS, columns_of
from seatrial.report.page.figures import Canvas
from seatrial.report.page.markup import Markup, code, html, tag
from seatrial.report.page.records import Run, attempt_to, clock, read_run
from seatrial.report.page.shell import Part, document
from seatrial.report.status import duration, number
from seatrial.run.layout import RunFolder

MOST_WINDOW = 100  # steps that the windowed loss is a mean of, of a short run a tenth


def run_page(folder: RunFolder, now: float | None) -> str:
    """Return the page of a run as one HTML file.

    ``now``: seconds since 1970 where the run goes on, None where it is over. Never raises for what the folder holds.
    """
    run = read_run(folder, now)
    canvas = Canvas()
    curves = _part("curves", "Curves", lambda: charts.curves(run, canvas))
    return document(run.name, _head(run), [curves, *run_parts(run, canvas)], canvas)


def run_parts(run: Run, canvas: Canvas) -> list[Part]:
    """Return the parts about a run beside its curves; one that the records are too odd for says so."""
    return [
        _part("verdict", "Verdict", lambda: verdicts.verdict_part(run)),
        _part("speed", "Speed and resume", lambda: verdicts.speed_part(run, canvas)),
        _part(
            "attempts", "Attempts", lambda: html(timeline.way_through_time(run, canvas), attempts.attempts_part(run))
        ),
        _part("time", "Time shares", lambda: times.times_part(run.goodput)),
        _part("nodes", "Nodes", lambda: nodes.nodes_part(run)),
        _part("configuration", "Configuration", lambda: settings.configuration_part(run)),
        _part("environment", "Environment", lambda: settings.environment_part(run)),
        _part("provenance", "Provenance", lambda: settings.provenance_part(run)),
    ]


def banners(rehearsal: bool, drill: str | None, live: float | None) -> Markup:
    """Return what must not be overlooked. ``live``: when the run was looked at, where it goes on."""
    return html(
        tag("p", tag("strong", "A rehearsal on CPU ranks."), " It proves the path, not the hardware; sizes, losses and "
            "speeds are not the recipe's, and it admits no run on hardware.", class_="banner") if rehearsal else None,
        tag("p", tag("strong", f"A drill: {drill}."), " A fault was put into this gate; it admits no run.",
            class_="banner") if drill else None,
        tag("p", tag("strong", "This run goes on."), f" The page shows it as it stood at {clock(live)}.",
            class_="banner plain") if live is not None else None,
    )  # fmt: skip


def standing(run: Run) -> Markup:
    """Return how the run stands, in a word: its verdict, else its decision, else that it goes on."""
    if run.now is not None:
        return tag("span", "goes on", class_="pill live")
    if run.outdated:
        return tag("span", "verdict counts no more", class_="pill warn")
    if run.verdict.get("verdict"):
        return verdicts.pill(run.verdict["verdict"])
    if run.facts.ended:
        done = run.facts.decision.get("decision") == "done"
        return tag("span", "done" if done else "stopped", class_=f"pill {'good' if done else 'bad'}")
    return tag("span", "no decision on record", class_="pill warn")


def last_loss(run: Run) -> str:
    """Return the last step's loss for people."""
    steps = run.curve.steps
    return number(steps[-1].losses.get(LM_LOSS)) if steps else "none yet"


def window(run: Run) -> int:
    """Return how many last steps the windowed loss is a mean of."""
    return max(1, min(MOST_WINDOW, len(run.curve.steps) // 10))


def windowed_loss(run: Run) -> str:
    """Return the mean loss of the last steps; not a number where one of them has none."""
    last = [one.losses.get(LM_LOSS, math.nan) for one in run.curve.steps[-window(run) :]]
    return number(fmean(last)) if last else "none yet"


def typical(run: Run, column: str, digits: int) -> str:
    """Return the median of a column after each attempt's warm-up."""
    columns = columns_of(warm(run.curve.steps), run.gpus, run.sequence_length)
    known = [value for value in columns.values.get(column, ()) if math.isfinite(value)]
    return f"{median(known):,.{digits}f}" if known else "not known"


def goodput_words(run: Run) -> str:
    """Return the goodput of the wall time."""
    share = run.goodput.with_queue
    return "not known" if share is None else f"{share:.1%}"


def _part(anchor: str, title: str, body: Callable[[], Markup]) -> Part:
    made = attempt_to(body)
    odd = tag("p", "What is on record for this part is too odd to be shown.", class_="bad")
    return Part(anchor, title, odd if made is None else made)


def _head(run: Run) -> Markup:
    spec = run.spec
    words = [str(spec.get("kind") or "run"), f"profile {run.facts.profile}" if run.facts.profile else ""]
    return html(
        tag("div", tag("h1", spec.get("recipe") or run.name), standing(run), class_="title"),
        tag("p", " \N{MIDDLE DOT} ".join(filter(None, words)), " \N{MIDDLE DOT} ", code(run.name), class_="muted"),
        tag("p", run.facts.unreadable, class_="banner bad") if run.facts.unreadable else None,
        banners(run.rehearsal, verdicts.drill_of(run), run.now), _reason(run),
        tag("dl", *_tiles(run), class_="tiles"),
    )  # fmt: skip


def _reason(run: Run) -> Markup:
    reason = run.facts.decision.get("reason")
    if run.now is not None or not run.facts.ended or run.facts.decision.get("decision") == "done" or not reason:
        return Markup()
    return tag("p", tag("strong", "It stopped: "), reason, class_="banner bad")


def _tiles(run: Run) -> Iterator[Markup]:
    steps = run.curve.steps
    step = steps[-1].step if steps else 0
    yield _tile("step", f"{step:,}", f"of {run.total:,}: {step / run.total:.1%}" if run.total else "")
    yield _tile("lm loss", last_loss(run), f"mean of the last {window(run)}: {windowed_loss(run)}")
    evaluations = [one for one in run.evaluations() if LM_LOSS in one.losses]
    if evaluations:
        one = ([one for one in evaluations if one.which != "test"] or evaluations)[-1]
        tested = evaluations[-1] if evaluations[-1].which == "test" else None
        more = f"; test {number(tested.losses[LM_LOSS])}" if tested is not None and tested is not one else ""
        which = "test" if one is tested else "validation"
        yield _tile(f"{which} loss", number(one.losses[LM_LOSS]), f"at step {one.iteration:,}{more}")
    odd = sum(1 for one in steps if not math.isfinite(one.losses.get(LM_LOSS, math.nan)))
    bad = sum(one.skipped or 0 for one in steps), sum(one.nan or 0 for one in steps)
    yield _tile("losses not finite", f"{odd:,}", f"{bad[0]} skipped, {bad[1]} NaN iterations", bool(odd))
    yield _tile("step time", f"{typical(run, STEP_TIME, 0)} ms", "median after warm-up")
    yield _tile(
        charts.rate_title(run.rehearsal).partition(" (")[0].replace("T", "t", 1),
        typical(run, TOKENS, 0),
        f"median; {run.gpus or '?'} ranks",
    )
    failed = sum(1 for one in run.history if timeline.tone_of(one) == "bad")
    yield _tile("attempts", f"{len(run.history)}", f"{failed} ended by a failure")
    yield _tile("goodput", goodput_words(run), f"of {duration(run.goodput.wall)} wall time")


def _tile(name: str, value: str, more: str, bad: bool = False) -> Markup:
    words = tag("dd", value, class_="value bad" if bad else "value")
    return tag("div", tag("dt", name), words, tag("dd", more, class_="more"), class_="tile")
