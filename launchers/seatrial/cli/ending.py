"""`stop` and `cancel`: end a run, with a save or without."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import JsonFlag, RunArgument, RunsOption
from seatrial.cli.runs import alive, find_run, run_job, runs_folders, state_of

if TYPE_CHECKING:
    from seatrial.run.layout import RunFolder

_POLL_SECONDS = 0.3


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(stop)
    app.command()(cancel)


def stop(
    run: RunArgument,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once it is asked.")] = False,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Let a run save a checkpoint and end; say whether it did. Exit code 1: steps were lost."""
    from seatrial.slurm import ending
    from seatrial.slurm.client import Slurm

    folder = find_run(run, runs_folders(runs))
    job = run_job(folder)
    asked = ending.stop(job, state_of(job), Slurm())
    answer: dict[str, Any] = {"run": folder.path.name, "asked": asked.words, "ended": asked.over, "saved": None}
    if not as_json:
        typer.echo(asked.words)
    if not asked.over and not no_wait:
        _wait(folder, quiet=as_json)
        saved = ending.saved(folder, asked.attempt)
        answer |= {"ended": True, "saved": saved.good, "checkpoint": saved.step, "words": saved.words}
        if not as_json:
            typer.echo(saved.words)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    raise typer.Exit(1 if answer["saved"] is False else 0)


def cancel(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """End a run at once, without saving. On a terminal it asks first."""
    from seatrial.report.facts import read_facts
    from seatrial.slurm import ending
    from seatrial.slurm.client import Slurm

    folder = find_run(run, runs_folders(runs))
    job = run_job(folder)
    state = state_of(job)
    if not yes and not state.final and sys.stdin.isatty():
        facts = read_facts(folder)
        typer.confirm(f"cancel {folder.path.name}, {state.state}, at step {facts.step}, without saving?", abort=True)
    words = ending.cancel(job, state, Slurm())
    typer.echo(json.dumps({"run": folder.path.name, "done": words}, indent=2) if as_json else words)


def _wait(folder: RunFolder, quiet: bool) -> None:
    """Wait until the run has ended. Ctrl-C ends the waiting only."""
    goes_on = alive(folder)
    if not quiet:
        typer.echo("waiting until it has saved and ended; Ctrl-C ends the waiting only")
    try:
        while goes_on():
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        typer.echo("not waiting any longer; the run saves and ends by itself", err=True)
        raise typer.Exit(130) from None
