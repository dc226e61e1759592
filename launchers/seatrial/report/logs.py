"""Which file holds a run's log, its last lines, and what it gains."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from seatrial.errors import SeatrialError
from seatrial.run.layout import Attempt, RunFolder

_BLOCK = 64 * 1024
_POLL_SECONDS = 0.25
LAST = "last"


def batch_log(folder: RunFolder, submitted: dict[str, Any]) -> Path:
    """Return what the supervisor prints: of the newest job, or where that has none yet of the newest before it.

    Raises SeatrialError where there is none.
    """
    job = str(submitted.get("job_id") or "")
    for path in (folder.path / f"batch-{job}.log", folder.path / "submitit" / f"{job}_0_log.out"):
        if job and path.is_file():
            return path
    found = [*folder.path.glob("batch-*.log"), *(folder.path / "submitit").glob("*_log.out")]
    if not found:
        raise SeatrialError("this run has no batch log yet", file=folder.path, fix="seatrial status shows its job")
    return max(found, key=lambda path: path.stat().st_mtime)


def rank_log(folder: RunFolder, rank: str, attempt: int | None = None) -> Path:
    """Return the log of a rank: a number, or ``last``, which prints the training lines. ``attempt`` None: the newest.

    Raises SeatrialError that names those that are there.
    """
    chosen = _attempt(folder, attempt)
    logs = {int(path.stem[5:]): path for path in chosen.path.glob("rank-*.log") if path.stem[5:].isdigit()}
    if not logs:
        raise SeatrialError(f"attempt {chosen.number} has no rank's log yet", file=chosen.path)
    number = max(logs) if rank == LAST else int(rank) if rank.isdecimal() else -1
    if number not in logs:
        rule = f"0 to {max(logs)}, or {LAST}"
        raise SeatrialError(f"no log of rank {rank}", file=chosen.path, key="--rank", value=rank, rule=rule)
    return logs[number]


def _attempt(folder: RunFolder, number: int | None) -> Attempt:
    attempts = folder.attempts()
    if not attempts:
        raise SeatrialError("this run has no attempt yet", file=folder.path, fix="seatrial status shows its job")
    if number is None:
        return attempts[-1]
    for attempt in attempts:
        if attempt.number == number:
            return attempt
    there = ", ".join(str(attempt.number) for attempt in attempts)
    raise SeatrialError(f"no attempt {number}", file=folder.path, key="--attempt", value=number, rule=f"one of {there}")


def last_lines(path: Path, count: int) -> tuple[bytes, int]:
    """Return the last ``count`` lines of a file as they stand, and where its end was, in bytes."""
    with path.open("rb") as stream:
        end = at = stream.seek(0, 2)
        data = b""
        # One more line break than lines: the one before the first of them.
        while at and data.rstrip(b"\n").count(b"\n") < count:
            size = min(_BLOCK, at)
            at -= size
            stream.seek(at)
            data = stream.read(size) + data
    parts = data.split(b"\n")  # not splitlines: a carriage return, as progress bars print, ends no line
    lines = [part + b"\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]
    return b"".join(lines[-count:] if count else []), end


def follow(
    choose: Callable[[], Path], path: Path, at: int, alive: Callable[[], bool], out: BinaryIO
) -> None:  # fmt: skip
    """Copy what ``path`` gains from byte ``at`` on, until the run is over (``alive`` is false) and nothing more comes.

    Where ``choose`` names another file (a new attempt's log), that one is followed then, from its start.
    """
    while True:
        living = alive()  # asked before reading: what it wrote last is still copied
        at = _copy(path, at, out)
        newer = choose()
        if newer != path:
            _copy(path, at, out)
            path, at = newer, 0
            out.write(f"\n==> {path} <==\n".encode(errors="surrogateescape"))
            continue
        if not living:
            return
        time.sleep(_POLL_SECONDS)


def _copy(path: Path, at: int, out: BinaryIO) -> int:
    """Copy from byte ``at`` on; return where the end was. A file that became shorter is copied from its start."""
    try:
        with path.open("rb") as stream:
            if stream.seek(0, 2) < at:
                at = 0
            stream.seek(at)
            while block := stream.read(_BLOCK):
                out.write(block)
                at += len(block)
    except OSError:
        return at  # a shared file system's bad moment: the next look goes on from the same place
    out.flush()
    return at
