"""Slurm's printed tables as rows: a separator that no name holds, free text last, torn lines dropped. Pure."""

from __future__ import annotations

import calendar
import re
import time

# ASCII's own unit separator: unlike `|` it occurs in no name that anybody types.
SEPARATOR = "\x1f"
_EPOCH = re.compile(r"\d{9,11}")
_DURATION = re.compile(r"(?:(?P<days>\d+)-(?=\d+:\d+:))?(?:(?P<hours>\d+):)?(?P<minutes>\d+):\d+")


def rows(text: str, columns: int) -> list[list[str]]:
    """Return the rows of ``columns`` cells each. The last cell may hold separators.

    Dropped are lines with fewer cells (headers, messages, the tail of a name with a line break) and a last line without
    its line break, which is a torn one.
    """
    found = []
    for line in text.split("\n")[:-1]:
        cells = line.split(SEPARATOR, columns - 1)
        if len(cells) == columns:
            found.append([cell.strip() for cell in cells])
    return found


def job_rows(text: str, columns: int) -> list[list[str]]:
    """Return the rows that begin with a whole job number."""
    return [row for row in rows(text, columns) if row[0].isascii() and row[0].isdigit()]


def seconds_since_1970(text: str) -> float | None:
    """Return a time that Slurm printed (seconds, or ISO 8601 in local time); None for "Unknown", "N/A" and the like."""
    if _EPOCH.fullmatch(text):
        return float(text)
    try:
        parsed = time.strptime(text, "%Y-%m-%dT%H:%M:%S")
        return time.mktime(parsed)
    except (ValueError, OverflowError):
        return None


def iso(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC, as our own records write it; None stays None."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds))


def from_iso(text: str) -> float | None:
    """Return the seconds since 1970 of a time as ``iso`` and our records write it (UTC); None for anything else."""
    try:
        return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def minutes(text: str) -> int | None:
    """Return a limit that Slurm printed as ``[days-]hours:minutes:seconds`` or ``minutes:seconds``, in whole minutes.

    None for "UNLIMITED", "infinite", "NONE", "Partition_Limit" and the like.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    return int(match["days"] or 0) * 1440 + int(match["hours"] or 0) * 60 + int(match["minutes"])


def number(text: str) -> int | None:
    """Return a plain number, or None ("INFINITE", "", "N/A")."""
    return int(text) if text.isascii() and text.isdigit() else None


def listed(text: str) -> tuple[str, ...] | None:
    """Return a comma-separated list, or None where Slurm says ALL or nothing at all."""
    return None if text in ("", "ALL", "(null)", "N/A") else tuple(text.split(","))


def pairs(line: str) -> dict[str, str]:
    """Return the ``Key=value`` pairs of a ``scontrol --oneliner`` line; values reach up to the next ``Key=``."""
    found: dict[str, str] = {}
    for match in re.finditer(r"(?:^|(?<=\s))([A-Za-z][\w:/]*)=(.*?)(?=\s+[A-Za-z][\w:/]*=|$)", line):
        found.setdefault(match[1], match[2].strip())
    return found
