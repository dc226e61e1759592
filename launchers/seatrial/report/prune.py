"""Deleting checkpoints that a run needs no more, because a person wants it; its supervisor does it while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.run import checkpoint, records, retention
from seatrial.run.layout import RunFolder


@dataclass(frozen=True)
class Freed:
    """``deleted``, ``kept``: steps; ``leftovers``: how many folders more that were set aside or half deleted went.
    ``bytes`` that this freed, or would free; ``failed``: what could not be deleted, and why."""

    deleted: tuple[int, ...]
    kept: tuple[int, ...]
    leftovers: int
    bytes: int
    failed: tuple[str, ...] = ()


def prune_run(folder: RunFolder, last: int | None, every: int | None, *, dry_run: bool, by: str) -> Freed:
    """Delete what is superseded; None: as the run's profile says. Half-deleted checkpoints are finished.

    The newest whole one stays, and one that is not whole is left alone. Raises SeatrialError where the spec is none.
    """
    kept = retention.keep((_spec(folder).get("profile") or {}).get("recovery") or {})
    last, every = kept[0] if last is None else last, kept[1] if every is None else every
    plan = retention.prune(folder.checkpoints, last, every, dry_run=True)
    doomed = [checkpoint.checkpoint_folder(folder.checkpoints, step) for step in plan.deleted]
    passed = retention.aside(folder.checkpoints, max(plan.kept, default=-1))
    other = [*retention.half_deleted(folder.checkpoints), *passed]
    size = sum(map(_size, (*doomed, *other)))
    if not dry_run:
        plan = retention.prune(folder.checkpoints, last, every)
        _tell(folder, list(plan.deleted), list(plan.failed), by)
    left = 0 if dry_run else sum(map(_size, (*doomed, *other)))
    return Freed(plan.deleted, plan.kept, len(other), size - left, plan.failed)


def delete_all(folder: RunFolder, *, dry_run: bool, by: str) -> Freed:
    """Delete every checkpoint of a run that has ended. What a gate's were stays on record, as it is judged by them."""
    paths = checkpoint.list_checkpoints(folder.checkpoints)
    states = [checkpoint.check(path) for path in paths]
    other = [*retention.half_deleted(folder.checkpoints), *retention.aside(folder.checkpoints)]
    size, failed = sum(map(_size, (*paths, *other))), []
    if not dry_run:
        if paths and _spec(folder).get("kind") == "gate":
            retention.record_states(folder.path, states)
        failed = retention.delete_all(folder.checkpoints)
        _tell(folder, [state.step for state in states], failed, by)
        size -= sum(map(_size, (*paths, *other)))
    return Freed(tuple(state.step for state in states if state.step is not None), (), len(other), size, tuple(failed))


def words(freed: Freed, dry_run: bool) -> str:
    """Return what was done, for people."""
    steps = f"checkpoint{'' if len(freed.deleted) == 1 else 's'} {', '.join(map(str, freed.deleted))}"
    more = f"{freed.leftovers} leftover{'' if freed.leftovers == 1 else 's'}"
    what = " and ".join([*([steps] if freed.deleted else []), *([more] if freed.leftovers else [])])
    kept = f"; kept: {', '.join(map(str, freed.kept)) or 'none'}"
    if not what:
        return f"nothing to delete{kept}"
    verb, end = ("would delete", "to be freed") if dry_run else ("deleted", "freed")
    return f"{verb} {what}: {_amount(freed.bytes)} {end}{kept}"


def _spec(folder: RunFolder) -> Mapping[str, Any]:
    try:
        spec = records.read_json(folder.spec)
    except (OSError, ValueError) as error:
        raise SeatrialError(f"cannot read the spec: {error}", file=folder.spec) from error
    if not isinstance(spec, dict):
        raise SeatrialError("the spec is no spec", file=folder.spec)
    return spec


def _tell(folder: RunFolder, steps: list[Any], failed: list[str], by: str) -> None:
    if steps or failed:
        records.append_event(folder.events, "checkpoints_deleted", steps=steps, failed=failed, by=by)


def _size(path: Path) -> int:
    """Return the bytes of all files under ``path``; one that is gone meanwhile has none."""
    total = 0
    for file in path.rglob("*"):
        with contextlib.suppress(OSError):
            total += file.lstat().st_size if not file.is_dir() else 0
    return total


def _amount(count: int) -> str:
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
