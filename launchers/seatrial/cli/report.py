"""`seatrial report`: a run or a run group as one HTML page, or as a block for a pull request."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Optional

import typer

from seatrial.cli.options import GroupArgument, RunsOption
from seatrial.cli.runs import Named, find_runs, runs_folders
from seatrial.errors import SeatrialError

PAGE = "report.html"


def report(
    run: GroupArgument,
    output: Annotated[
        Optional[Path],
        typer.Option("--output", "-o", metavar="FILE", help="Where the page goes; else report.html in the run folder."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Validation block for a pull request; write nothing.")
    ] = False,
    group: Annotated[
        Optional[str],
        typer.Option("--group", metavar="UNIXGROUP", help="Let this unix group read the run folder, and no more."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    runs: RunsOption = None,
) -> None:
    """Write a page about a run or a run group: one HTML file that opens from disk, without a network."""
    if markdown and (output is not None or group is not None or open_):
        raise SeatrialError("--markdown prints, and writes nothing", key="--markdown", fix="leave the others out")
    named = find_runs(run, runs_folders(runs))
    if markdown:
        from seatrial.report.markdown import validation_block

        typer.echo("\n".join(validation_block(folder) for folder in named.runs), nl=False)
        return
    path = _write(named, output)
    typer.echo(str(path))
    if group is not None:
        _share(named, group, None if output is not None or named.group is None else path)
    if open_:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            typer.echo("no browser could be started here", err=True)


def write_page(path: Path, page: str) -> None:
    """Write a page aside and rename it: a reader never sees a part of it. Raises SeatrialError.

    It is its owner's alone, in a folder that is shared also its group's to read.
    """
    from seatrial.run.sharing import file_mode

    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(page)
            aside.chmod(file_mode(path.parent))
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SeatrialError(
            f"cannot write the page: {error.strerror}", file=path, fix="name another with --output FILE"
        ) from error


def _write(named: Named, output: Path | None) -> Path:
    """Write the page of what was named; return where."""
    from seatrial.cli.explain import still_going
    from seatrial.report.page import group_page, run_page

    first = named.runs[0]
    if named.group is None:
        path, page = first.path / PAGE, run_page(first, still_going(first))
    else:
        over = [folder.path for folder in named.runs if still_going(folder) is None]
        path, page = first.path.parent / f"{named.group.id}.html", group_page(named.group, time.time(), over)
    write_page(output or path, page)
    return output or path


def _share(named: Named, group: str, page: Path | None) -> None:
    """Open the runs, and the page of a run group beside them, to a unix group."""
    import grp

    from seatrial.report.sharing import share
    from seatrial.run.sharing import SHARED_FILE, set_access

    for folder in named.runs:
        for sentence in share(folder, group):
            typer.echo(sentence)
    if page is not None:
        set_access(page, page.stat(), grp.getgrnam(group).gr_gid, SHARED_FILE)
