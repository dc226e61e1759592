"""Attempts that ended without a record, because their supervisor was killed or its host was lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from seatrial.run import records
from seatrial.run.layout import Attempt, RunFolder
from seatrial.supervise.exits import RankEnd, read_exit_record
from seatrial.supervise.follow import STEP, LogFollower
from seatrial.supervise.journal import Journal
from seatrial.supervise.outcome import FAILED


def close_lost_attempts(folder: RunFolder, journal: Journal) -> None:
    """Give every attempt without a record one, and put on record what its logs say beyond what was.

    Call it only when no other supervisor is at work in the folder.
    """
    for attempt in folder.attempts():
        if not attempt.record.is_file():
            _close(folder, attempt, journal)


def _close(folder: RunFolder, attempt: Attempt, journal: Journal) -> None:
    logs = sorted(attempt.path.glob("rank-*.log"))
    follower = LogFollower(logs, attempt.number, journal, recorded=_recorded(folder, attempt.number))
    follower.close()
    reason = "its supervisor ended without a record (killed, or the host was lost)"
    ends = [RankEnd(r, None, record=read_exit_record(attempt.exit_record(r))) for r in range(len(logs))]
    record: dict[str, Any] = {
        "schema": records.SCHEMA, "attempt": attempt.number, "why": "unknown", "nodes": [], "started": None,
        "ended": None, "first_step": follower.seen.first_step, "last_step": follower.seen.last_step,
        "saved_steps": follower.seen.saved_steps, "stop": None, "ranks": [
            {"rank": end.rank, "code": (end.record or {}).get("code"), "record": end.record is not None} for end in ends
        ],
        "first_failed_rank": None, "last_lines": [], "outcome": FAILED, "reason": reason, "exit_code": None,
    }  # fmt: skip
    records.write_json(attempt.record, record)
    journal.event("attempt_ended", attempt=attempt.number, outcome=FAILED, reason=reason, exit_code=None)
    journal.say(f"attempt {attempt.number} {FAILED}: {reason}")


def _recorded(folder: RunFolder, attempt: int) -> Counter[str]:
    """Count what is on record of an attempt, by event name and STEP."""
    counts: Counter[str] = Counter()
    counts[STEP] = sum(1 for step in records.read_lines(folder.metrics) if _of(step, attempt))
    counts.update(str(event.get("event")) for event in records.read_lines(folder.events) if _of(event, attempt))
    return counts


def _of(data: Any, attempt: int) -> bool:
    return isinstance(data, dict) and data.get("attempt") == attempt
