"""Run groups: runs that were submitted together to be held against each other. Standard library, Python 3.9 or newer.

A group is a record in the folder of runs, ``<runs>/.seatrial/group-<id>.json``; each of its runs has the group's id in
its spec.json. Names need not be unique: a name means the newest group of that name.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run import records

DEFAULT_NAME = "converge"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


@dataclass(frozen=True)
class GroupRun:
    """A run of a group: its id, its folder (absolute) and the name of its recipe."""

    run: str
    folder: Path
    recipe: str


@dataclass(frozen=True)
class Group:
    """``created``: ISO 8601 in UTC. ``same``: what all runs have in common (seed, split, ...) -> value.

    ``other_data``: why the runs do not read the same data files; None: they do.
    """

    id: str
    name: str
    created: str
    runs: tuple[GroupRun, ...]
    kind: str = "convergence"
    same: Mapping[str, Any] = field(default_factory=dict)
    other_data: Optional[str] = None

    def to_json(self) -> dict[str, Any]:
        """Return the record."""
        return {
            "schema": records.SCHEMA, "id": self.id, "name": self.name, "created": self.created, "kind": self.kind,
            "same": dict(self.same), "other_data": self.other_data,
            "runs": [{"run": one.run, "folder": str(one.folder), "recipe": one.recipe} for one in self.runs],
        }  # fmt: skip


def new_group_id(name: str) -> str:
    """Return ``<name>-<YYYYmmdd-HHMMSS>-<6 hex>``. Raises SeatrialError for what cannot be part of a file's name."""
    if not _NAME.fullmatch(name):
        raise SeatrialError(
            "not a name for a group", key="--name", value=name,
            rule="1 to 60 of A-Z a-z 0-9 . _ -, the first a letter or digit", fix="for example --name nano-and-9b",
        )  # fmt: skip
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def group_file(runs: Path, group_id: str) -> Path:
    """Return where a group's record lies in a folder of runs."""
    return runs / ".seatrial" / f"group-{group_id}.json"


def write_group(runs: Path, group: Group) -> Path:
    """Put a group on record in the folder of runs; return the record. Raises OSError."""
    path = group_file(runs, group.id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    records.write_json(path, group.to_json())
    return path


def read_group(path: Path) -> Optional[Group]:
    """Return the group on record in ``path``; None where that is no record of one. Never raises for what lies there."""
    data = records.read_object(path)
    if data is None or not isinstance(data.get("id"), str) or not isinstance(data.get("runs"), list):
        return None
    same, other = data.get("same"), data.get("other_data")
    return Group(
        data["id"], str(data.get("name") or data["id"]), str(data.get("created") or ""),
        tuple(_runs(data["runs"], path)), str(data.get("kind") or "convergence"),
        same if isinstance(same, dict) else {}, other if isinstance(other, str) else None,
    )  # fmt: skip


def _runs(found: Sequence[Any], record: Path) -> Iterator[GroupRun]:
    for one in found:
        if not isinstance(one, dict) or not isinstance(one.get("run"), str) or not isinstance(one.get("folder"), str):
            continue
        folder, beside = Path(one["folder"]), record.parents[1] / one["run"]
        if not (folder / "spec.json").is_file() and (beside / "spec.json").is_file():
            folder = beside.resolve()  # the folder of runs was moved, or is a copy
        yield GroupRun(one["run"], folder, str(one.get("recipe") or ""))


def all_groups(folders: Sequence[Path]) -> list[Group]:
    """Return every group on record in the folders of runs, the newest first."""
    paths = (path for folder in folders for path in folder.glob(".seatrial/group-*.json"))
    found = {group.id: group for group in map(read_group, paths) if group is not None}
    return sorted(found.values(), key=lambda group: (group.created, group.id), reverse=True)


def answering(name: str, folders: Sequence[Path]) -> list[Group]:
    """Return the groups that ``name`` may mean, the newest first: of that id, else of that name, else all whose id
    begins so."""
    groups = all_groups(folders) if name and "/" not in name else []
    exact = [group for group in groups if group.id == name]
    named = [group for group in groups if group.name == name]
    return exact or named or [group for group in groups if group.id.startswith(name)]


def find_group(name: str, folders: Sequence[Path]) -> Optional[Group]:
    """Return the group that ``name`` says: its id, its name (the newest of that name), or a prefix of its id that no
    other group has. None where none answers, or a prefix is of several."""
    found = answering(name, folders)
    return found[0] if len(found) == 1 or (found and name == found[0].name) else None
