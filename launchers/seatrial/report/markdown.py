"""A run as a block for a pull request. Everything is read from records; what they do not show is said to be unknown."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.judge.collect import read_steps
from seatrial.judge.history import AttemptRecord, read_events, read_history
from seatrial.judge.merge import Curve, merge_steps
from seatrial.judge.records import LM_LOSS
from seatrial.judge.rules import spans
from seatrial.judge.run_goodput import run_goodput
from seatrial.judge.verdict import FAIL, INCONCLUSIVE, NOT_JUDGED, PASS
from seatrial.report import secrets
from seatrial.report.decisions import class_words, decision_words
from seatrial.report.facts import Facts, read_facts
from seatrial.report.markdown_parts import checkpoints, evaluations, heads, jobs, speed, versions, what, where
from seatrial.report.markdown_text import UNKNOWN, code, count, table, text
from seatrial.run import records
from seatrial.run.layout import RunFolder

_MOST_GAPS = 8
_VERDICTS = (PASS, FAIL, INCONCLUSIVE)


@dataclass(frozen=True)
class _Read:
    """What lies in the folder. ``verdict``: verdict.json, empty where none counts; ``withheld``: why none does."""

    folder: RunFolder
    facts: Facts
    spec: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    history: Sequence[AttemptRecord]
    curve: Curve
    verdict: Mapping[str, Any]
    withheld: str
    now: float | None

    @property
    def rehearsal(self) -> bool | None:
        """Whether any record says that the ranks ran on a CPU; None: none says anything."""
        lines = [event for event in self.events if event.get("event") == "evidence"]
        said = [one.get("rehearsal") for one in (self.spec, self.verdict, *lines)]
        known = [one for one in said if isinstance(one, bool)]
        return any(known) if known else None


def validation_block(folder: RunFolder, now: float | None = None) -> str:
    """Return a run's Markdown block. ``now``: seconds since 1970, by default the time.

    Never raises for what lies in the folder. No absolute path stands in the block, nor a secret's value that is known
    here, and text from records can neither format nor link.
    """
    read = _read(folder, time.time() if now is None else now)
    lines = ["## Validation", "", _headline(read), ""]
    lines += table((name, value) for name, value in _rows(read) if value)
    failing = list(_failing(read))
    if failing:
        lines += ["", "Rules that do not pass:", "", *failing]
    block = "\n".join(lines) + "\n"
    profile = read.spec.get("profile")
    values = secrets.secrets_of(profile if isinstance(profile, dict) else {}, dict(os.environ))
    as_shown = {name: text(value) for name, value in values.items()}
    return secrets.without(secrets.without(block, values), as_shown)


def _read(folder: RunFolder, now: float) -> _Read:
    facts, events = read_facts(folder), read_events(folder)
    verdict, withheld = _verdict(folder, facts)
    live = None if facts.ended else now
    return _Read(
        folder, facts, records.read_object(folder.spec) or {}, events, read_history(folder, events, live),
        merge_steps(read_steps(folder.metrics)), verdict, withheld, live,
    )  # fmt: skip


def _verdict(folder: RunFolder, facts: Facts) -> tuple[Mapping[str, Any], str]:
    if not folder.verdict.exists():
        return {}, "no verdict is on record"
    found = records.read_object(folder.verdict)
    if found is None or found.get("verdict") not in _VERDICTS or not isinstance(found.get("rules"), list):
        return {}, "the verdict on record cannot be read"
    if not facts.ended:
        return {}, f"the run has gone on since the verdict on record ({found['verdict']}), which counts no more"
    if facts.verdict is None:
        return {}, f"the last attempt began after the verdict on record ({found['verdict']}), which counts no more"
    return found, ""


def _headline(read: _Read) -> str:
    verdict = read.verdict.get("verdict")
    state = f"**{verdict}**" if verdict else f"**no verdict** ({read.withheld})"
    kind = {"gate": "gate", "convergence": "convergence run"}.get(read.facts.kind, "run of an unknown kind")
    words = f"{state}: {kind} {code(read.facts.run_id)}"
    if read.verdict.get("drill"):
        words += f", a drill ({text(read.verdict['drill'])}): it admits no run"
    if read.rehearsal:
        ranks = read.spec.get("world_size")
        ranks = f"{ranks} CPU ranks" if isinstance(ranks, int) else "CPU ranks"
        words += f". **Rehearsal on {ranks}: proves the path, not the hardware**"
    if not read.facts.ended:
        words += ". **The run is not over: nothing here is final**"
    return f"{words}."


def _rows(read: _Read) -> Iterator[tuple[str, str]]:
    yield "what ran", what(read.spec)
    yield "on", where(read.spec, read.events, read.rehearsal)
    yield "jobs", jobs(read.history, read.events)
    yield "verdict", _judged(read)
    yield "end", text(decision_words(read.facts.decision)) if read.facts.ended else "not over"
    yield "steps", _steps(read)
    yield "finite", _finite(read)
    yield "skipped, NaN", _skipped(read)
    yield "checkpoints", checkpoints(read.folder, read.events)
    yield "validation, test", evaluations(read.events, read.facts.total)
    yield "loss", _loss(read)
    yield "resume check", _rule(read, "resume check")
    yield "reference curve", _rule(read, "reference curve")
    yield "speed", speed(read.verdict)
    yield "attempts", _attempts(read)
    yield "goodput", _goodput(read)
    yield "heads", heads(read.spec)
    yield "versions", versions(read.spec, read.events)


def _rules(read: _Read) -> list[Mapping[str, Any]]:
    return [rule for rule in read.verdict.get("rules") or [] if isinstance(rule, dict)]


def _judged(read: _Read) -> str:
    if not read.verdict:
        return read.withheld
    counts = Counter(str(rule.get("verdict")) for rule in _rules(read))
    parts = [f"{counts[name]} {name}" for name in (PASS, FAIL, INCONCLUSIVE, NOT_JUDGED) if counts[name]]
    return f"{read.verdict['verdict']}; rules: {', '.join(parts) or 'none'}"


def _failing(read: _Read) -> Iterator[str]:
    for rule in _rules(read):
        if rule.get("verdict") in (FAIL, INCONCLUSIVE):
            expected, seen = text(rule.get("expected") or UNKNOWN), text(rule.get("seen") or "nothing")
            yield f"- **{text(rule.get('rule'))}** {rule['verdict']}: expected {expected}; seen {seen}"


def _rule(read: _Read, name: str) -> str:
    """Return what a rule came to; nothing where it was not judged."""
    found = next((rule for rule in _rules(read) if rule.get("rule") == name), {})
    judged = found.get("verdict") in _VERDICTS
    return f"{found['verdict']}: {text(found.get('seen') or 'nothing seen')}" if judged else ""


def _steps(read: _Read) -> str:
    total, done = read.facts.total, [step.step for step in read.curve.steps]
    if total is None:
        return f"{len(done):,} on record, of an unknown number"
    inside = [step for step in done if 1 <= step <= total]
    words = f"{len(inside):,} of {total:,}"
    if 0 < len(inside) < total:
        words += f"; missing: {_gaps(inside, total)}"
    beyond = [step for step in done if not 1 <= step <= total]
    words += f"; beyond the target: {spans(beyond)}" if beyond else ""
    if read.curve.repeated:
        differ = len({one.step for one in read.curve.disagreements})
        words += f"; {len(read.curve.repeated):,} made again after a resume, {differ:,} of them with another loss"
    return words


def _gaps(done: Sequence[int], total: int) -> str:
    """Return what is missing of 1 to ``total``; ``done`` in order. The total may be any number that a record says."""
    found = [(a + 1, b - 1) for a, b in zip([0, *done], [*done, total + 1]) if b > a + 1]
    words = [str(a) if a == b else f"{a}-{b}" for a, b in found[:_MOST_GAPS]]
    return ", ".join(words) + (f" and {len(found) - _MOST_GAPS} more gaps" if len(found) > _MOST_GAPS else "")


def _finite(read: _Read) -> str:
    steps = read.curve.steps
    if not steps:
        return UNKNOWN
    total = read.facts.total or len(steps)
    losses = sum(LM_LOSS in one.losses and all(map(math.isfinite, one.losses.values())) for one in steps)
    norms = sum(one.grad_norm is not None and math.isfinite(one.grad_norm) for one in steps)
    return f"loss at {losses:,} of {total:,} steps, grad norm at {norms:,} of {total:,}"


def _skipped(read: _Read) -> str:
    parts = []
    for name, values in (
        ("skipped", [one.skipped for one in read.curve.steps]),
        ("NaN", [one.nan for one in read.curve.steps]),
    ):
        known = [value for value in values if value is not None]
        words = f"{sum(known):,} {name}" if known else f"{name} {UNKNOWN}"
        if known and len(known) < len(values):
            words += f" ({UNKNOWN} at {count(len(values) - len(known), 'step')})"
        parts.append(words)
    return ", ".join(parts)


def _loss(read: _Read) -> str:
    found = [(one.step, one.losses[LM_LOSS]) for one in read.curve.steps if LM_LOSS in one.losses]
    if not found:
        return UNKNOWN
    (first, began), (last, ended) = found[0], found[-1]
    return f"{LM_LOSS} {began:.6g} at step {first:,}, {ended:.6g} at step {last:,}"


def _attempts(read: _Read) -> str:
    if not read.history:
        return "none"
    ends = Counter("goes on" if one.live else class_words(one.data.get("class") or UNKNOWN) for one in read.history)
    return f"{len(read.history)}: " + ", ".join(f"{number} {text(name)}" for name, number in ends.most_common())


def _goodput(read: _Read) -> str:
    if read.facts.kind == "gate":
        return ""
    found = run_goodput(read.history, read.events, read.now)
    if found.with_queue is None or found.without_queue is None:
        return UNKNOWN
    return f"{found.with_queue:.1%} of the wall time, {found.without_queue:.1%} without the queue"
