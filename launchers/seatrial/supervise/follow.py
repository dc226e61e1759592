"""Follows rank logs while they grow: iteration lines become step records, the rest of interest become events."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from seatrial.judge.parse import LogParser
from seatrial.judge.records import EvaluationRecord, Evidence, ExitNotice, Record, SaveRecord, Start, StepRecord
from seatrial.supervise.journal import Journal

STEP = "step"
_READ = 1 << 20
_MOST_READS = 16  # a rank that floods its log must not keep the others unwatched


@dataclass
class Seen:
    """What the logs of an attempt have told so far. ``evaluations``: (step, "interval" | "validation" | "test")."""

    first_step: Optional[int] = None
    last_step: Optional[int] = None
    evaluations: set[tuple[int, str]] = field(default_factory=set)
    saved_steps: list[int] = field(default_factory=list)


class LogFollower:
    """Reads every rank's log of one attempt; ``poll`` takes what is new.

    ``recorded`` counts, by event name and STEP, what an earlier follower of the same logs has put on record already:
    that much is read again and not recorded twice.
    """

    def __init__(
        self, logs: Sequence[Path], attempt: int, journal: Journal, recorded: Optional[Mapping[str, int]] = None
    ) -> None:
        self._logs = [_Log(path, attempt) for path in logs]
        self._attempt, self._journal = attempt, journal
        self._recorded = Counter(recorded or {})
        self.seen = Seen()

    def poll(self) -> None:
        """Write records and events for what the logs have gained."""
        for log in self._logs:
            for record in log.read():
                self._take(record)

    def close(self) -> None:
        """Read the logs to their end, an unfinished last line too. Call it once, after the last rank has ended."""
        for log in self._logs:
            for record in log.rest():
                self._take(record)

    def _take(self, record: Record) -> None:
        seen = self.seen
        if isinstance(record, StepRecord):
            seen.first_step = record.step if seen.first_step is None else seen.first_step
            seen.last_step = record.step
            if self._is_new(STEP):
                self._journal.step(record.to_json())
        elif isinstance(record, EvaluationRecord):
            seen.evaluations.add((record.iteration, record.which))
            self._event("evaluation", record, f"{record.which} loss at step {record.iteration}: {dict(record.losses)}")
        elif isinstance(record, SaveRecord) and record.phase == "finished":
            seen.saved_steps.append(record.iteration)
            self._event("checkpoint_saved", record, f"checkpoint {record.iteration} saved")
        elif isinstance(record, Evidence):
            self._event("evidence", record)
        elif isinstance(record, Start):
            self._event("loop_started", record)
        elif isinstance(record, ExitNotice):
            self._event("loop_ended", record)

    def _event(self, name: str, record: Record, line: str = "") -> None:
        if self._is_new(name):
            self._journal.event(name, **{**_details(record), "attempt": self._attempt})
            if line:
                self._journal.say(line)

    def _is_new(self, name: str) -> bool:
        known = self._recorded[name] > 0
        self._recorded[name] -= known
        return not known


def _details(record: Record) -> dict[str, Any]:
    data = record.to_json()
    if "iteration" in data:
        data["step"] = data["iteration"]
    return data


class _Log:
    """One growing log, read on from where it was left. What is no UTF-8 is replaced; a torn character waits."""

    def __init__(self, path: Path, attempt: int) -> None:
        self._path, self._parser = path, LogParser(attempt)
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> list[Record]:
        found: list[Record] = []
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                for _ in range(_MOST_READS):
                    data = stream.read(_READ)
                    if not data:
                        break
                    self._offset += len(data)
                    found += self._parser.feed(self._decoder.decode(data))
        except OSError:
            # Not there yet, or a shared file system's bad moment: the next look goes on from the same place.
            return found
        return found

    def rest(self) -> list[Record]:
        found: list[Record] = []
        before = -1
        while before != self._offset:
            before = self._offset
            found += self.read()
        return found + self._parser.feed(self._decoder.decode(b"", True)) + self._parser.close()
