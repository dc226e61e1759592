"""Terminal views of findings and verdicts. Everything here takes plain data and prints."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seatrial.check.findings import Finding

STYLES = {
    "PASS": "green", "FAIL": "bold red", "INCONCLUSIVE": "yellow", "NOT JUDGED": "dim",
    "error": "bold red", "warning": "yellow", "note": "dim",
}  # fmt: skip


def console(*, stderr: bool = False) -> Console:
    """Return a console; where output is no terminal, lines are wide enough not to be cut."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 140, highlight=False)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print each finding with its field, value, rule, file and fix, to stderr."""
    out = console(stderr=True)
    for finding in findings:
        style = STYLES[finding.severity]
        value = f" = {finding.value!r}" if finding.value is not None else ""
        text = f"{escape(finding.field + value)}: {escape(finding.rule)}"
        out.print(f"[{style}]{finding.severity}[/]: {text}", soft_wrap=True)
        details = [f"in {finding.file}" if finding.file else "", f"fix: {finding.fix}" if finding.fix else ""]
        text = "; ".join(d for d in details if d)
        if text:
            out.print(f"  [dim]{escape(text)}[/]", soft_wrap=True)


def print_verdict(verdict: Mapping[str, Any]) -> None:
    """Print a verdict object (see verdict.json) as a table, its summary line last."""
    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("rule", "verdict", "expected", "seen", "steps", "evidence"):
        table.add_column(column, overflow="fold")
    for rule in verdict["rules"]:
        style = STYLES[rule["verdict"]]
        table.add_row(
            escape(rule["rule"]), f"[{style}]{rule['verdict']}[/]", escape(str(rule["expected"])),
            escape(str(rule["seen"])), _steps(rule.get("steps") or []), escape(_place(rule, verdict)),
        )  # fmt: skip
    out.print(table)
    label = " (rehearsal: proves the path, not the hardware)" if verdict.get("rehearsal") else ""
    drill = f" of the drill {verdict['drill']}, which admits no run" if verdict.get("drill") else ""
    scope = " (log only)" if verdict.get("scope") == "log" else ""
    out.print(f"[{STYLES[verdict['verdict']]}]{verdict['verdict']}[/]{escape(drill)}{scope}{label}")


def _place(rule: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """Return where a rule's evidence lies, within the run folder where it lies there."""
    place, folder = str(rule.get("evidence") or ""), f"{verdict.get('subject')}/"
    return place.removeprefix(folder) if verdict.get("scope") == "run" else ""


def _steps(steps: list[int]) -> str:
    return ", ".join(map(str, steps[:8])) + (" …" if len(steps) > 8 else "")
