"""From what a run folder and Slurm say to one row a run, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seatrial.report.facts import Facts
from seatrial.report.terminal import STYLES
from seatrial.run.records import encode_float

_STOPPED_BY_A_PERSON = (83, 88)  # supervise.exit_codes
_FEW = 100  # rows
_LIVE = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
_COLORS = {
    "RUNNING": "green", "COMPLETED": "green", "PENDING": "cyan", "FAILED": "red", "UNKNOWN": "yellow",
    "NODE_FAIL": "red", "OUT_OF_MEMORY": "red", "TIMEOUT": "red",
}  # fmt: skip


class Job(Protocol):
    """The state of a run's job (slurm.state_records.JobState is one)."""

    @property
    def state(self) -> str: ...
    @property
    def final(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def job_id(self) -> str | None: ...
    @property
    def nodes(self) -> str: ...
    @property
    def restarts(self) -> int | None: ...
    @property
    def needs_action(self) -> str | None: ...


@dataclass(frozen=True)
class Row:
    """One run. ``age_seconds``: since its last step was written; ``eta_seconds``: None where it does not run.

    ``attempts``: how many there were. ``last_class``: of the newest decision. ``needs_action``: what a person has to
    do; None: nothing, as far as is known. ``goodput``, ``goodput_without_queue``: None where nobody worked them out.
    ``group``: the id of its group, None where it is of none. ``ended``: its supervisor has decided to end it, even
    where its job is not gone yet.
    """

    run: str
    folder: str
    recipe: str
    kind: str
    created: str
    job_id: str | None
    state: str
    final: bool
    reason: str
    source: str
    nodes: str
    restarts: int | None
    attempt: int | None
    step: int
    total: int | None
    loss: float | None
    age_seconds: float | None
    eta_seconds: float | None
    verdict: str | None
    decision: str | None
    decision_reason: str | None
    needs_action: str | None
    attempts: int = 0
    last_class: str | None = None
    goodput: float | None = None
    goodput_without_queue: float | None = None
    group: str | None = None
    ended: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain data; a loss that is no number is the string "nan"."""
        return asdict(self) | {"loss": encode_float(self.loss)}


def row(facts: Facts, job: Job, now: float) -> Row:
    """Return the row of a run. ``now``: seconds since 1970."""
    return Row(
        run=facts.run_id, folder=str(facts.path), recipe=facts.recipe, kind=facts.kind, created=facts.created,
        job_id=job.job_id, state=job.state, final=job.final, reason=facts.unreadable or job.reason, source=job.source,
        nodes=job.nodes, restarts=job.restarts, attempt=facts.attempt, step=facts.step, total=facts.total,
        loss=facts.loss, age_seconds=None if facts.stepped_at is None else max(0.0, now - facts.stepped_at),
        eta_seconds=facts.eta_seconds if job.state in _LIVE and not facts.ended else None, verdict=facts.verdict,
        decision=facts.decision.get("decision"), decision_reason=facts.decision.get("reason"),
        needs_action=needs_action(facts, job), attempts=0 if facts.attempt is None else facts.attempt + 1,
        last_class=facts.decision.get("class"), group=facts.group, ended=facts.ended,
    )  # fmt: skip


def needs_action(facts: Facts, job: Job) -> str | None:
    """Return what a person has to do about a run, or None."""
    if facts.unreadable:
        return facts.unreadable
    if job.needs_action:
        return job.needs_action
    if facts.ended:
        code, reason = facts.decision.get("exit_code"), facts.decision.get("reason")
        if code == 0 or code in _STOPPED_BY_A_PERSON:
            return None
        judged = facts.kind == "gate" and facts.verdict is not None
        return f"verdict {facts.verdict}: {reason}" if judged else f"it stopped: {reason}"
    if job.final and job.state != "CANCELLED":
        what = "see its logs" if facts.kind == "gate" else "seatrial tend brings it back"
        return f"its job ended, and its supervisor recorded no decision: {what}"
    return None


def print_status(out: Console, rows: Sequence[Row]) -> None:
    """Print the table of ``rows``, then what is to be done and what is not known."""
    heads = ("run", "job", "state", "step", "loss", "last step", "ETA", "verdict", "decision")
    _print_table(out, heads, [cells(one) for one in rows])
    for mark, text, runs in remarks(rows):
        out.print(f"[yellow]{mark}[/] {escape(text)} [dim]({escape(runs)})[/]", soft_wrap=True)


def print_list(out: Console, rows: Sequence[Row]) -> None:
    """Print the short table: run, kind, recipe, when it was made, state."""
    heads = ("run", "kind", "recipe", "created", "state")
    cells = [[one.run, one.kind, one.recipe, one.created[:16].replace("T", " "), one.state] for one in rows]
    _print_table(out, heads, cells)


def _print_table(out: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if len(rows) <= _FEW:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in heads:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*map(_colored, row))
        out.print(table)
        return
    # A table that fits itself to the terminal takes half a second for a thousand rows.
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in (heads, *rows))
    out.file.write("\n".join(lines) + "\n")


def cells(one: Row) -> list[str]:
    """Return the cells of ``print_status``'s table."""
    return [
        one.run, one.job_id or "-", one.state, f"{one.step}/{one.total if one.total is not None else '?'}",
        number(one.loss) if one.step else "-",
        "-" if one.age_seconds is None else f"{duration(one.age_seconds)} ago",
        "-" if one.eta_seconds is None else duration(one.eta_seconds), one.verdict or "-", one.decision or "-",
    ]  # fmt: skip


def remarks(rows: Iterable[Row]) -> list[tuple[str, str, str]]:
    """Return (mark, text, runs) for what needs a person ("!") and for what nobody knows ("?"); equal texts once."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for one in rows:
        if one.needs_action:
            grouped.setdefault(("!", one.needs_action), []).append(one.run)
        elif one.state == "UNKNOWN" or (one.state == "PENDING" and one.reason):
            grouped.setdefault(("?" if one.state == "UNKNOWN" else "-", one.reason), []).append(one.run)
    return [
        (mark, text, runs[0] if len(runs) == 1 else f"{len(runs)} runs, first {runs[0]}")
        for (mark, text), runs in grouped.items()
    ]  # fmt: skip


def duration(seconds: float) -> str:
    """Return a time for people in two units at most: ``8 s``, ``5 min``, ``3 h 20 min``, ``2 d 4 h``."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, left = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {left} min" if left else f"{hours} h"
    days, hours = divmod(round(minutes / 60), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def number(value: float | None) -> str:
    """Return a loss or norm for people."""
    return "missing" if value is None else f"{value:.4f}"


def _colored(cell: str) -> str:
    style = _COLORS.get(cell) or STYLES.get(cell)
    return f"[{style}]{escape(cell)}[/]" if style else escape(cell)
