"""`seatrial prune`: free the disk of checkpoints that runs need no more."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from seatrial.cli.options import JsonFlag, RunArguments, RunsOption
from seatrial.cli.requeue import user
from seatrial.cli.runs import all_runs, find_run, run_job, runs_folders
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.report.facts import Facts
    from seatrial.report.prune import Freed
    from seatrial.run.layout import RunFolder
    from seatrial.slurm.state_records import JobState


def prune(
    run: RunArguments = None,
    keep_last: Annotated[
        Optional[int], typer.Option("--keep-last", min=1, metavar="K", help="Newest whole ones that stay.")
    ] = None,
    keep_every: Annotated[
        Optional[int], typer.Option("--keep-every", min=1, metavar="M", help="Those of every M steps stay, too.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All checkpoints of a gate, or of a run that ended.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete superseded checkpoints of runs that do not run now, as their profiles say. The newest whole one stays."""
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.jobs import job_states

    folders = runs_folders(runs)
    if everything and not run:
        raise SeatrialError("--all deletes all checkpoints of the runs that are named", key="--all", fix="name a RUN")
    if everything and (keep_last or keep_every):
        raise SeatrialError("--all keeps nothing", key="--all", fix="leave --keep-last and --keep-every out")
    chosen = [find_run(name, folders) for name in run] if run else all_runs(folders)
    states = job_states([run_job(folder) for folder in chosen], Slurm())
    answers: list[dict[str, Any]] = []
    for folder in chosen:
        answer: dict[str, Any] = {"run": folder.path.name, "refused": None}
        try:
            freed = _prune(folder, states[folder.path], keep_last, keep_every, everything, dry_run, yes, bool(run))
            answer |= {} if freed is None else asdict(freed)
        except SeatrialError as error:
            answer["refused"] = error.message
            if run or not as_json:
                typer.echo(f"{folder.path.name}: {error}" if run else f"{folder.path.name}: {error.message}", err=True)
        else:
            if freed is None:
                continue
            _say(folder, freed, dry_run, as_json)
        answers.append(answer)
    if as_json:
        typer.echo(json.dumps({"dry_run": dry_run, "runs": answers}, indent=2))
    elif not answers:
        typer.echo("no run has checkpoints to look at")
    failed = any(answer.get("failed") for answer in answers)
    refused = bool(run) and any(answer["refused"] for answer in answers)
    raise typer.Exit(2 if refused else 1 if failed else 0)


def _prune(
    folder: RunFolder, state: JobState, last: int | None, every: int | None, everything: bool, dry_run: bool,
    yes: bool, named: bool,
) -> Freed | None:  # fmt: skip
    """Prune one run; None where it was not named and there is nothing to look at. Raises SeatrialError."""
    from seatrial.report.facts import read_facts
    from seatrial.report.prune import delete_all, prune_run
    from seatrial.slurm.requeue_queue import only_one

    facts = read_facts(folder)
    if not named and (facts.kind == "gate" or not folder.checkpoints.is_dir()):
        return None
    if facts.kind == "gate" and not everything:
        raise SeatrialError("a gate is judged by its checkpoints: none is superseded", fix="--all deletes them all")
    if not state.final:
        raise SeatrialError(
            f"its job may work on them ({state.state}): {state.reason or 'its supervisor prunes them itself'}",
            rule="nobody else deletes a running run's checkpoints", fix="when it has ended",
        )  # fmt: skip
    if everything and facts.kind != "gate":
        _may_delete_all(facts, dry_run or yes)
    # Brought back meanwhile, the run could look for what goes here.
    with contextlib.nullcontext() if dry_run else only_one(folder):
        if everything:
            return delete_all(folder, dry_run=dry_run, by=user())
        return prune_run(folder, last, every, dry_run=dry_run, by=user())


def _may_delete_all(facts: Facts, yes: bool) -> None:
    if not facts.ended:
        raise SeatrialError("the run has not ended: it may go on from them", key="--all", fix="leave --all out")
    if yes:
        return
    if not sys.stdin.isatty():
        raise SeatrialError("--all leaves nothing to go on from", key="--all", fix="--yes says that it is meant")
    if not typer.confirm(f"delete all checkpoints of {facts.run_id}, which is at step {facts.step}?"):
        raise SeatrialError("not deleted")


def _say(folder: RunFolder, freed: Freed, dry_run: bool, as_json: bool) -> None:
    from seatrial.report.prune import words

    if not as_json:
        typer.echo(f"{folder.path.name}: {words(freed, dry_run)}")
    for problem in freed.failed:
        typer.echo(f"{folder.path.name}: could not be deleted: {problem}", err=True)
