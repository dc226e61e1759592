"""Follows rank logs while they grow: iteration lines become step records, the rest of interest become events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from seatrial.judge.records import EvaluationRecord, Evidence, ExitNotice, Record, SaveRecord, Start, StepRecord
from seatrial.supervise.growing import GrowingLog
from seatrial.supervise.journal import Journal

STEP = "step"
_MOST = 16 << 20  # bytes a look, of a log and of all quiet ones: one that floods must not keep the others unwatched
# Thousands of logs, of which few say anything: those are read at every look, the others in turn, each within so many.
_LIVELY = 16
_ROUND = 40
_AT_LEAST = 32  # quiet ones a look

_NO_LOSSES: dict[str, float] = {}


@dataclass
class Seen:
    """What the logs of an attempt have told so far. ``evaluations``: (step, "interval" | "validation" | "test").

    Times are this host's, in seconds since 1970, at the look that found them: ``stepped`` of the first and the last
    step, ``saves`` (step, began, finished), ``evaluated`` (step, which, finished). ``longest_step``: in seconds, the
    first one of the attempt left out. ``rank_term``: a rank has been asked to end by SIGTERM. ``progress`` counts all
    that shows the loop at work. ``saving_step``: of the save that began last. ``evaluating``: the final evaluation has
    begun. ``leaving``: the loop ends before its last step.
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
    saving_step: Optional[int] = None
    rank_term: bool = False
    progress: int = 0
    evaluating: bool = False
    leaving: bool = False
    steps: list[StepRecord] = field(default_factory=list)

    @property
    def longest_save(self) -> Optional[float]:
        """The longest save whose beginning was seen, too; in seconds."""
        return max((end - began for _, began, end in self.saves if began is not None), default=None)

    def step(self, record: StepRecord, now: float) -> None:
        """Take in a step; all of it is in metrics.jsonl, its times are needed at the end."""
        kept = StepRecord(record.step, record.of, record.attempt, record.time, step_time_ms=record.step_time_ms,
                          losses=_NO_LOSSES)  # fmt: skip
        self.steps.append(kept)
        self.progress += 1
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
        self.progress += 1
        self.evaluations.add((record.iteration, record.which))
        self.evaluated.append((record.iteration, record.which, now))

    def save(self, record: SaveRecord, now: float) -> None:
        """Take in the beginning or the end of a save."""
        self.progress += 1
        if record.phase != "finished":
            self.saving_since, self.saving_step = now, record.iteration
            return
        self.saved_steps.append(record.iteration)
        self.saves.append((record.iteration, self.saving_since, now))
        self.saving_since = None


class LogFollower:
    """Reads every rank's log of one attempt; ``poll`` takes what is new.

    The first and the last rank's, where Megatron prints, and those that had something to say lately are read at every
    look, the others in turn. So the work of a look stays small however many ranks there are. A shared file system
    tells a file's new size late to who only asks for it: so logs are opened.

    ``recorded`` counts, by event name and STEP, what an earlier follower of the same logs has put on record already:
    that much is read again and not recorded twice.
    """

    def __init__(
        self, logs: Sequence[Path], attempt: int, journal: Journal, recorded: Optional[Mapping[str, int]] = None
    ) -> None:
        self._logs = [GrowingLog(path, attempt) for path in logs]
        self._attempt, self._journal = attempt, journal
        self._recorded = Counter(recorded or {})
        self._ends = sorted({0, len(logs) - 1}) if logs else []
        self._lively: dict[int, None] = {}  # the one that spoke last comes last
        self._a_look = min(len(logs), max(_AT_LEAST, -(-len(logs) // _ROUND)))
        self._next = 0
        self.seen = Seen()

    def poll(self) -> None:
        """Write records and events for what the logs have gained."""
        for rank in (*self._ends, *self._lively):
            self._visit(rank, _MOST)
        left = _MOST
        for _ in range(self._a_look):
            if left <= 0:
                break
            rank, self._next = self._next, (self._next + 1) % len(self._logs)
            if rank not in self._ends and rank not in self._lively:
                left -= self._visit(rank, left)

    def _visit(self, rank: int, most: int) -> int:
        """Read on in a rank's log; return how many bytes it had."""
        log = self._logs[rank]
        before = log.offset
        found = log.read(most)
        for record in found:
            self._take(record)
        self.seen.rank_term = self.seen.rank_term or log.rank_term
        if log.evaluating:
            log.evaluating, self.seen.evaluating = False, True
            self.seen.progress += 1
        if found and rank not in self._ends:
            self._lively.pop(rank, None)
            self._lively[rank] = None
            if len(self._lively) > _LIVELY:
                del self._lively[next(iter(self._lively))]
        return log.offset - before

    def close(self) -> None:
        """Read the logs to their end, an unfinished last line too. Call it once, after the last rank has ended."""
        for log in self._logs:
            for record in log.rest():
                self._take(record)
            self.seen.rank_term = self.seen.rank_term or log.rank_term

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
            seen.leaving = seen.leaving or record.reason != "done"
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
