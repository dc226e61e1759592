"""The stacks that ranks leave on a signal (faulthandler's dumps), and which rank they point at. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MOST_FRAMES = 6
_MOST_NAMED, _MOST_GROUPS = 8, 4
# As _Py_DumpTracebackThreads writes them (CPython 3.9 to 3.14, which names threads).
_HEAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-fA-F]+[^\n]*\(most recent call first\):\s*$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
# Where a rank waits for others: torch's collectives, and what they wait in.
_WAITS = re.compile(
    r"torch/distributed/|gloo|nccl|deep_ep/|p2p_communication\.py|"
    r" (?:all_reduce|all_gather\w*|all_to_all\w*|reduce_scatter\w*|barrier|monitored_barrier|broadcast\w*)$",
    re.IGNORECASE,
)


def main_thread(text: str) -> list[str]:
    """Return the innermost frames of the main thread in the last dump that ``text`` holds, as ``file:line function``.

    Threads stand in a dump newest first, so it ends with the main thread, whichever took the signal (of a process that
    was stopped any may). Of more than a hundred it is left out, and the oldest of the others has to do. Empty where
    there is no dump. Never raises.
    """
    threads: list[list[str]] = []
    for line in text.split("\n"):
        if _HEAD.search(line) is not None:
            threads.append([])
        elif threads and (frame := _FRAME.match(line)) is not None:
            threads[-1].append(f"{_PACKAGES.sub('', frame[1])}:{frame[2]} {frame[3].strip()}")
    return next((frames for frames in reversed(threads) if frames), [])[:MOST_FRAMES]


def waits(frames: Sequence[str]) -> bool:
    """Whether a rank is inside a collective: it waits for others."""
    return any(_WAITS.search(frame) for frame in frames)


def suspects(stacks: Mapping[int, Sequence[str]], silent: Iterable[int]) -> list[int]:
    """Return the ranks that stand out among those that were asked; none where there is no telling.

    ``silent``: those that left no stack before they were continued: a rank that does not even take a signal is stopped,
    or hangs in the kernel. Else those whose innermost functions are not the majority's, where the majority waits for
    others; else, without a majority, the few that do not wait while most do (of two ranks: the one).
    """
    mute = sorted(set(silent))
    ranks = len({*stacks, *mute})
    if mute:
        return mute if 2 * len(mute) <= ranks else []
    functions = {rank: tuple(frame.rpartition(":")[0] + _function(frame) for frame in stack)
                 for rank, stack in stacks.items() if stack}  # fmt: skip
    if not functions:
        return []
    alike, count = Counter(functions.values()).most_common(1)[0]
    busy = sorted(rank for rank in functions if not waits(stacks[rank]))
    if 2 * count > ranks:
        others = sorted(rank for rank, its in functions.items() if its != alike)
        one = next(rank for rank, its in functions.items() if its == alike)
        if waits(stacks[one]):
            return [rank for rank in others if rank in set(busy)] or others
        # The majority waits in no collective that shows: on GPUs the kernels do. Those that do wait, wait for it.
        return [rank for rank in others if rank in set(busy)] if len(busy) > count else []
    few = len(busy) < len(functions) - len(busy) or (ranks == 2 and len(functions) == 2 and len(busy) == 1)
    return busy if few else []


def suspects_of(hang: Mapping[str, Any]) -> list[int]:
    """Return the suspects of a hang as an attempt's record has it."""
    return suspects({int(rank): frames for rank, frames in hang["stacks"].items()}, hang["without_stack"])


def told(hang: Mapping[str, Any], what: str) -> str:
    """Return a hang (of an attempt's record) in a sentence; ``what`` did not come."""
    head = f"{what} for {hang['silent_seconds']:.0f} s (limit {hang['limit_seconds']:.0f} s), phase {hang['phase']}"
    stacks = {int(rank): list(frames) for rank, frames in hang["stacks"].items()}
    silent = {int(rank) for rank in hang["without_stack"]}
    groups: dict[str, list[int]] = {}
    for rank in sorted({*stacks, *silent}):
        groups.setdefault(_where(stacks.get(rank, ()), rank in silent), []).append(rank)
    largest = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1]))
    parts = [f"{named(ranks)} {_verb(where, ranks)}" for where, ranks in largest[:_MOST_GROUPS]]
    if len(largest) > _MOST_GROUPS:
        parts.append(f"{sum(len(ranks) for _, ranks in largest[_MOST_GROUPS:])} ranks elsewhere")
    return f"{head}; {', '.join(parts)}" if parts else head


def named(ranks: Sequence[int]) -> str:
    """Return ``rank 3``, ``ranks 0-2,5``; of many the first."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    rest = f" and others ({len(ranks)} in all)" if len(words) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {','.join(words[:_MOST_NAMED])}{rest}"


def _where(frames: Sequence[str], mute: bool) -> str:
    if not frames:
        return "left no stack"
    at = f"{_function(frames[0])} ({frames[0].rpartition(' ')[0]})"
    if mute:
        return f"answered only when continued, in {at}"
    return f"waits in {at}" if waits(frames) else f"is in {at}"


def _verb(where: str, ranks: Sequence[int]) -> str:
    """Put ``waits in`` and ``is in`` into the plural where several do."""
    if len(ranks) > 1:
        for one, many in (("waits in", "wait in"), ("is in", "are in")):
            where = many + where[len(one) :] if where.startswith(one) else where
    return where


def _function(frame: str) -> str:
    return frame.rpartition(" ")[2]
