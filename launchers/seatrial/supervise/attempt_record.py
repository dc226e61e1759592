"""The record of an attempt: what it came to, its class, and where its time went."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from seatrial.judge.goodput import attempt_shares
from seatrial.run import checkpoint, records
from seatrial.run.layout import Attempt
from seatrial.supervise import drill
from seatrial.supervise.classify import Classified, Evidence, classify
from seatrial.supervise.exits import RankEnd, in_order, read_exit_record
from seatrial.supervise.follow import Seen
from seatrial.supervise.history import History
from seatrial.supervise.outcome import Outcome, decide
from seatrial.supervise.resume import Start
from seatrial.supervise.signatures import tail
from seatrial.supervise.slot import Longest
from seatrial.supervise.stacks import suspects_of

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

_MOST_TAILS = 512  # ends of logs that are looked through: all of a large run's would take hundreds of MB


@dataclass(frozen=True)
class Facts:
    """What was seen of an attempt that has ended. Times are seconds since 1970. ``lost``: of an attempt whose
    supervisor left no record, what Slurm said of it later; None: it is this supervisor's own. ``job``: then, that
    attempt's. ``hang``: what the ranks were ended for, if it was one, with their stacks (docs/hangs.md)."""

    attempt: Attempt
    start: Start
    why: str
    history: History
    nodes: Sequence[str]
    began: float
    ended: float
    ends: Sequence[RankEnd]
    logs: Sequence[Path]
    seen: Seen
    stop: Optional[str]
    interruption: Optional[Outcome]
    lost: Optional[Mapping[str, Any]] = None
    hang: Optional[Mapping[str, Any]] = None
    job: Optional[Mapping[str, Any]] = None

    def node_of(self, rank: int) -> Optional[str]:
        """Return the node of a rank: ranks fill one node after the other."""
        return self.nodes[rank * len(self.nodes) // len(self.ends)] if self.nodes and self.ends else None


@dataclass(frozen=True)
class Finished:
    """An attempt with its record written."""

    attempt: Attempt
    outcome: Outcome
    record: Mapping[str, Any]


def finish(job: Job, facts: Facts) -> Finished:
    """Decide what the attempt came to and write record.json; a disk that takes no document may still take the event."""
    # A rank's record may have come after the look that saw its end (a slow shared file system).
    ends = [replace(e, record=e.record or read_exit_record(facts.attempt.exit_record(e.rank))) for e in facts.ends]
    facts = replace(facts, ends=ends)
    target, seen = job.target, facts.seen
    state = checkpoint.check(checkpoint.checkpoint_folder(job.folder.checkpoints, target.step))
    outcome = decide(
        ends, seen, target, state, stop=facts.stop, interruption=facts.interruption,
        done_before=facts.start.step if facts.start.evaluate_only else None,
        evaluated_before=facts.history.evaluations,
    )  # fmt: skip
    found = drill.classified(job.spec, facts.attempt, facts.nodes, classify(_evidence(job, facts, outcome)))
    outcome = _of_the_first(outcome, ends, found)
    record = _record(job, facts, outcome, found)
    if facts.attempt.record.is_file():
        # Slurm took this run from here: the supervisor that has it now has closed the attempt already.
        return Finished(facts.attempt, outcome, record)
    write(job, facts.attempt, record)
    _tell(job, facts, outcome, found)
    return Finished(facts.attempt, outcome, record)


def write(job: Job, attempt: Attempt, record: Mapping[str, Any]) -> None:
    """Write record.json, or put it into the events where the disk takes no document."""
    try:
        records.write_json(attempt.record, record)
    except OSError as error:
        job.journal.say(f"cannot write {attempt.record}: {error}")
        job.journal.event("attempt_record", attempt=attempt.number, record=dict(record))


def _evidence(job: Job, facts: Facts, outcome: Outcome) -> Evidence:
    bad = [end.rank for end in in_order(facts.ends) if end.bad][:_MOST_TAILS]
    ranks = {0, len(facts.ends) - 1, *bad, *(suspects_of(facts.hang)[:1] if facts.hang else ())}
    slurm = _slurm(job) if facts.lost is None else facts.lost
    end = slurm.get("end_time")
    return Evidence(
        ends=facts.ends,
        nodes_of_ranks={rank: node for rank in range(len(facts.ends)) if (node := facts.node_of(rank))},
        tails={rank: tail(facts.logs[rank]) for rank in sorted(ranks)},
        srun_lines=tail(facts.attempt.path / "srun.log"),
        stop=facts.stop,
        slurm=slurm,
        first_step=facts.seen.first_step,
        last_step=facts.seen.last_step,
        start_step=facts.start.step,
        outcome=outcome,
        seconds_left=None if end is None else end - facts.ended,
        signal_lead=job.signal_lead,
        rows=job.spec.get("failures") or (),
        hang=facts.hang,
    )


def _of_the_first(outcome: Outcome, ends: Sequence[RankEnd], found: Classified) -> Outcome:
    """Return the outcome in the words of the rank that the logs show to have failed first."""
    first = next((end for end in ends if end.rank == found.rank and end.bad), None)
    if outcome.rank is None or first is None or first.rank == outcome.rank:
        return outcome
    return Outcome(
        outcome.outcome, f"rank {first.rank} {first.describe()}", first.code or outcome.exit_code, first.rank
    )


def _slurm(job: Job) -> dict[str, Any]:
    """Return what Slurm has said of this job by now: in the batch log, and to the last question that it answered."""
    watch = job.watch
    if watch is None:
        return {}
    said = {"state": job.ended_by(), "end_time": watch.end_time}
    return said if watch.facts is None else {**said, "preempt_time": watch.facts.preempt_time}


def _record(job: Job, facts: Facts, outcome: Outcome, found: Classified) -> dict[str, Any]:
    seen, start, watch = facts.seen, facts.start, job.watch
    seconds, counts = attempt_shares(
        facts.began, facts.ended, seen.steps, seen.saves, seen.evaluated, facts.history.trained
    )  # fmt: skip
    startup = None if seen.stepped[0] is None else seen.stepped[0] - facts.began
    longest = Longest(seen.longest_step, seen.longest_evaluation, seen.longest_save, startup)
    return {
        "schema": records.SCHEMA, "attempt": facts.attempt.number, "why": facts.why,
        "job": facts.job or (watch and {
            "id": watch.job, "restart": watch.restart, "host": os.environ.get("SLURMD_NODENAME"),
        }),
        "resume_step": start.step, "checkpoint_why": start.why, "passed_over": list(start.passed_over),
        "evaluate_only": start.evaluate_only, "nodes": list(facts.nodes), "started": records.iso(facts.began),
        "ended": records.iso(facts.ended), "first_step": seen.first_step, "last_step": seen.last_step,
        "saved_steps": seen.saved_steps, "stop": facts.stop, "saved_on_signal": saved_on_signal(facts.stop, seen),
        "ranks": [end.to_json() for end in facts.ends], "first_failed_rank": found.rank, "failed_node": found.node,
        "last_lines": list(found.lines), "outcome": outcome.outcome, "reason": outcome.reason,
        "exit_code": outcome.exit_code, "class": found.name, "class_why": found.why, "how": how(facts.ends, found),
        "failed_step": found.step, "newest_checkpoint": newest_whole(job.folder.checkpoints),
        "longest": longest.to_json(), "seconds": seconds.to_json(), "steps": counts.to_json(), "hang": facts.hang,
        "decision": None,
    }  # fmt: skip


def _tell(job: Job, facts: Facts, outcome: Outcome, found: Classified) -> None:
    job.journal.event(
        "attempt_ended", attempt=facts.attempt.number, outcome=outcome.outcome, reason=outcome.reason,
        exit_code=outcome.exit_code, **{"class": found.name}, class_why=found.why,
        first_step=facts.seen.first_step, last_step=facts.seen.last_step,
    )  # fmt: skip
    job.journal.say(f"attempt {facts.attempt.number} {outcome.outcome}: {outcome.reason}")
    job.journal.say(f"class {found.name}: {found.why}")
    where = f"rank {found.rank}" + (f" on {found.node}" if found.node else "")
    for line in found.lines:
        job.journal.say(f"  {where}: {line}")


def saved_on_signal(stop: Optional[str], seen: Seen) -> Optional[bool]:
    """Whether a run that was asked to end lost no step by it; None where nobody asked or there was no step to lose."""
    if stop is None or seen.last_step is None:
        return None
    return seen.last_step in seen.saved_steps


def how(ends: Sequence[RankEnd], found: Classified) -> str:
    """Return what failed in words that are equal for equal failures: no rank, no address, no number of bytes."""
    end = next((one for one in ends if one.rank == found.rank), None)
    if end is None or end.killed:
        return found.name
    record = end.record or {}
    return f"{found.name}: {record.get('exception') or end.describe().partition(',')[0].partition(':')[0]}"


def newest_whole(folder: Path) -> Optional[int]:
    """Return the step of the newest whole checkpoint."""
    paths = reversed(checkpoint.list_checkpoints(folder))
    return next((state.step for path in paths if (state := checkpoint.check(path)).whole), None)
