"""From all answers about one job to its state. Pure. A failed question never makes a failed job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from seatrial.slurm.state_needs import needs_action
from seatrial.slurm.state_records import (
    ENDS,
    MAY_RETURN,
    UNKNOWN,
    WAITING,
    Attempt,
    Entry,
    Heard,
    JobRef,
    JobState,
    Own,
    Record,
)  # fmt: skip
from seatrial.slurm.table import from_iso, iso

# How far apart our submission time and Slurm's may lie for the same submission, and how much older than it a record
# with our name may be (clocks and time zones that are set wrongly).
_SAME_SUBMISSION_SECONDS = 120.0
_CLOCK_SECONDS = 86_400.0
_FRESH_SECONDS = 120.0

_Seen = TypeVar("_Seen", Entry, Record)


def ours(ref: JobRef, seen: Sequence[_Seen]) -> tuple[_Seen, ...]:
    """Return those of ``seen`` (all with our job's number) that are our job: numbers are used again.

    Ours are those with the run's name, and those of our user submitted when we submitted, should somebody have renamed
    the job. Neither may be another user's, or older than our submission.
    """
    submitted = None if ref.submitted is None else from_iso(ref.submitted)

    def is_ours(one: _Seen, names: set[str]) -> bool:
        if ref.user and (one.user or one.uid) and ref.user not in (one.user, one.uid):
            return False
        if one.submitted is not None and submitted is not None and one.submitted < submitted - _CLOCK_SECONDS:
            return False
        return one.name in names or bool(ref.user and _near(one.submitted, submitted))

    names = {ref.run_id} | {one.name for one in seen if is_ours(one, {ref.run_id})}
    return tuple(one for one in seen if is_ours(one, names))


def merge(ref: JobRef, queue: Heard, accounting: Heard) -> JobState:
    """Return what Slurm knows of ``ref``. ``queue``: what the controller answered, by squeue or scontrol."""
    job = ref.job_id or ""
    records = ours(ref, (accounting.records or {}).get(job, ()))
    entries = ours(ref, (queue.entries or {}).get(job, ()))
    notes = tuple(heard.words for heard in (queue, accounting) if not heard.answered and heard.words)
    history = tuple(_attempt(record) for record in records)
    if entries:
        # One that has not ended speaks for the job, should a number ever show twice.
        entry = next((one for one in entries if one.state not in ENDS), entries[0])
        return _from_entry(entry, records, history, notes)
    if records:
        return _from_record(records, history, notes, queue.answered)
    return JobState(UNKNOWN, False, "", "nobody", ref.job_id, notes=notes)


def with_own(ref: JobRef, state: JobState, own: Own, now: float) -> JobState:
    """Return ``state``, or where Slurm does not know, what the run folder says (``own``); at last UNKNOWN, and why."""
    if own.state is not None:
        return JobState(
            own.state, True, own.words, "run folder", ref.job_id, restarts=state.restarts, nodes=state.nodes,
            started=own.started or state.started, ended=own.ended, exit_code=own.exit_code, history=state.history,
            notes=state.notes,
        )  # fmt: skip
    why = [state.reason] if state.reason else []
    if ref.job_id is None:
        why.append("no job of it is on record")
    elif not why and not state.notes:
        why.append(_silence(ref, now))
    return JobState(
        UNKNOWN, False, "; ".join([*why, *state.notes, own.words]), "nobody", ref.job_id, nodes=state.nodes,
        restarts=state.restarts, started=state.started or own.started, history=state.history, notes=state.notes,
    )  # fmt: skip


def _silence(ref: JobRef, now: float) -> str:
    """Return what it means that Slurm answered and does not have the job."""
    submitted = None if ref.submitted is None else from_iso(ref.submitted)
    if submitted is not None and now - submitted < _FRESH_SECONDS:
        return f"submitted {max(0.0, now - submitted):.0f} s ago, and not listed yet"
    return f"Slurm has no job {ref.job_id} of this run (any more)"


def _from_entry(
    entry: Entry, records: Sequence[Record], history: tuple[Attempt, ...], notes: tuple[str, ...]
) -> JobState:
    final = entry.state in ENDS
    newest = records[-1] if records else None
    same = newest if newest is not None and final and newest.state == entry.state else None
    waits = entry.state in WAITING or entry.state == "CONFIGURING"
    restarts = entry.restarts if entry.restarts is not None else _restarts(records, entry)
    return JobState(
        entry.state, final, entry.reason, entry.source, entry.job_id,
        nodes=entry.nodes, restarts=restarts, started=None if waits else iso(entry.started),
        ended=iso(entry.ended) if final else None,
        exit_code=(same.exit_code if same else entry.exit_code) if final else None,
        derived_exit_code=same.derived if same else None,
        history=history, needs_action=needs_action(entry.state, entry.reason, _blame(records)), notes=notes,
    )  # fmt: skip


def _from_record(
    records: Sequence[Record], history: tuple[Attempt, ...], notes: tuple[str, ...], queue_answered: bool
) -> JobState:
    newest = records[-1]
    restarts = _restarts(records, None)
    ended = newest.state in ENDS
    if ended and (queue_answered or newest.state not in MAY_RETURN):
        return JobState(
            newest.state, True, newest.reason, "sacct", newest.job_id, nodes=newest.nodes, restarts=restarts,
            started=iso(newest.started), ended=iso(newest.ended), exit_code=newest.exit_code,
            derived_exit_code=newest.derived or None, history=history, notes=notes,
        )  # fmt: skip
    if queue_answered:
        # The controller no longer has it, accounting has no end of it: a lagging or lost message, so nobody knows.
        reason = f"accounting says {newest.state}, but the queue no longer has the job"
        return JobState(
            UNKNOWN, False, reason, "nobody", newest.job_id, nodes=newest.nodes, restarts=restarts,
            started=iso(newest.started), history=history, notes=notes,
        )  # fmt: skip
    reason = (
        "it may be back in the queue, which did not answer" if ended or newest.state == "REQUEUED" else newest.reason
    )
    return JobState(
        newest.state, False, reason, "sacct", newest.job_id, nodes=newest.nodes, restarts=restarts,
        started=iso(newest.started), history=history, notes=notes,
        needs_action=needs_action(newest.state, newest.reason, _blame(records)),
    )  # fmt: skip


def _restarts(records: Sequence[Record], entry: Entry | None) -> int | None:
    """Return how often the job was started again: Slurm's count where it has one, else one less than its records.

    The attempt that ``entry`` shows may not have reached accounting yet; then it is one more.
    """
    attempts = [record for record in records if record.state != "RESIZING"]
    if not attempts:
        return None
    counted = [record.restarts for record in attempts if record.restarts is not None]
    restarts = max(counted) if counted else len(attempts) - 1
    open_now = entry is not None and entry.state not in ENDS and entry.state not in ("COMPLETING", "STAGE_OUT")
    closed = attempts[-1].state in ENDS or attempts[-1].state == "REQUEUED"
    return restarts + 1 if open_now and closed else restarts


def _blame(records: Sequence[Record]) -> str | None:
    """Return the node that failed last, or where the last attempt was; sacct's list where no log ever appeared."""
    for record in reversed(records):
        if record.failed_node or record.nodes:
            return record.failed_node or record.nodes
    return None


def _attempt(record: Record) -> Attempt:
    return Attempt(
        record.state, iso(record.started), iso(record.ended), record.nodes, record.exit_code, record.restarts,
        record.failed_node,
    )  # fmt: skip


def _near(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) <= _SAME_SUBMISSION_SECONDS
