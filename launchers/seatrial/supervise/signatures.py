"""Failure signatures in logs: which rows of the table (spec/failures.yaml, in spec.json) a log's lines match."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from seatrial.supervise.classes import MEANINGS
from seatrial.supervise.exits import last_lines

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.", re.DOTALL)


@dataclass(frozen=True)
class Hit:
    """A line that matched. ``row``: the place of its row in the table; the lowest decides. ``weak``: no cause."""

    name: str
    line: str
    weak: bool = False
    row: int = 0


def scan(lines: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[Hit]:
    """Return the lines that match a row, in their order, each with the first row that matches it.

    A row that cannot be used (an older table, a newer Python's pattern) is passed over: the table is checked where it
    is written, and a failure must be judged by what is left.
    """
    text = "\n".join(lines)  # hundreds of logs are looked through at once: plain words are found much faster in one go
    found = [use for use in _usable(rows) if _may_match(use[2].pattern, text)]
    if not found:
        return []
    hits = []
    for line in lines:
        for number, row, pattern in found:
            if pattern.search(line):
                hits.append(Hit(row["class"], line, row.get("weak") is True, number))
                break
    return hits


def tail(path: Path) -> list[str]:
    """Return what the last 64 KiB of a log hold, by lines; none where it cannot be read."""
    return last_lines(path, 1 << 16)


def best(hits: Sequence[Hit], *, weak: bool = False) -> Optional[Hit]:
    """Return the strong hit (``weak``: the weak one) whose row stands first; of several, the last in the log."""
    return min((hit for hit in reversed(hits) if hit.weak is weak), key=lambda hit: hit.row, default=None)


def _usable(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any], re.Pattern[str]]]:
    usable = []
    for number, row in enumerate(rows):
        pattern = _compiled(row.get("pattern")) if isinstance(row, Mapping) and row.get("class") in MEANINGS else None
        if pattern is not None:
            usable.append((number, row, pattern))
    return usable


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: Any) -> Optional[re.Pattern[str]]:
    try:
        return re.compile(pattern) if isinstance(pattern, str) else None
    except (re.error, RecursionError, OverflowError):
        return None


def _may_match(pattern: str, text: str) -> bool:
    words = literals(pattern)
    return not words or any(word in text for word in words)


@functools.lru_cache(maxsize=1024)
def literals(pattern: str) -> tuple[str, ...]:
    """Return plain texts one of which every match of ``pattern`` holds; none where there is no telling."""
    if re.search(r"\(\?[a-zA-Z-]", pattern):  # flags: case may not matter, spaces may not count
        return ()
    runs: list[list[str]] = [[""]]  # for each alternative, its runs of plain signs
    depth = 0
    for token in _TOKEN.findall(pattern):
        plain = token[1:] if token[0] == "\\" and not token[1].isalnum() else token
        if token == "|" and depth == 0:
            runs.append([""])
        elif depth or len(plain) > 1 or token in set("()?*+.^$|"):
            depth += {"(": 1, ")": -1}.get(token, 0)
            if token in ("?", "*") or token[0] == "{":
                runs[-1][-1] = runs[-1][-1][:-1]  # the sign before it may be missing
            runs[-1].append("")
        else:
            runs[-1][-1] += plain
    longest = tuple(max(alternative, key=len) for alternative in runs)
    return longest if all(longest) else ()
