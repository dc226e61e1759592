"""Which checkpoints stay. Nothing but this removes one: Megatron's own retention knows nothing of what is whole."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from seatrial.run import checkpoint

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
        _outlived(checkpoints / SET_ASIDE, max(whole, default=-1))
        _finish(checkpoints)
    return Pruned(tuple(go), tuple(sorted(set(whole) - set(go))), tuple(failed))


def delete_all(checkpoints: Path) -> list[str]:
    """Delete every checkpoint, and what was set aside; return what could not be."""
    failed = [problem for path in checkpoint.list_checkpoints(checkpoints) if (problem := discard(path))]
    _finish(checkpoints)
    shutil.rmtree(checkpoints / SET_ASIDE, ignore_errors=True)
    with contextlib.suppress(OSError):
        (checkpoints / checkpoint.TRACKER).unlink()
    return failed


def set_aside(path: Path, attempt: int) -> Path:
    """Move a checkpoint out of the way, so that no attempt takes it; return where it is. Raises OSError."""
    folder = path.parent / SET_ASIDE
    folder.mkdir(mode=0o700, exist_ok=True)
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


def _outlived(folder: Path, newest: int) -> None:
    """Delete what was set aside and has been trained past since."""
    for path in folder.glob("iter_*") if folder.is_dir() else ():
        step = path.name[5:].partition("-")[0]
        if step.isdigit() and int(step) <= newest:
            shutil.rmtree(path, ignore_errors=True)


def _finish(checkpoints: Path) -> None:
    for leftover in checkpoints.glob(f"{_DOOMED}*") if checkpoints.is_dir() else ():
        shutil.rmtree(leftover, ignore_errors=True)
