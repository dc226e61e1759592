"""Follows rank logs while they grow: iteration lines become step records, the rest of interest become events."""

from __future__ import annotations

import codecs
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from seatrial.judge.parse import LogParser
from seatrial.judge.records import EvaluationRecord, Evidence, ExitNotice, Record, SaveRecord, Start, StepRecord
from seatrial.supervise.journal import Journal

STEP = "step"
_READ = 1 << 20
_MOST_READS = 16  # a rank that floods its log must not keep the others unwatched


# What a rank prints when Slurm asks it to end: of a preemption with grace nobody else is told.
RANK_TERM = "[seatrial] SIGTERM received"


@dataclass
class Seen:
    """What the logs of an attempt have told so far. ``evaluations``: (step, "interval" | "validation" | "test").

    Times are this host's, in seconds since 1970, at the look that found them: ``stepped`` of the first and the last
    step, ``saves`` (step, began, finished), ``evaluated`` (step, which, finished). ``longest_step``: in seconds, the
    first one of the attempt left out. ``rank_term``: a rank has been asked to end by SIGTERM.
    """

    first_step: Optional[int] = None
    last_step: Optional[int] = None
    evaluations: set[tuple[int, str]] = field(default_factory=set)
    saved_steps: list[int] = field(default_factory=list)
    stepped: tuple[Optional[float], Optional[float]] = (None, None)
    saves: list[tuple[int, Optional[float], float]] = field(default_factory=list)
    evaluated: list[tuple[int, str, float]] = field(default_factory=list)
    longest_step: Optional[float] = None
    longest_evaluation: Optional[float] = None
    saving_since: Optional[float] = None
    rank_term: bool = False
    steps: list[StepRecord] = field(default_factory=list)

    @property
    def longest_save(self) -> Optional[float]:
        """The longest save whose beginning was seen, too; in seconds."""
        return max((end - began for _, began, end in self.saves if began is not None), default=None)

    def step(self, record: StepRecord, now: float) -> None:
        """Take in a step; its losses are in metrics.jsonl, its times are needed at the end."""
        self.steps.append(replace(record, losses={}))
        if self.first_step is None:
            self.first_step = record.step
        elif record.step_time_ms is not None and record.step_time_ms < float("inf"):
            self.longest_step = max(self.longest_step or 0.0, record.step_time_ms / 1000)
        self.last_step = record.step
        self.stepped = (self.stepped[0] or now, now)

    def evaluation(self, record: EvaluationRecord, now: float) -> None:
        """Take in an evaluation: it began when the step, or what was last after it, had ended."""
        before = [self.stepped[1], *(end for _, _, end in self.evaluated[-1:]), *(end for _, _, end in self.saves[-1:])]
        began = max((at for at in before if at is not None), default=now)
        self.longest_evaluation = max(self.longest_evaluation or 0.0, now - began)
        self.evaluations.add((record.iteration, record.which))
        self.evaluated.append((record.iteration, record.which, now))

    def save(self, record: SaveRecord, now: float) -> None:
        """Take in the beginning or the end of a save."""
        if record.phase != "finished":
            self.saving_since = now
            return
        self.saved_steps.append(record.iteration)
        self.saves.append((record.iteration, self.saving_since, now))
        self.saving_since = None


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
            self.seen.rank_term = self.seen.rank_term or log.rank_term

    def close(self) -> None:
        """Read the logs to their end, an unfinished last line too. Call it once, after the last rank has ended."""
        for log in self._logs:
            for record in log.rest():
                self._take(record)

    def _take(self, record: Record) -> None:
        seen, now = self.seen, time.time()
        if isinstance(record, StepRecord):
            seen.step(record, now)
            if self._is_new(STEP):
                self._journal.step(record.to_json())
        elif isinstance(record, EvaluationRecord):
            seen.evaluation(record, now)
            self._event("evaluation", record, f"{record.which} loss at step {record.iteration}: {dict(record.losses)}")
        elif isinstance(record, SaveRecord):
            seen.save(record, now)
            if record.phase == "finished":
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
        self._end, self.rank_term = "", False
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
                    text = self._decoder.decode(data)
                    self.rank_term = self.rank_term or RANK_TERM in self._end + text
                    self._end = text[-len(RANK_TERM) :]
                    found += self._parser.feed(text)
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
