"""Follows rank logs while they grow: iteration lines become step records, the rest of interest become events."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from seatrial.judge.parse import LogParser
from seatrial.judge.records import EvaluationRecord, Evidence, Record, SaveRecord, StepRecord
from seatrial.run import records
from seatrial.run.layout import RunFolder

_READ = 1 << 20
_TAIL = 1 << 14


class LogFollower:
    """Reads every rank's log of one attempt; ``poll`` takes what is new."""

    def __init__(self, folder: RunFolder, attempt: int, logs: Sequence[Path]) -> None:
        self._folder = folder
        self._logs = [_Log(path, attempt) for path in logs]
        self._attempt = attempt
        self.first_step: Optional[int] = None
        self.last_step: Optional[int] = None
        self.evaluated: set[str] = set()

    def poll(self) -> None:
        """Write records and events for what the logs have gained."""
        for log in self._logs:
            for record in log.read():
                self._take(record)

    def close(self) -> None:
        """Read the logs to their end, an unfinished last line too."""
        self.poll()
        for log in self._logs:
            for record in log.parser.close():
                self._take(record)

    def _take(self, record: Record) -> None:
        if isinstance(record, StepRecord):
            records.append_line(self._folder.metrics, record.to_json())
            self.first_step = record.step if self.first_step is None else self.first_step
            self.last_step = record.step
        elif isinstance(record, EvaluationRecord):
            self.evaluated.add(record.which)
            self._event("evaluation", record)
        elif isinstance(record, SaveRecord) and record.phase == "finished":
            self._event("checkpoint_saved", record)
        elif isinstance(record, Evidence):
            self._event("evidence", record)

    def _event(self, name: str, record: Record) -> None:
        details = {k: v for k, v in record.to_json().items() if k not in ("schema", "time", "event")}
        records.append_event(self._folder.events, name, **{**details, "attempt": self._attempt})


class _Log:
    def __init__(self, path: Path, attempt: int) -> None:
        self.path, self.parser = path, LogParser(attempt)
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> list[Record]:
        found: list[Record] = []
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                while True:
                    data = stream.read(_READ)
                    if not data:
                        return found
                    self._offset += len(data)
                    found += self.parser.feed(self._decoder.decode(data))
        except FileNotFoundError:
            return found


def last_lines(path: Path, count: int = 15) -> list[str]:
    """Return the last lines of a log, for a record."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _TAIL))
            return stream.read().decode("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []
