"""`seatrial requeue`: a person brings a run back."""

from __future__ import annotations

import getpass
import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.cli import complete
from seatrial.cli.options import GroupArgument, JsonFlag, RunsOption
from seatrial.cli.runs import find_runs, runs_folders

if TYPE_CHECKING:
    from seatrial.run.layout import RunFolder


def requeue(
    run: GroupArgument,
    from_step: Annotated[
        Optional[int], typer.Option("--from-step", min=0, metavar="N", help="Its checkpoint; 0 begins again.")
    ] = None,
    exclude: Annotated[
        Optional[list[str]], typer.Option("--exclude", metavar="NODE[,NODE]", help="Leave out; repeatable.")
    ] = None,
    profile: Annotated[
        Optional[str],
        typer.Option("--profile", "-p", help="Go on with another profile.", autocompletion=complete.profiles),
    ] = None,
    force_class: Annotated[
        Optional[str], typer.Option("--force-class", metavar="CLASS", help="What the last end really was.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow it to its end, as converge does.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring a run back that has ended, or whose job is held: as a new job, from its newest whole checkpoint.

    Of a group: each run that is not done and does not run.
    """
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.requeue import Wish, expand
    from seatrial.slurm.requeue import requeue as bring_back

    named = find_runs(run, runs_folders(runs), to_change=True)
    if named.group is not None:
        from seatrial.cli.group_verbs import refuse_for_one, requeue_group

        refuse_for_one({"--from-step": from_step, "--force-class": force_class})
        raise typer.Exit(requeue_group(named.group, tuple(exclude or ()), profile, follow=follow, as_json=as_json))
    (folder,) = named.runs
    if not yes and from_step is not None and sys.stdin.isatty():
        _ask(folder, from_step)
    slurm = Slurm(say=lambda words: typer.echo(words, err=True))
    done = bring_back(folder, Wish(user(), from_step, expand(exclude or [], slurm), profile, force_class), slurm)
    if as_json:
        answer = {"run": folder.path.name, "done": done.words, "job_id": done.job, "replaces": done.replaces,
                  "exclude": list(done.exclude), "from_step": from_step}  # fmt: skip
        typer.echo(json.dumps(answer, indent=2))
    else:
        typer.echo(f"{done.words}\nrun folder: {folder.path}")
    if follow:
        from seatrial.cli.converge import follow_run
        from seatrial.report.facts import read_facts

        raise typer.Exit(follow_run(folder, read_facts(folder).total or 0))


def _ask(folder: RunFolder, from_step: int) -> None:
    """Let the person see which checkpoints are newer than the one that was asked for."""
    from seatrial.run.checkpoint import list_checkpoints

    newer = [step for path in list_checkpoints(folder.checkpoints) if (step := int(path.name[5:])) > from_step]
    if newer:
        steps = ", ".join(map(str, newer))
        typer.confirm(f"checkpoints {steps} are set aside, and the steps after {from_step} trained again?", abort=True)


def user() -> str:
    """Return who types, for the records."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
