"""The verbs about runs that are there: what they are, how they stand, how to end them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial.cli import ending, following, site
from seatrial.cli.explain import explain
from seatrial.cli.options import JsonFlag, RunArguments, RunsOption
from seatrial.cli.runs import all_runs, find_run, rows_of, runs_folders

if TYPE_CHECKING:
    from seatrial.report.status import Row


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(status)
    app.command("list")(list_)
    following.register(app)
    app.command()(explain)
    ending.register(app)
    site.register(app)


def status(run: RunArguments = None, runs: RunsOption = None, as_json: JsonFlag = False) -> None:
    """Say how runs stand: their jobs, progress, verdicts, and what needs a person."""
    from seatrial.report.status import print_status

    _show(run, runs, as_json, print_status)


def list_(runs: RunsOption = None, as_json: JsonFlag = False) -> None:
    """List the runs."""
    from seatrial.report.status import print_list

    _show(None, runs, as_json, print_list)


def _with_goodput(row: Row) -> Row:
    """Add what takes a reading of all of a run's records: too much for a thousand of them."""
    from seatrial.report.explain import goodput_of
    from seatrial.report.facts import read_facts
    from seatrial.run.layout import RunFolder

    folder = RunFolder(Path(row.folder))
    goodput = goodput_of(folder, None if row.final or read_facts(folder).ended else time.time())
    return replace(row, goodput=goodput.with_queue, goodput_without_queue=goodput.without_queue)


def _show(named: list[str] | None, runs: Path | None, as_json: bool, show: Any) -> None:
    from seatrial.report.terminal import console

    folders = runs_folders(runs)
    rows = rows_of([find_run(name, folders) for name in named] if named else all_runs(folders))
    if as_json and named:
        rows = [_with_goodput(row) for row in rows]
    if as_json:
        typer.echo(json.dumps({"runs": [row.to_json() for row in rows]}, indent=2))
    elif rows:
        show(console(), rows)
    else:
        typer.echo(f"no runs in {', '.join(map(str, folders))}")
