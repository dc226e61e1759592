"""Terminal view of a comparison. Takes the plain data of judge.comparison; all but the printing is pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seatrial.report.terminal import console

Data = Mapping[str, Any]

VERDICT_STYLES = {"same": "green", "different": "bold red", "incomplete": "yellow", "nothing to compare": "yellow"}
_MOST_KEYS = 40
_CHART_WIDTH = 60
_BLOCKS, _DIGITS = "▁▂▃▄▅▆▇█", "0123456789"


def print_comparison(data: Data) -> None:
    """Print what was compared, a chart, what differs, speeds, configurations, and the verdict as the last line."""
    out = console()
    out.print(_table(("run", "kind", "recipe", "steps", "first lm loss", "last lm loss"), map(_run, data["runs"])))
    if rows := chart(data["runs"], blocks=out.is_terminal and "utf" in out.encoding.lower()):
        out.print("\n".join(map(escape, ["", *rows])), soft_wrap=True)
    for pair in data["pairs"]:
        first, other = (data["runs"][pair[side]]["name"] for side in ("a", "b"))
        out.print(f"\n[{VERDICT_STYLES[pair['verdict']]}]{escape(other)} against {escape(first)}: {pair['verdict']}[/]")
        out.print("\n".join(f"  {escape(line)}" for line in pair_words(pair)), soft_wrap=True)
    out.print()
    out.print(_table(
        ("speed", "steps", "mean ms", "median", "p99", "tokens/s/GPU", "TFLOP/s/GPU", "to the first"),
        map(_speed, data["runs"]),
    ))  # fmt: skip
    _print_configuration(out, data)
    style = VERDICT_STYLES[data["verdict"]]
    rehearsal = " (rehearsal)" if any(run.get("rehearsal") for run in data["runs"]) else ""
    out.print(f"\n[{style}]{data['verdict'].upper()}[/] {escape(band_words(data['tolerance']))}{rehearsal}")


def band_words(tolerance: Data) -> str:
    """Return what was held to be the same, in words."""
    if not (tolerance["relative"] or tolerance["absolute"]):
        words = "bit for bit as printed"
    else:
        words = f"within {tolerance['relative']:.4%} + {tolerance['absolute']:g}".replace(".0000%", "%")
    first, last = tolerance.get("from"), tolerance.get("to")
    words += f", from step {first}" if first is not None else ""
    words += f", to step {last}" if last is not None else ""
    return words + (f", {', '.join(tolerance['losses'])} only" if tolerance.get("losses") else "")


def pair_words(pair: Data) -> list[str]:
    """Return one pair in sentences: where they part, and what could not be compared."""
    return [*_divergence(pair), *_missing(pair), *_evaluations(pair["evaluations"]), *_besides(pair)]


def _divergence(pair: Data) -> Iterator[str]:
    found, largest = pair["first_divergence"], pair["largest"]
    if found is not None:
        yield f"first divergence at step {found['step']}: {found['name']} {_apart(found)}"
    if pair["differing"]:
        yield f"{pair['differing']} of {pair['compared']} steps differ"
    elif pair["compared"]:
        yield f"no loss differs at the {pair['compared']} steps that both have"
    else:
        yield "no step that both have"
    if largest is not None:
        yield f"largest difference: {largest['relative']:.3g} of {largest['name']} at step {largest['step']}"
    if windows := pair["windows"]:
        first = windows["first"]
        where = f", the first steps {first['first']}-{first['last']}: {_apart(first)}" if first else ""
        counts = f"{windows['differing']} of {windows['compared']} differ"
        yield f"means of lm loss over {windows['steps']} steps: {counts}{where}"


def _missing(pair: Data) -> Iterator[str]:
    for key, what in (
        ("only_a", "only the first has steps"), ("only_b", "the first lacks steps"), ("neither", "neither has steps"),
        ("not_comparable", "neither has a number for some loss at steps"),
    ):  # fmt: skip
        if pair[key]:
            yield f"{what} {pair[key]}"
    if pair["verdict"] == "incomplete" and (pair["only_a"] or pair["only_b"]):
        yield "what one of them lacks proves nothing: --from and --to name the steps to compare"


def _evaluations(pair: Data) -> Iterator[str]:
    if pair["compared"]:
        yield f"evaluations differ at {pair['differing']} of {pair['compared']} steps"
    for key, what in (
        ("only_a", "only the first has evaluations at"), ("only_b", "the first lacks evaluations at"),
        ("not_comparable", "neither has a number in evaluations at"),
    ):  # fmt: skip
        if pair[key]:
            yield f"{what} {pair[key]}"


def _besides(pair: Data) -> Iterator[str]:
    for beside in pair["besides"]:
        if beside["first"]:
            first = beside["first"]
            where = f"the first step {first['step']}: {_apart(first)}"
            yield f"besides: {beside['name']} differs at {beside['differing']} of {beside['compared']} steps, {where}"


def _apart(found: Data) -> str:
    words = f"{_number(found['a'])} against {_number(found['b'])}"
    if found["difference"] is None:
        return words
    return f"{words}, {found['difference']:.3g} apart where {found['tolerance']:.3g} is allowed"


def chart(runs: Sequence[Data], *, blocks: bool, width: int = _CHART_WIDTH) -> list[str]:
    """Return lm loss as one row of ``width`` signs a run, all to one scale; a gap is a space. Empty without any loss.

    ``blocks``: rising blocks, else the digits 0 to 9.
    """
    known = [(step, loss) for run in runs for step, loss in _losses(run)]
    if not known:
        return []
    first, last = min(known)[0], max(known)[0]
    low, high = min(loss for _, loss in known), max(loss for _, loss in known)
    signs = _BLOCKS if blocks else _DIGITS
    width = min(width, last - first + 1)
    names = max(len(run["name"]) for run in runs)
    rows = []
    for run in runs:
        cells: list[list[float]] = [[] for _ in range(width)]
        for step, loss in _losses(run):
            cells[(step - first) * width // (last - first + 1)].append(loss)
        row = "".join(_sign(cell, low, high, signs) if cell else " " for cell in cells)
        rows.append(f"{run['name']:<{names}}  {row}".rstrip())
    return [f"lm loss, steps {first}-{last}, {signs[0]} is {low:.6g} and {signs[-1]} is {high:.6g}", *rows]


def _losses(run: Data) -> Iterator[tuple[int, float]]:
    for step, loss in zip(run["steps"], run["series"]["lm loss"], strict=True):
        if loss is not None and math.isfinite(loss):
            yield step, loss


def _sign(losses: Sequence[float], low: float, high: float, signs: str) -> str:
    """Return the sign of the mean; a loss gone wild may be so large that a sum of two is none."""
    mean = sum(loss / len(losses) for loss in losses)
    spread = high / 2 - low / 2
    share = (mean / 2 - low / 2) / spread if spread > 0 else 0.0
    return signs[min(len(signs) - 1, max(0, int(share * len(signs))))]


def _run(run: Data) -> tuple[str, ...]:
    steps, losses = run["steps"], run["series"]["lm loss"]
    repeated = f", again {run['repeated']}" if run.get("repeated") else ""
    span = f"{steps[0]}-{steps[-1]} ({len(steps)}{repeated})" if steps else "none"
    ends = (_number(losses[0]), _number(losses[-1])) if losses else ("-", "-")
    return run["name"], run["kind"], run["recipe"] or "-", span, *ends


def _speed(run: Data) -> tuple[str, ...]:
    speed = run["speed"]
    span = f"{speed['first']}-{speed['last']}" if speed["steps"] else "not known"
    keys = ("mean_ms", "median_ms", "p99_ms", "tokens_per_second_per_gpu", "tflops_per_gpu")
    ratio = speed["ratio"]
    return run["name"], span, *(_rounded(speed[key]) for key in keys), "-" if ratio is None else f"{ratio:.3f} x"


def _print_configuration(out: Console, data: Data) -> None:
    unknown = [run["name"] for run in data["runs"] if not run["configuration_known"]]
    if unknown:
        names = ", ".join(unknown)
        out.print(
            f"\n[yellow]not known: the configuration of {escape(names)} (no whole argument dump, no readable spec)[/]"
        )
    if len(data["runs"]) - len(unknown) < 2:
        return
    rows = data["configuration"]
    if not rows:
        out.print("\nno difference in configuration")
        return
    known = [index for index, run in enumerate(data["runs"]) if run["configuration_known"]]
    out.print()
    out.print(_table(
        ("configuration", *(data["runs"][index]["name"] for index in known)),
        ((row["key"], *(_value(row["values"][index]) for index in known)) for row in rows[:_MOST_KEYS]),
    ))  # fmt: skip
    if len(rows) > _MOST_KEYS:
        out.print(f"… and {len(rows) - _MOST_KEYS} more: --json has all")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _value(value: Any) -> str:
    return "not set" if value is None else str(value)


def _number(value: Any) -> str:
    """Return a loss as a log prints it; what is no number as it stands."""
    return "none" if value is None else f"{value:.7g}" if isinstance(value, (int, float)) else str(value)


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
