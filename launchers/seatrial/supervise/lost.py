"""Attempts that ended without a record, because their supervisor was killed or its host was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from seatrial.judge import clock
from seatrial.run import records
from seatrial.run.layout import Attempt, RunFolder
from seatrial.supervise import exit_codes, termination
from seatrial.supervise.attempt_record import Facts, finish, write
from seatrial.supervise.exits import RankEnd, read_exit_record
from seatrial.supervise.follow import STEP, LogFollower
from seatrial.supervise.history import read_history
from seatrial.supervise.outcome import FAILED, Outcome
from seatrial.supervise.resume import Start

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

_REASON = "its supervisor ended without a record (killed, or the host was lost)"


def close_lost_attempts(job: Job) -> None:
    """Give every attempt without a record one, and put on record what its logs say beyond what was.

    Call it only when no other supervisor is at work in the folder.
    """
    for attempt in job.folder.attempts():
        if not attempt.record.is_file():
            kept = _kept(job.folder, attempt.number)
            if kept is not None:  # the disk took no document then
                write(job, attempt, kept)
            else:
                _close(job, attempt)


def _kept(folder: RunFolder, number: int) -> Any:
    """Return the record of an attempt that was put into the events instead, or None."""
    kept = [event for event in _events(folder, number) if event.get("event") == "attempt_record"]
    return kept[-1].get("record") if kept else None


def _close(job: Job, attempt: Attempt) -> None:
    events = _events(job.folder, attempt.number)
    logs = [attempt.rank_log(rank) for rank in range(_ranks(job, attempt))]
    follower = LogFollower(logs, attempt.number, job.journal, recorded=_recorded(job.folder, attempt.number))
    follower.close()
    _times(follower, events)
    started, ranks = _last(events, "attempt_started"), _last(events, "ranks_started")
    asked = _last(events, "stop_requested").get("by")
    its_job: Mapping[str, Any] = started["job"] if isinstance(started.get("job"), dict) else {}
    slurm = _slurm(job, its_job)
    host = _lost_host(records.read_objects(job.folder.events), its_job, str(started.get("time")))
    if host is not None:
        slurm = {**slurm, "down_nodes": [host]}
    began = clock.of_record(started.get("time"))
    seen_last = [time for event in events if (time := clock.of_record(event.get("time"))) is not None]
    ended = max([*seen_last, *(end for _, _, end in follower.seen.saves), *_stepped(job.folder, attempt.number)],
                default=began or 0.0)  # fmt: skip
    ends = [RankEnd(rank, None, record=read_exit_record(attempt.exit_record(rank))) for rank in range(len(logs))]
    finish(job, Facts(
        attempt, Start(started.get("resume_step"), str(started.get("checkpoint_why") or "")),
        str(started.get("why") or "unknown"), read_history(job.folder), ranks.get("nodes") or [],
        ended if began is None else began, ended, ends, logs, follower.seen, asked,
        Outcome(FAILED, _REASON, _code(ends)), lost=slurm,
        job={"host": None, **its_job} if its_job else None,
    ))  # fmt: skip


def _lost_host(events: Sequence[Mapping[str, Any]], of: Mapping[str, Any], since: str) -> Optional[str]:
    """Return the batch host that this start of the job has lost: whoever saw that put the job back into the queue.

    Slurm says then only that it was requeued.
    """
    for event in reversed(events):
        told = event.get("event") in ("batch_host_lost", "tended") and event.get("host")
        if told and event.get("job_id") == of.get("id") and str(event.get("time")) >= since:
            return str(event["host"])
    return None


def _ranks(job: Job, attempt: Attempt) -> int:
    """Return how many ranks the attempt had: by its plan, as a person may have changed the profile since."""
    planned = (records.read_object(attempt.plan) or {}).get("world_size")
    return planned if isinstance(planned, int) else int(job.spec["world_size"])


def _code(ends: Sequence[RankEnd]) -> int:
    codes = [end.record.get("code") for end in ends if end.record]
    return next((code for code in codes if isinstance(code, int) and code), exit_codes.NOT_DONE)


def _slurm(job: Job, of: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is known of how Slurm ended that start of the job: from its batch log, else from accounting."""
    if not of.get("id"):
        return {}
    number, restart = str(of["id"]), int(of.get("restart") or 0)
    known = termination.accounted(number, restart)
    words = termination.all_said_in(termination.batch_log(job.folder.path, number), number)
    # A start whose host was lost leaves no line; then nobody can say which line is whose.
    each = job.watch is not None and job.watch.job == number and len(words) == job.watch.restart
    return {"state": words[restart]} if not known and each and restart < len(words) else known


def _times(follower: LogFollower, events: Any) -> None:
    """A log that is read afterwards says nothing of when: what the events say stands, the rest is not known."""
    saved = {event.get("step"): time for event in events if event.get("event") == "checkpoint_saved"
             and (time := clock.of_record(event.get("time"))) is not None}  # fmt: skip
    follower.seen.saves = [(step, None, saved[step]) for step in follower.seen.saved_steps if step in saved]
    follower.seen.evaluated = []
    follower.seen.stepped = (None, None)
    follower.seen.longest_evaluation = None


def _stepped(folder: RunFolder, number: int) -> list[float]:
    """Return when the last step of an attempt was printed."""
    steps = [step for step in records.read_lines(folder.metrics) if _of(step, number)]
    time = clock.of_local(steps[-1].get("time")) if steps else None
    return [] if time is None else [time]


def _events(folder: RunFolder, number: int) -> list[dict[str, Any]]:
    return [event for event in records.read_lines(folder.events) if _of(event, number)]


def _last(events: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((event for event in reversed(events) if event.get("event") == name), {})


def _recorded(folder: RunFolder, attempt: int) -> Counter[str]:
    """Count what is on record of an attempt, by event name and STEP."""
    counts: Counter[str] = Counter()
    counts[STEP] = sum(1 for step in records.read_lines(folder.metrics) if _of(step, attempt))
    counts.update(str(event.get("event")) for event in _events(folder, attempt))
    return counts


def _of(data: Any, attempt: int) -> bool:
    return isinstance(data, dict) and data.get("attempt") == attempt
