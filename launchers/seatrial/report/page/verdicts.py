"""The parts about verdict, speed and resume check of one run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.judge import verdict as words
from seatrial.report.page.columns import Columns, steps_words
from seatrial.report.page.figures import Canvas, Chart, Series
from seatrial.report.page.markup import Markup, code, details, html, table, tag
from seatrial.report.page.records import Run, listed, mappings, real
from seatrial.run.fields import at, mapping, whole

_TONES = {words.PASS: "good", words.FAIL: "bad", words.INCONCLUSIVE: "warn", "same": "good", "different": "bad",
          "incomplete": "warn"}  # fmt: skip
_WORST_FIRST = (words.FAIL, words.INCONCLUSIVE, words.NOT_JUDGED, words.PASS)


def pill(verdict: Any) -> Markup:
    """Return a verdict in its colour and in words."""
    return tag("span", verdict, class_=f"pill {_TONES.get(str(verdict), '')}".strip())


def verdict_part(run: Run) -> Markup:
    """Return the rules, the worst first: what was expected and seen, at which steps, where it can be looked up."""
    rules = mappings(run.verdict.get("rules"))
    if not run.verdict:
        when = "" if run.now is None else ": it is made when the run has ended"
        return tag("p", f"There is no verdict on record{when}.")
    rules = sorted(rules, key=lambda rule: _rank(rule.get("verdict")))
    rows = [
        [
            tag("th", rule.get("rule"), scope="row"), pill(rule.get("verdict")), _wide(rule.get("expected")),
            _wide(rule.get("seen")), steps_words(sorted(filter(None, map(whole, listed(rule.get("steps")))))) or "",
            tag("td", code(_inside(run, rule.get("evidence"))), class_="where"),
        ]
        for rule in rules
    ]  # fmt: skip
    outdated = tag("p", run.outdated, class_="banner bad") if run.outdated else None
    summary = [pill(run.verdict.get("verdict")), " ", ", ".join(_counts(rules))]
    drill = run.verdict.get("drill")
    return html(
        outdated,
        tag("p", *summary),
        tag("p", f"A drill: {drill} was put into this gate; it admits no run.") if drill else None,
        table(["rule", "verdict", "expected", "seen", "steps", "evidence"], rows, "Rules of the verdict"),
    )


def speed_part(run: Run, canvas: Canvas) -> Markup:
    """Return the speed and the resume check, where the verdict tells of them."""
    return html(_speed(mapping(run.verdict.get("speed"))), _resume_check(run, canvas))


def speed_rows(windows: list[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the cells of windows of steps: after the name mean, median, p99, tokens, TFLOP/s, MFU."""
    return [
        [
            tag("th", window.get("name"), scope="row"), f"{window.get('first')}-{window.get('last')}",
            *(cell(window.get(key), 1) for key in ("mean_ms", "median_ms", "p99_ms")),
            cell(window.get("tokens_per_second_per_gpu"), 0), cell(window.get("tflops_per_gpu"), 1),
            share(window.get("mfu")),
        ]
        for window in windows
    ]  # fmt: skip


def cell(value: Any, digits: int) -> Markup:
    """Return a number in a cell; what is none is not known."""
    known = real(value)
    return tag("td", "not known" if known is None else f"{known:,.{digits}f}", class_="number")


def share(value: Any) -> Markup:
    known = real(value)
    return tag("td", "not known" if known is None else f"{known:.1%}", class_="number")


def _speed(speed: Mapping[str, Any]) -> Markup:
    windows = mappings(speed.get("windows"))
    if not windows:
        return Markup()
    heads = ["", "steps", *(_number_head(name) for name in (
        "mean ms", "median ms", "p99 ms", "tokens/s/GPU", "TFLOP/s/GPU", "MFU"))]  # fmt: skip
    reference = mapping(speed.get("reference"))
    said = [f"{speed.get('gpus')} GPUs" if speed.get("gpus") else None, f"peak for MFU: {speed.get('peak')}"]
    if speed.get("tokens_per_step"):
        said.insert(1, f"{speed['tokens_per_step']} tokens a step")
    if reference:
        rate = real(reference.get("tokens_per_second_per_gpu"))
        said.append(
            f"reference {reference.get('name')}: {'not known' if rate is None else f'{rate:,.0f}'} tokens/s/GPU"
        )
    return html(
        tag("h3", "Speed"), table(heads, speed_rows(windows), "Speed"),
        tag("p", "; ".join(filter(None, said)), ".", class_="muted small"),
    )  # fmt: skip


def _resume_check(run: Run, canvas: Canvas) -> Markup:
    found = mapping(run.verdict.get("resume_check"))
    pairs = {step: (real(row.get("first")), real(row.get("second"))) for row in mappings(found.get("steps"))
             if (step := whole(row.get("step"))) is not None}  # fmt: skip
    if not pairs:
        return Markup()
    steps = sorted(pairs)
    known = [(step, a, b) for step in steps if None not in (pair := pairs[step]) for a, b in [pair]]
    far = max(known, key=lambda one: abs(one[1] - one[2]), default=None)  # type: ignore[operator]
    words = (
        f"Checkpoint {found.get('from')} was loaded into a new root and trained to the end again: {len(steps)} steps"
    )
    if far is None or len(known) < len(steps):
        words += f", of which {len(known)} have a loss in both passes"
    elif far[1] == far[2]:
        words += ", each with the same loss in both passes"
    else:
        words += f"; the losses lie farthest apart at step {far[0]}: {far[1]:g} and {far[2]:g}"
    values = {
        name: [_or_nan(pairs[step][index]) for step in steps]
        for index, name in enumerate(("first pass", "second pass"))
    }
    number = canvas.table(Columns(steps, values).to_json())
    series = [
        Series("first pass", "first pass", number),
        Series("second pass", "second pass", number, 1, True, "dashed"),
    ]
    rows = [[step, *("no number" if value is None else f"{value:g}" for value in pairs[step])] for step in steps]
    return html(
        tag("h3", "Resume check"), tag("p", words, "."),
        canvas.figure(Chart(f"{run.prefix}resume", "lm loss of both passes", series, group=f"{run.prefix}resume")),
        details("every step", table(["step", "first pass", "second pass"], rows, "Losses of the resume check")),
    )  # fmt: skip


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None or not abs(value) < 3e38 else value


def _number_head(name: str) -> Markup:
    return tag("th", name, scope="col", class_="number")


def _wide(text: Any) -> Markup:
    return tag("td", text, class_="wide")


def _rank(verdict: Any) -> int:
    return _WORST_FIRST.index(verdict) if verdict in _WORST_FIRST else 0


def _counts(rules: list[Mapping[str, Any]]) -> list[str]:
    names = [str(rule.get("verdict")) for rule in rules]
    return [f"{names.count(name)} {name}" for name in dict.fromkeys(names)]


def _inside(run: Run, evidence: Any) -> str:
    """Return where evidence lies, within the run folder where it does: a copied folder has another path."""
    text = str(evidence or "")
    for root in (str(run.verdict.get("subject") or ""), str(run.folder.path)):
        if root and text.startswith(f"{root}/"):
            return text[len(root) + 1 :]
    return text


def drill_of(run: Run) -> str | None:
    """Return the fault that was put into a gate, as ``FAULT@STEP``."""
    drill = at(run.spec, "drill")
    return f"{drill.get('fault')}@{drill.get('step')}" if isinstance(drill, Mapping) else None
