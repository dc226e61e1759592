"""Which runs a command is about: by folder, id or unique prefix; and what is known of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.run.groups import Group, all_groups, answering
from seatrial.run.layout import RunFolder, glob_escape

if TYPE_CHECKING:
    from seatrial.report.status import Row
    from seatrial.slurm.jobs import RunJob
    from seatrial.slurm.state_records import JobState

DEFAULT_RUNS = Path("runs")
_ASK_SECONDS = 10.0


def runs_folders(named: Path | None) -> list[Path]:
    """Return where runs lie: the folder that was named, else ``./runs`` and those that the site file names."""
    if named is not None:
        if not named.is_dir():
            raise SeatrialError("no such folder of runs", file=named, key="--runs")
        return [named]
    from seatrial.spec.library import site_file
    from seatrial.spec.yamlfile import read_yaml

    found = [DEFAULT_RUNS]
    if site_file().is_file():
        site = read_yaml(site_file()).data
        for part in (site, *_parts(site.get("profiles"))):
            paths = part.get("paths")
            if isinstance(paths, dict) and isinstance(paths.get("runs"), str):
                found.append(Path(paths["runs"]).expanduser())
    return list({path.resolve(): path for path in found}.values())


def all_runs(folders: Sequence[Path]) -> list[RunFolder]:
    """Return every run in ``folders``."""
    return [RunFolder(path.parent.resolve()) for folder in folders for path in folder.glob("*/spec.json")]


@dataclass(frozen=True)
class Named:
    """What a name stands for: one run, or with ``group`` all of its runs."""

    runs: tuple[RunFolder, ...]
    group: Group | None = None


def find_runs(name: str, folders: Sequence[Path], *, to_change: bool = False) -> Named:
    """Return the run or the group that ``name`` says; where both answer, what is exact goes before a prefix.

    A name that several groups have means the newest; ``to_change``: it is refused, as the wrong runs might be changed.
    Raises SeatrialError where nothing, or more than one, answers.
    """
    groups = answering(name, folders)
    exact = bool(groups) and name in (groups[0].id, groups[0].name)
    if not groups or _exact_run(name, folders) or (not exact and _begun(name, folders)):
        return Named((find_run(name, folders),))
    if len(groups) > 1 and (to_change or not exact):
        raise SeatrialError(
            f"{name!r} names {len(groups)} groups", rule="the id of one", fix=", ".join(one.id for one in groups[:5])
        )
    if not groups[0].runs:
        raise SeatrialError(f"group {groups[0].id} names no run on record", fix="seatrial list shows the runs")
    return Named(tuple(RunFolder(run.folder) for run in groups[0].runs), groups[0])


def find_run(name: str, folders: Sequence[Path]) -> RunFolder:
    """Return the run that ``name`` says: its folder, its id, or a prefix of its id that no other run has.

    Raises SeatrialError where no run, or more than one, answers.
    """
    exact = _exact_run(name, folders)
    if exact is not None:
        return exact
    found = _begun(name, folders)
    if len(found) == 1:
        return RunFolder(found.pop())
    if found:
        names = ", ".join(sorted(path.name for path in found)[:5])
        raise SeatrialError(f"{name!r} names {len(found)} runs", rule="a prefix that only one run has", fix=names)
    for group in answering(name, folders):
        names = ", ".join(run.run for run in group.runs)
        raise SeatrialError(f"{name!r} is a group of {len(group.runs)} runs", rule="one run", fix=names)
    there = [*(folder.path.name for folder in all_runs(folders)), *(group.name for group in all_groups(folders))]
    raise SeatrialError(
        f"no run {name!r}", rule=f"a run folder, or the start of a run id in {', '.join(map(str, folders))}",
        fix=did_you_mean(name, there, otherwise="seatrial list shows the runs"),
    )  # fmt: skip


def _exact_run(name: str, folders: Sequence[Path]) -> RunFolder | None:
    paths = [Path(name).expanduser(), *(folder / name for folder in folders)] if name else []
    return next((RunFolder(path.resolve()) for path in paths if (path / "spec.json").is_file()), None)


def _begun(name: str, folders: Sequence[Path]) -> set[Path]:
    """Return the runs whose ids begin so."""
    pattern = f"{glob_escape(name)}*/spec.json"
    return {path.parent.resolve() for folder in folders if name and "/" not in name for path in folder.glob(pattern)}


def rows_of(folders: Sequence[RunFolder]) -> list[Row]:
    """Return the rows of these runs, the oldest first. Slurm is asked once for all of them."""
    from seatrial.report.facts import read_facts
    from seatrial.report.status import row
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.jobs import RunJob, job_states

    facts = [read_facts(folder) for folder in folders]
    jobs = job_states([RunJob(one.path, one.submitted, one.host) for one in facts], Slurm())
    now = time.time()
    rows = [row(one, jobs[one.path], now) for one in facts]
    return sorted(rows, key=lambda one: (one.created, one.run))


def run_job(folder: RunFolder) -> RunJob:
    """Return the newest submission of a run."""
    from seatrial.report.facts import read_facts
    from seatrial.slurm.jobs import RunJob

    facts = read_facts(folder)
    return RunJob(folder.path, facts.submitted, facts.host)


def state_of(run: RunJob) -> JobState:
    """Return the state of a run's job."""
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.jobs import job_states

    return job_states([run], Slurm())[run.folder]


def alive(folder: RunFolder) -> Callable[[], bool]:
    """Return a question whether a run goes on: its own records say it at once, its job is asked now and then."""
    from seatrial.report.facts import read_facts
    from seatrial.slurm.runs import at_most_every

    job = at_most_every(_ASK_SECONDS, lambda: not state_of(run_job(folder)).final)
    return lambda: not read_facts(folder).ended and job()


def _parts(data: Any) -> list[dict[str, Any]]:
    return [part for part in data.values() if isinstance(part, dict)] if isinstance(data, dict) else []
