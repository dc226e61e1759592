"""`seatrial report`: a run or a run group as one HTML page, or a run as a block for a pull request."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.cli.options import RunArgument, RunsOption
from seatrial.cli.runs import find_run, runs_folders
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.run.groups import Group
    from seatrial.run.layout import RunFolder

PAGE = "report.html"


def report(
    run: RunArgument,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", metavar="FILE", help="Where the page goes: the run folder.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Validation block for a pull request; write nothing.")
    ] = False,
    group: Annotated[
        Optional[str],
        typer.Option("--group", metavar="UNIXGROUP", help="Let this group read the run folder; secrets are in none."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    runs: RunsOption = None,
) -> None:
    """Write a page about a run or a run group: one HTML file that opens from disk, without a network."""
    folders = runs_folders(runs)
    found = _find(run, folders)
    if markdown:
        if output is not None or group is not None or open_:
            raise SeatrialError("--markdown prints and writes nothing", key="--markdown", fix="leave the others out")
        typer.echo("\n".join(_blocks(found)), nl=False)
        return
    path = _write(found, output)
    typer.echo(str(path))
    if group is not None:
        from seatrial.report.sharing import share

        for folder in _run_folders(found):
            for sentence in share(folder, group):
                typer.echo(sentence)
    if open_:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            typer.echo("no browser could be started here", err=True)


def write_page(path: Path, page: str) -> Path:
    """Write a page aside and rename it: a reader never sees a part of it. Raises SeatrialError.

    It is for its owner, and for the group where the folder is open to that.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        shared = path.parent.stat().st_mode & stat.S_IRGRP and path.parent.stat().st_mode & stat.S_IXGRP
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(page)
            aside.chmod(0o640 if shared else 0o600)
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SeatrialError(f"cannot write the page: {error.strerror}", file=path, fix="--output FILE") from error
    return path


def _find(name: str, folders: list[Path]) -> RunFolder | Group:
    """Return the run that ``name`` says, else the run group. Raises SeatrialError where neither answers."""
    from seatrial.run.groups import find_group

    group = find_group(name, folders)
    if group is not None and name in (group.id, group.name):
        return group
    try:
        return find_run(name, folders)
    except SeatrialError:
        if group is None:
            raise
    return group


def _write(found: RunFolder | Group, output: Path | None) -> Path:
    from seatrial.report.page import group_page, run_page
    from seatrial.run.layout import RunFolder

    if isinstance(found, RunFolder):
        return write_page(output or found.path / PAGE, run_page(found, _now([found])))
    members = _run_folders(found)
    runs = members[0].path.parent if members else Path()
    return write_page(output or runs / f"{found.id}.html", group_page(found, _now(members)))


def _run_folders(found: RunFolder | Group) -> list[RunFolder]:
    from seatrial.run.layout import RunFolder

    return [found] if isinstance(found, RunFolder) else [RunFolder(Path(one.folder)) for one in found.runs]


def _now(folders: list[RunFolder]) -> float | None:
    """Return the time if any of the runs goes on."""
    from seatrial.cli.explain import still_going

    return time.time() if any(still_going(folder) is not None for folder in folders) else None


def _blocks(found: RunFolder | Group) -> list[str]:
    from seatrial.report.markdown import validation_block

    return [validation_block(folder) for folder in _run_folders(found)]
