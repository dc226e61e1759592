"""`seatrial nodes`: what has happened to nodes, and which are left out."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Annotated, Optional

import typer

from seatrial.cli import complete
from seatrial.cli.options import JsonFlag, RunsOption
from seatrial.errors import SeatrialError

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def nodes(
    profile: Annotated[
        Optional[str],
        typer.Option("--profile", "-p", help="Of this profile only.", autocompletion=complete.profiles),
    ] = None,
    exclude: Annotated[
        Optional[list[str]], typer.Option("--exclude", metavar="NODE", help="Leave it out from now on.")
    ] = None,
    reason: Annotated[Optional[str], typer.Option("--reason", metavar="TEXT", help="Why it is left out.")] = None,
    days: Annotated[
        Optional[int], typer.Option("--days", min=1, max=3650, help="For how long: the profile says, if not this.")
    ] = None,
    release: Annotated[
        Optional[list[str]], typer.Option("--release", metavar="NODE", help="Leave it out no longer.")
    ] = None,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show nodes' failures and exclusions, per profile; leave a node out, or let it back."""
    from seatrial.cli.runs import runs_folders

    if exclude or release:
        _change(profile, exclude or [], release or [], reason, days, runs)
    elif reason or days:
        raise SeatrialError("--reason and --days are those of an exclusion", fix="seatrial nodes --exclude NODE")
    _show(runs_folders(runs), profile, as_json)


def _show(folders: list[Path], profile: str | None, as_json: bool) -> None:
    from seatrial.judge import exclusions
    from seatrial.report.nodes import node_rows, print_nodes
    from seatrial.report.terminal import console
    from seatrial.run import node_history
    from seatrial.run.records import read_lines

    found = {}
    for runs in folders:
        for name in [profile] if profile else _profiles(runs):
            past, avoided = node_history.path_for(runs, name), exclusions.path_for(runs, name)
            try:
                rows = node_rows(read_lines(past), read_lines(avoided), time.time())
            except OSError as error:
                raise SeatrialError(f"cannot read what is on record of nodes: {error}", file=past.parent) from error
            if rows:
                found[str(runs), name] = rows
    if as_json:
        entries = [
            {"runs": runs, "profile": name, "nodes": [row.to_json() for row in rows]}
            for (runs, name), rows in found.items()
        ]
        typer.echo(json.dumps({"profiles": entries}, indent=2))
        return
    for (_, name), rows in found.items():
        print_nodes(console(), name, rows)
    if not found:
        typer.echo(f"no node has failed{f' under {profile}' if profile else ''}: nothing is on record in "
                   f"{', '.join(map(str, folders))}")  # fmt: skip


def _profiles(runs: Path) -> list[str]:
    """Return the profiles that something of their nodes is on record of."""
    names = {path.stem.partition("-")[2] for kind in ("nodes", "excluded")
             for path in (runs / ".seatrial").glob(f"{kind}-*.jsonl")}  # fmt: skip
    return sorted(names)


def _change(
    profile: str | None, exclude: list[str], release: list[str], reason: str | None, days: int | None,
    runs: Path | None,
) -> None:  # fmt: skip
    from seatrial.cli.requeue import user
    from seatrial.slurm.nodes import change_nodes

    if profile is None:
        raise SeatrialError("exclusions belong to a profile", key="--profile", fix="--profile NAME")
    for node in (*exclude, *release):
        if not _NODE.fullmatch(node):
            raise SeatrialError(
                "not the name of a node", value=node, rule="letters, digits, '.', '_' and '-': one node"
            )
    if both := sorted({*exclude} & {*release}):
        raise SeatrialError("a node cannot be left out and let back at once", value=both[0])
    if exclude and not reason:
        raise SeatrialError("an exclusion needs a reason", key="--reason", fix="--reason 'GPU 2 fell off the bus'")
    change_nodes(profile, runs, exclude, release, reason or "", days, f"by {user()}")
