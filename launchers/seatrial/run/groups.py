"""Run groups: runs that were submitted together, on the same data and seed, to be held against each other."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run import records

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class GroupRun:
    """A run of a group: its id, its folder and its recipe."""

    run: str
    folder: Path
    recipe: str


@dataclass(frozen=True)
class Group:
    """A named group. ``same``: what all its runs share, field -> value. ``other_data``: why the data differ, None: they
    do not."""

    id: str
    name: str
    created: str
    runs: tuple[GroupRun, ...]
    kind: str = "convergence"
    same: Mapping[str, Any] = field(default_factory=dict)
    other_data: Optional[str] = None


def new_group_id(name: str) -> str:
    """Return ``<name>-<YYYYmmdd-HHMMSS>-<6 hex>``. Raises SeatrialError for a name that is no file name."""
    if not _NAME.fullmatch(name):
        raise SeatrialError(
            "not a group's name", key="--name", value=name, rule="letters, digits, '.', '_' and '-'; at most 64",
        )  # fmt: skip
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def group_file(runs: Path, group: str) -> Path:
    """Return where the record of a group lies, by its id."""
    return runs / ".seatrial" / f"group-{group}.json"


def write_group(runs: Path, group: Group) -> Path:
    """Put a group on record in a folder of runs; return the file."""
    path = group_file(runs, group.id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = asdict(group)
    data["runs"] = [{"run": run.run, "folder": str(run.folder), "recipe": run.recipe} for run in group.runs]
    data["same"] = dict(group.same)
    records.write_json(path, {"schema": records.SCHEMA, **data})
    return path


def read_group(path: Path) -> Optional[Group]:
    """Return the group that a file holds; None where it holds none."""
    data = records.read_object(path)
    try:
        if data is None:
            return None
        runs = tuple(GroupRun(str(run["run"]), Path(run["folder"]), str(run["recipe"])) for run in data["runs"])
        return Group(
            str(data["id"]), str(data["name"]), str(data["created"]), runs, str(data.get("kind") or "convergence"),
            dict(data.get("same") or {}), data.get("other_data"),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def all_groups(folders: Sequence[Path]) -> list[Group]:
    """Return the groups on record in folders of runs, the oldest first."""
    paths = {path.resolve() for folder in folders for path in folder.glob(".seatrial/group-*.json")}
    found = [group for path in paths if (group := read_group(path)) is not None]
    return sorted(found, key=lambda group: (group.created, group.id))


def find_group(name: str, folders: Sequence[Path]) -> Optional[Group]:
    """Return the group of that id or unique prefix of one, else the newest of that name; None where none answers."""
    groups = all_groups(folders)
    exact = [group for group in groups if group.id == name]
    named = [group for group in groups if group.name == name]
    begun = [group for group in groups if name and group.id.startswith(name)]
    if exact or named:
        return (exact or named)[-1]
    return begun[0] if len(begun) == 1 else None
