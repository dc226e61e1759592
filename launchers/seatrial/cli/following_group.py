"""Following the runs of a group together, to the end of each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.report.groups import Followed
    from seatrial.run.groups import Group
    from seatrial.run.layout import RunFolder
    from seatrial.slurm.state_records import JobState

_ASK_SECONDS = 10.0


def follow_group(group: Group, gates: Sequence[RunFolder] = ()) -> int:
    """Show all runs of the group, and ``gates`` that they wait for, until all are over; print how each ended.

    Return the exit code: 0 only where every run is done, 130 after Ctrl-C, which leaves all of them running.
    """
    from seatrial.cli.converge import conclude
    from seatrial.cli.runs import rows_of
    from seatrial.report.groups import follow, group_words
    from seatrial.report.terminal import console
    from seatrial.run.layout import RunFolder

    folders = [RunFolder(run.folder) for run in group.runs]
    out = console()
    try:
        follow([_followed(folder) for folder in (*gates, *folders)], _Look([*gates, *folders], out), out)
    except KeyboardInterrupt:
        typer.echo(f"\nstopped following; the runs go on: seatrial status {group.id}", err=True)
        return 130
    done = []
    for run, folder in zip(group.runs, folders, strict=True):
        typer.echo(f"{run.recipe}:")
        done.append(conclude(folder))
    typer.echo(group_words(group, rows_of(folders)))
    return 0 if all(done) else 1


def _followed(folder: RunFolder) -> Followed:
    from seatrial.report.facts import read_facts
    from seatrial.report.groups import Followed

    facts = read_facts(folder)
    return Followed(f"{facts.recipe}{' gate' if facts.kind == 'gate' else ''}", folder, facts.total or 0)


class _Look:
    """How the jobs stand; Slurm is asked every so often, for all at once. A run that waits for a gate in vain is
    cancelled."""

    def __init__(self, folders: Sequence[RunFolder], out: Console) -> None:
        self._folders, self._out = folders, out
        self._asked_at = float("-inf")
        self._words: dict[Path, str | None] = {}

    def __call__(self) -> Mapping[Path, str | None]:
        if time.monotonic() - self._asked_at >= _ASK_SECONDS:
            self._words = self._ask()
            self._asked_at = time.monotonic()
        return self._words

    def _ask(self) -> dict[Path, str | None]:
        from seatrial.cli.runs import run_job
        from seatrial.slurm.client import Slurm
        from seatrial.slurm.jobs import job_states

        states = job_states([run_job(folder) for folder in self._folders], Slurm())
        return {folder.path: self._one(folder, states[folder.path]) for folder in self._folders}

    def _one(self, folder: RunFolder, state: JobState) -> str | None:
        from seatrial.errors import SeatrialError
        from seatrial.slurm.after_gate import withdraw
        from seatrial.slurm.client import Slurm
        from seatrial.slurm.state_needs import dependency_failed

        if state.final or not folder.spec.is_file():
            return None
        words = "" if state.state == "RUNNING" else ": ".join(filter(None, [state.state, state.reason]))
        if not dependency_failed(state.state, state.reason):
            return words
        try:
            said = withdraw(folder, "the gate it waited for did not pass", Slurm())
        except SeatrialError as error:
            return f"{words}; it could not be cancelled: {error.message}"
        self._out.print(f"{folder.path.name}: {said}", soft_wrap=True, markup=False)
        return None
