"""`requeue`, `stop` and `cancel` of a group: each run by itself, so that one that cannot be changed keeps no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from seatrial.cli.runs import run_job, state_of
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.run.groups import Group, GroupRun
    from seatrial.run.layout import RunFolder

_REFUSED = 2


def refuse_for_one(options: Mapping[str, Any]) -> None:
    """Raises SeatrialError where an option was given that means something for one run only."""
    for option, given in options.items():
        if given is not None:
            raise SeatrialError(f"{option} is one run's", key=option, value=given, fix="name one run of the group")


def requeue_group(
    group: Group, exclude: Sequence[str], profile: str | None, *, follow: bool, as_json: bool
) -> int:  # fmt: skip
    """Bring back each run that is not done and does not run; return the exit code, 2 where one could not be."""
    from seatrial.cli.requeue import user
    from seatrial.report.facts import read_facts
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.requeue import Wish, expand, requeue

    slurm = Slurm(say=lambda words: typer.echo(words, err=True))
    wish = Wish(user(), None, expand(exclude, slurm), profile, None)

    def one(folder: RunFolder) -> dict[str, Any]:
        state, facts = state_of(run_job(folder)), read_facts(folder)
        if facts.ended and facts.decision.get("decision") == "done":
            return {"done": "it is complete: nothing to do"}
        if not state.final and state.state == "RUNNING":
            return {"done": "it runs: nothing to do"}
        done = requeue(folder, wish, slurm)
        return {"done": done.words, "job_id": done.job, "replaces": done.replaces, "exclude": list(done.exclude)}

    code = _tell(group, list(_each(group, one)), as_json)
    if follow and code == 0:
        from seatrial.cli.following_group import follow_group

        return follow_group(group)
    return code


def stop_group(group: Group, *, wait: bool, as_json: bool) -> int:
    """Ask all runs to save and end, then wait for all; return the exit code: 1 where steps were lost, 2 where a run
    could not be asked."""
    from seatrial.cli.ending import wait_for
    from seatrial.slurm import ending
    from seatrial.slurm.client import Slurm

    slurm = Slurm()
    asked: dict[RunFolder, ending.Asked] = {}

    def ask(folder: RunFolder) -> dict[str, Any]:
        job = run_job(folder)
        asked[folder] = ending.stop(job, state_of(job), slurm)
        return {"asked": asked[folder].words, "ended": asked[folder].over, "saved": None}

    answers = list(_each(group, ask))
    if not as_json:
        _tell(group, answers, False)
    waiting = {folder: one for folder, one in asked.items() if not one.over} if wait else {}
    if waiting:
        wait_for(list(waiting), quiet=as_json)
    for folder, one in waiting.items():
        saved = ending.saved(folder, one.attempt)
        answer = next(answer for answer in answers if answer["run"] == folder.path.name)
        answer |= {"ended": True, "saved": saved.good, "checkpoint": saved.step, "words": saved.words}
        if not as_json:
            typer.echo(f"{answer['run']}: {saved.words}")
    code = _tell(group, answers, True) if as_json else _code(answers)
    return code or int(any(answer.get("saved") is False for answer in answers))


def cancel_group(group: Group, *, ask: bool, as_json: bool) -> int:
    """End all runs at once; ``ask`` once for all, naming each. Return the exit code: 2 where one may live on."""
    from seatrial.report.facts import read_facts
    from seatrial.slurm import ending
    from seatrial.slurm.client import Slurm

    if ask:
        folders = list(map(_folder, group.runs))
        states = {folder: state_of(run_job(folder)) for folder in folders}
        live = [f"{one.path.name}, {states[one].state}, at step {read_facts(one).step}" for one in folders
                if not states[one].final]  # fmt: skip
        if live:
            typer.confirm("\n".join(["cancel without saving:", *(f"  {line}" for line in live), "?"]), abort=True)
    slurm = Slurm()

    def one(folder: RunFolder) -> dict[str, Any]:
        job = run_job(folder)
        return {"done": ending.cancel(job, state_of(job), slurm)}

    return _tell(group, list(_each(group, one)), as_json)


def _each(group: Group, change: Callable[[RunFolder], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what was done to each run, or why it could not be."""
    for run in group.runs:
        try:
            yield {"run": run.run, **change(_folder(run))}
        except SeatrialError as error:
            yield {"run": run.run, "error": str(error)}


def _tell(group: Group, answers: Sequence[Mapping[str, Any]], as_json: bool) -> int:
    """Print what was done; return the exit code."""
    if as_json:
        typer.echo(json.dumps({"group": group.id, "runs": list(answers)}, indent=2))
        return _code(answers)
    typer.echo(f"group {group.id}:")
    for answer in answers:
        if "error" in answer:
            typer.echo(f"{answer['run']}: error: {answer['error']}", err=True)
        else:
            typer.echo(f"{answer['run']}: {answer.get('done') or answer.get('asked')}")
    return _code(answers)


def _code(answers: Sequence[Mapping[str, Any]]) -> int:
    return _REFUSED if any("error" in answer for answer in answers) else 0


def _folder(run: GroupRun) -> RunFolder:
    from seatrial.run.layout import RunFolder

    return RunFolder(run.folder)
