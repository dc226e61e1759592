"""The verbs about runs that are there: what they are, how they stand, how to end them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial.cli import ending, following, site
from seatrial.cli.explain import explain
from seatrial.cli.options import JsonFlag, RunArguments, RunsOption
from seatrial.cli.runs import all_runs, find_runs, rows_of, runs_folders
from seatrial.run.groups import all_groups

if TYPE_CHECKING:
    from seatrial.report.status import Row
    from seatrial.run.groups import Group
    from seatrial.run.layout import RunFolder


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(status)
    app.command("list")(list_)
    following.register(app)
    app.command()(explain)
    ending.register(app)
    site.register(app)


def status(run: RunArguments = None, runs: RunsOption = None, as_json: JsonFlag = False) -> None:
    """Say how runs stand, or those of a group: their jobs, progress, verdicts, and what needs a person."""
    from seatrial.report.status import print_status

    folders = runs_folders(runs)
    found = [find_runs(name, folders) for name in run or ()]
    chosen = [folder for one in found for folder in one.runs] if run else all_runs(folders)
    _show(folders, chosen, [one.group for one in found if one.group], as_json, print_status, goodput=bool(run))


def list_(runs: RunsOption = None, as_json: JsonFlag = False) -> None:
    """List the runs, and the groups of them."""
    from seatrial.report.status import print_list

    folders = runs_folders(runs)
    _show(folders, all_runs(folders), all_groups(folders)[::-1], as_json, print_list)


def _with_goodput(row: Row) -> Row:
    """Add what takes a reading of all of a run's records: too much for a thousand of them."""
    from seatrial.report.explain import goodput_of
    from seatrial.report.facts import read_facts
    from seatrial.run.layout import RunFolder

    folder = RunFolder(Path(row.folder))
    goodput = goodput_of(folder, None if row.final or read_facts(folder).ended else time.time())
    return replace(row, goodput=goodput.with_queue, goodput_without_queue=goodput.without_queue)


def _show(
    folders: list[Path], chosen: Iterable[RunFolder], groups: Iterable[Group], as_json: bool, show: Any, *,
    goodput: bool = False,
) -> None:  # fmt: skip
    """Print the runs that were chosen, then a line for each group of ``groups`` that has any of them."""
    from seatrial.report.groups import group_json, group_words
    from seatrial.report.terminal import console

    rows = rows_of(list(dict.fromkeys(chosen)))
    by_run = {row.run: row for row in rows}
    pairs = [(group, [by_run[one.run] for one in group.runs if one.run in by_run]) for group in groups]
    shown = [(group, found) for group, found in pairs if found]
    if as_json:
        told = [_with_goodput(row) for row in rows] if goodput else rows
        data: dict[str, Any] = {"runs": [row.to_json() for row in told]}
        if shown:
            data["groups"] = [group_json(*one) for one in shown]
        typer.echo(json.dumps(data, indent=2))
    elif rows:
        show(console(), rows)
        for one in shown:
            typer.echo(group_words(*one))
    else:
        typer.echo(f"no runs in {', '.join(map(str, folders))}")
