"""Times on record as seconds since 1970: our own in UTC, and Megatron's, which are local and say no zone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Optional

_FRACTION = re.compile(r"\.(\d+)")
_QUARTER = 900.0  # every zone is a whole number of quarter hours from UTC
_FARTHEST = 26 * 3600  # between two zones
_SLACK = 60.0  # hosts' clocks differ
_SAMPLES = 64


def of_record(text: Any) -> Optional[float]:
    """Return a time of our own records (ISO 8601, UTC where it names no zone), or None where it is none."""
    moment = _parsed(text)
    if moment is None:
        return None
    return _seconds(moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc))


def of_local(text: Any) -> Optional[float]:
    """Return a time that Megatron printed, read in this host's zone, or None where it is none."""
    moment = _parsed(text)
    return None if moment is None else _seconds(moment)


def printed(texts: Sequence[Optional[str]], began: float, ended: float) -> list[Optional[float]]:
    """Return the times that Megatron printed during one attempt; None where there is none, or none that can be.

    They are read in this host's zone: supervisor and ranks share it. Where most of them would then lie outside of the
    attempt, the ranks had another zone (a container's, or another host reads the records): all are moved by the least
    number of quarter hours that brings the most of them inside. The hour that a clock goes through twice is told
    apart by order.
    """
    found: list[Optional[float]] = []
    last = began
    for text in texts:
        moment = _parsed(text)
        first, second = (None, None) if moment is None else (_seconds(moment.replace(fold=f)) for f in (0, 1))
        time = second if first is not None and second is not None and first < last <= second else first
        found.append(time)
        last = last if time is None else time
    shift = _shift([time for time in found if time is not None], began, ended)
    return [None if time is None else time + shift for time in found]


def _shift(times: Sequence[float], began: float, ended: float) -> float:
    sample = times[:: max(1, len(times) // _SAMPLES)]
    least, most = began - _SLACK, ended + _SLACK
    best, inside = 0.0, sum(least <= time <= most for time in sample)
    for quarters in range(1, int(_FARTHEST / _QUARTER) + 1):
        if inside == len(sample):
            break
        for shift in (quarters * _QUARTER, -quarters * _QUARTER):
            count = sum(least <= time + shift <= most for time in sample)
            if count > inside:
                best, inside = shift, count
    return best


def _parsed(text: Any) -> Optional[datetime]:
    if not isinstance(text, str):
        return None
    # Python 3.9 reads three or six digits only.
    text = _FRACTION.sub(lambda digits: f".{digits.group(1)[:6]:0<6}", text, count=1)
    try:
        return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        return None


def _seconds(moment: datetime) -> Optional[float]:
    try:
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        return None
