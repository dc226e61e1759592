"""`seatrial tend`: bring back the runs whose jobs ended without a decision of their own."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seatrial.cli.options import JsonFlag, RunArguments, RunsOption
from seatrial.cli.runs import all_runs, find_run, runs_folders


def tend(
    run: RunArguments = None,
    runs: RunsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for each run.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Bring back runs whose jobs are gone without a decision; safe in cron. Exit code 1: something needs a person."""
    from seatrial.report.tend import counts, lines
    from seatrial.slurm import tend as tending
    from seatrial.slurm.client import Slurm

    folders = runs_folders(runs)
    chosen = [find_run(name, folders) for name in run] if run else sorted(all_runs(folders), key=lambda one: one.path)
    slurm = Slurm(say=lambda words: typer.echo(words, err=True))
    outcomes = tending.tend(chosen, slurm, named=bool(run), dry_run=dry_run)
    if as_json:
        answer = {"dry_run": dry_run, "counts": counts(outcomes), "runs": [one.to_json() for one in outcomes]}
        typer.echo(json.dumps(answer, indent=2))
    else:
        typer.echo("\n".join(lines(outcomes, dry_run=dry_run, everything=verbose or bool(run))))
    raise typer.Exit(1 if any(one.needs_person for one in outcomes) else 0)
