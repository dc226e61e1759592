"""Which checkpoints stay. Nothing but this removes one: Megatron's own retention knows nothing of what is whole."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from seatrial.run import checkpoint, records
from seatrial.run.sharing import make_folder

SET_ASIDE = "set_aside"
_DOOMED = ".deleting-"


@dataclass(frozen=True)
class Pruned:
    """Steps whose checkpoints were deleted, and that stay; ``failed``: those that could not be, and why."""

    deleted: tuple[int, ...]
    kept: tuple[int, ...]
    failed: tuple[str, ...] = ()


def superseded(whole: Sequence[int], last: int, every: Optional[int] = None) -> list[int]:
    """Return the steps of whole checkpoints that may go: all but the newest ``last`` and each multiple of ``every``.

    The newest one always stays. Pure.
    """
    steps = sorted(set(whole))
    newest = set(steps[-max(1, last) :])
    return [step for step in steps if step not in newest and not (every and step % every == 0)]


def prune(checkpoints: Path, last: int, every: Optional[int] = None, *, dry_run: bool = False) -> Pruned:
    """Delete what is superseded under ``checkpoints``. One that is not whole is left alone: it may be being written.

    Never raises for what the file system does: what could not be deleted is named.
    """
    found = [(path, checkpoint.check(path)) for path in checkpoint.list_checkpoints(checkpoints)]
    whole = {state.step: path for path, state in found if state.whole and state.step is not None}
    go = superseded(list(whole), last, every)
    failed: list[str] = []
    if not dry_run:
        failed = [problem for step in go if (problem := discard(whole[step]))]
        _remove([*aside(checkpoints, max(whole, default=-1)), *half_deleted(checkpoints)])
    return Pruned(tuple(go), tuple(sorted(set(whole) - set(go))), tuple(failed))


def delete_all(checkpoints: Path) -> list[str]:
    """Delete every checkpoint, and what was set aside; return what could not be."""
    failed = [problem for path in checkpoint.list_checkpoints(checkpoints) if (problem := discard(path))]
    _remove(half_deleted(checkpoints))
    shutil.rmtree(checkpoints / SET_ASIDE, ignore_errors=True)
    with contextlib.suppress(OSError):
        (checkpoints / checkpoint.TRACKER).unlink()
    return failed


def set_aside(path: Path, attempt: int) -> Path:
    """Move a checkpoint out of the way, so that no attempt takes it; return where it is. Raises OSError."""
    folder = path.parent / SET_ASIDE
    make_folder(folder, exist_ok=True)
    number = 0
    while (target := folder / f"{path.name}-before-{attempt:03d}{f'-{number}' if number else ''}").exists():
        number += 1
    path.rename(target)
    return target


def discard(path: Path) -> Optional[str]:
    """Delete a checkpoint; return what hindered it.

    Renamed first: one that is half gone must not pass for one that was badly written.
    """
    doomed = path.with_name(f"{_DOOMED}{path.name}")
    try:
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None


def half_deleted(checkpoints: Path) -> list[Path]:
    """Return what a deletion that was cut off has left."""
    return sorted(checkpoints.glob(f"{_DOOMED}*")) if checkpoints.is_dir() else []


def aside(checkpoints: Path, newest: Optional[int] = None) -> list[Path]:
    """Return the checkpoints that were set aside; ``newest``: those that have been trained past since, up to it."""
    folder = checkpoints / SET_ASIDE
    found = [(path.name[5:].partition("-")[0], path) for path in (folder.glob("iter_*") if folder.is_dir() else ())]
    return sorted(path for step, path in found if step.isdigit() and (newest is None or int(step) <= newest))


def keep(recovery: Mapping[str, Any]) -> tuple[int, Optional[int]]:
    """Return (``last``, ``every``) as a profile's ``recovery`` block states them."""
    return int(recovery.get("checkpoints_kept") or 3), recovery.get("checkpoints_kept_every")


def record_states(run: Path, states: Iterable[checkpoint.CheckpointState]) -> None:
    """Put on record what the checkpoints of a gate are, before they go: it is judged by them. Raises OSError."""
    named = {str(state.step): {"whole": state.whole, "reason": state.reason} for state in states}
    records.write_json(run / checkpoint.DELETED, named)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
