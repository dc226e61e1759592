"""`stop` and `cancel`: end a run, with a save or without."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import GroupArgument, JsonFlag, RunsOption
from seatrial.cli.runs import alive, find_runs, run_job, runs_folders, state_of

if TYPE_CHECKING:
    from seatrial.run.layout import RunFolder

_POLL_SECONDS = 0.3


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(stop)
    app.command()(cancel)


def stop(
    run: GroupArgument,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once it is asked.")] = False,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Let a run, or each of a group, save a checkpoint and end; say whether it did. Exit code 1: steps were lost."""
    from seatrial.slurm import ending
    from seatrial.slurm.client import Slurm

    named = find_runs(run, runs_folders(runs), to_change=True)
    if named.group is not None:
        from seatrial.cli.group_verbs import stop_group

        raise typer.Exit(stop_group(named.group, wait=not no_wait, as_json=as_json))
    (folder,) = named.runs
    job = run_job(folder)
    asked = ending.stop(job, state_of(job), Slurm())
    answer: dict[str, Any] = {"run": folder.path.name, "asked": asked.words, "ended": asked.over, "saved": None}
    if not as_json:
        typer.echo(asked.words)
    if not asked.over and not no_wait:
        wait_for([folder], quiet=as_json)
        saved = ending.saved(folder, asked.attempt)
        answer |= {"ended": True, "saved": saved.good, "checkpoint": saved.step, "words": saved.words}
        if not as_json:
            typer.echo(saved.words)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    raise typer.Exit(1 if answer["saved"] is False else 0)


def cancel(
    run: GroupArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """End a run, or all of a group, at once, without saving. On a terminal it asks first."""
    from seatrial.report.facts import read_facts
    from seatrial.slurm import ending
    from seatrial.slurm.client import Slurm

    named = find_runs(run, runs_folders(runs), to_change=True)
    if named.group is not None:
        from seatrial.cli.group_verbs import cancel_group

        raise typer.Exit(cancel_group(named.group, ask=not yes and sys.stdin.isatty(), as_json=as_json))
    (folder,) = named.runs
    job = run_job(folder)
    state = state_of(job)
    if not yes and not state.final and sys.stdin.isatty():
        facts = read_facts(folder)
        typer.confirm(f"cancel {folder.path.name}, {state.state}, at step {facts.step}, without saving?", abort=True)
    words = ending.cancel(job, state, Slurm())
    typer.echo(json.dumps({"run": folder.path.name, "done": words}, indent=2) if as_json else words)


def wait_for(folders: Sequence[RunFolder], quiet: bool) -> None:
    """Wait until the runs have ended. Ctrl-C ends the waiting only."""
    go_on = [alive(folder) for folder in folders]
    one = len(folders) == 1
    if not quiet:
        words = "it has saved and ended" if one else "they have saved and ended"
        typer.echo(f"waiting until {words}; Ctrl-C ends the waiting only")
    try:
        while any(goes_on() for goes_on in go_on):
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        words = "the run saves and ends by itself" if one else "the runs save and end by themselves"
        typer.echo(f"not waiting any longer; {words}", err=True)
        raise typer.Exit(130) from None
