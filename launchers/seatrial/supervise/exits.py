"""How each rank ended: the status that the supervisor saw, and the record that the rank itself left."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from seatrial.run import records
from seatrial.supervise.exit_codes import of_wait_status

_TAIL_BYTES = 1 << 16
_LONGEST = 500
_FEW_LOOKS = 3


@dataclass(frozen=True)
class RankEnd:
    """One rank's end.

    ``status``: subprocess's return code (negative: ended by that signal); None: it was never started. ``look``: the
    look at which the supervisor saw it. ``killed``: by the supervisor, so its end says nothing of itself. ``record``:
    what it wrote itself, None where it left nothing that can be read.
    """

    rank: int
    status: Optional[int]
    look: int = 0
    killed: bool = False
    record: Optional[Mapping[str, Any]] = None

    @property
    def code(self) -> Optional[int]:
        """The process's exit code where that is not 0, else the one it recorded."""
        if self.status:
            return of_wait_status(self.status)
        recorded = self.record.get("code") if self.record else None
        return recorded if self.status == 0 and isinstance(recorded, int) else self.status

    @property
    def bad(self) -> bool:
        """Whether it failed, and by itself."""
        return self.status is not None and not self.killed and self.code != 0

    def describe(self) -> str:
        """Say how it ended."""
        if self.status is None:
            return "was never started"
        how = f"signal {signal_name(-self.status)}" if self.status < 0 else f"exit code {self.code}"
        if self.record is None:
            return f"ended with {how}, without an exit record"
        said = (self.record.get("exception"), str(self.record.get("message") or "").strip()[:_LONGEST])
        return ": ".join([f"ended with {how}", *(str(part) for part in said if part)])

    def to_json(self) -> dict[str, Any]:
        """Return its entry in record.json: a good end in short, any other with all that is known."""
        entry: dict[str, Any] = {"rank": self.rank, "code": self.code, "record": self.record is not None}
        if self.killed or self.code != 0 or self.record is None:
            entry.update(wait_status=self.status, killed_by_supervisor=self.killed, how=self.describe())
        return entry


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def read_exit_record(path: Path) -> Optional[Mapping[str, Any]]:
    """Return a rank's exit record; None where there is none, or none that can be read."""
    return records.read_object(path)


def first_bad(ends: Sequence[RankEnd], weights: Optional[Mapping[int, int]] = None) -> Optional[RankEnd]:
    """Return the rank that failed first; None where none failed.

    The others fail of its death, later. So: the one seen at an earlier look; at the same look the one without a record
    (it was killed outright, the others had time to raise and to write); else the one whose record is the oldest.
    ``weights``, by rank, is what their logs add: of those seen within a few looks of the first the lightest goes first.
    """
    bad = [end for end in ends if end.bad]
    if not bad or not weights:
        return min(bad, key=_order, default=None)
    last = min(end.look for end in bad) + _FEW_LOOKS
    return min((end for end in bad if end.look <= last), key=lambda end: (weights.get(end.rank, 0), *_order(end)))


def in_order(ends: Sequence[RankEnd]) -> list[RankEnd]:
    """Return the ends in the order in which they came, as far as that is known."""
    return sorted(ends, key=_order)


def _order(end: RankEnd) -> tuple[int, bool, str, int]:
    time = str(end.record.get("time") or "") if end.record else ""
    return end.look, end.record is not None, time, end.rank


def last_lines(path: Path, count: int = 15) -> list[str]:
    """Return the last lines of a log that are not empty; none where it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip()[:_LONGEST] for line in text.splitlines() if line.strip()][-count:]
