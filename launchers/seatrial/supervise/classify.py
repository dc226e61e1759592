"""From what an attempt left to one class, the rank that failed first, its node and its last lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from seatrial.supervise import classes, exit_codes
from seatrial.supervise.evidence import Classified, Evidence
from seatrial.supervise.exits import RankEnd, first_bad
from seatrial.supervise.outcome import COMPLETED, STOPPED
from seatrial.supervise.signatures import Hit, best, scan
from seatrial.supervise.slot import SIGNAL_SLACK
from seatrial.supervise.stacks import suspects_of

__all__ = ["Classified", "Evidence", "classify"]

_LINES = 15
# How Slurm shows a kill for want of memory: as signal 125.
_OOM_CODE = "0:125"
_SIGKILL = -9
_CAUSE, _NOTHING, _CONSEQUENCE = 0, 1, 2
_OURS = {
    exit_codes.RESUME_MISMATCH: classes.RESUME_MISMATCH,
    exit_codes.SUPERVISOR_ERROR: classes.SUPERVISOR_ERROR,
}
_NODE = re.compile(r"Node failure on (\S+)")
_TASK = re.compile(r"^srun: error: (\S+): tasks? (\d+)\S*: Out Of Memory")


def classify(evidence: Evidence) -> Classified:
    """Return the class of an attempt that has ended.

    In this order: a class that a person forced; completion; who ended the job (a person, Slurm for another job, a
    node's failure); what the supervisor itself found; what the rank that failed first says; the time limit; what
    follows from another's end only. An answer that Slurm did not give is no evidence.
    """
    return _Case(evidence).classified()


class _Case:
    """The evidence, with what its logs say looked up once."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        # Where nobody saw a rank end (its supervisor was lost), its own record has to do.
        ends = [replace(end, status=0) if end.status is None and end.record else end for end in evidence.ends]
        self.hits = {rank: self._hits(evidence.log(rank)) for rank in evidence.tails}
        for end in ends:
            if end.bad and end.rank not in self.hits:
                self.hits[end.rank] = self._hits(evidence.log(end.rank))
        self.said = scan(evidence.slurm_lines, evidence.rows)
        self.bad = first_bad(ends, {end.rank: self._weight(end) for end in ends if end.bad})

    def classified(self) -> Classified:
        """Return the first answer that there is."""
        asked = self.forced() or self.completed() or self.ended_from_outside() or self.ours()
        return asked or self.cause() or self.time_limit() or self.consequence() or self.unknown()

    def forced(self) -> Optional[Classified]:
        name = self.evidence.forced
        return self.answer(name, "a person said so") if name in classes.MEANINGS else None

    def completed(self) -> Optional[Classified]:
        outcome = self.evidence.outcome
        if outcome.outcome != COMPLETED:
            return None
        return Classified(classes.COMPLETE, outcome.reason)

    def ended_from_outside(self) -> Optional[Classified]:
        """A person, another job, or a node that went down."""
        evidence, state, stop = self.evidence, self.evidence.slurm_word("state"), self.evidence.stop
        by_person = stop is not None and (stop in ("the stop file", "SIGINT") or stop.startswith("seatrial "))
        if by_person or (stop is not None and not evidence.slurm):
            return self.answer(classes.CANCELLED, f"asked to stop by {stop}")
        if state == "CANCELLED":
            return self.answer(classes.CANCELLED, "Slurm says CANCELLED")
        if state == "PREEMPTED" or evidence.slurm_word("preempt_time"):
            return self.answer(classes.PREEMPTED, "Slurm preempted the job")
        node = self.lost_node()
        if node is not None:
            return node
        if state == "REQUEUED":
            return self.answer(classes.PREEMPTED, "the job was requeued from outside (scontrol requeue)")
        preempted = next((hit for hit in self.said if hit.name == classes.PREEMPTED), None)
        if preempted is not None:
            return self.answer(classes.PREEMPTED, f"Slurm says: {preempted.line}")
        if evidence.outcome.rank is None and evidence.outcome.exit_code == exit_codes.ENDED_AT_ONCE:
            return self.answer(classes.CANCELLED, evidence.outcome.reason)
        return None

    def lost_node(self) -> Optional[Classified]:
        """Slurm or srun says that a node of the job went down."""
        evidence, state = self.evidence, self.evidence.slurm_word("state")
        said = [hit.line for hit in self.said if hit.name == classes.NODE_FAILURE]
        down = evidence.slurm.get("down_nodes")
        down = [str(node) for node in down] if isinstance(down, (list, tuple)) else []
        if not said and not down and state not in ("NODE_FAIL", "BOOT_FAIL"):
            return None
        why = f"Slurm says: {said[0]}" if said else f"{', '.join(down)} is down" if down else f"Slurm says {state}"
        named = [found[1] for found in map(_NODE.search, said) if found]
        if evidence.slurm_word("failed_node"):
            named.append(str(evidence.slurm["failed_node"]))
        node = next(iter([*named, *down]), None)
        rank = next((rank for rank, its in sorted(evidence.nodes_of_ranks.items()) if its == node), None)
        return self.answer(classes.NODE_FAILURE, why, rank=rank, node=node)

    def ours(self) -> Optional[Classified]:
        """What the supervisor ended the ranks for."""
        outcome = self.evidence.outcome
        if outcome.rank is None and outcome.exit_code == exit_codes.HUNG:
            return self.hung()
        name = _OURS.get(outcome.exit_code) if outcome.rank is None else None
        return self.answer(name, outcome.reason) if name else None

    def hung(self) -> Classified:
        """No progress: whose stack stands out is the one that the others wait for, where it points at one node."""
        evidence = self.evidence
        blamed = suspects_of(evidence.hang) if evidence.hang else []
        nodes = {evidence.node(rank) for rank in blamed}
        if len(nodes) != 1:
            return self.answer(classes.HANG, evidence.outcome.reason)
        return self.answer(classes.HANG, evidence.outcome.reason, rank=blamed[0], node=nodes.pop())

    def cause(self) -> Optional[Classified]:
        """What the rank that failed first says of itself; rank 0 where all ended well, and yet too early."""
        evidence, bad = self.evidence, self.bad
        if bad is None:
            return None if evidence.outcome.outcome == STOPPED else self.without_a_bad_rank()
        if bad.code in (16, 17):
            return self.answer(classes.RESULT_VALIDATION, self.described())
        hit = best(self.hits.get(bad.rank, ()))
        if self.out_of_memory() and (bad.status == _SIGKILL or hit is None or hit.name == classes.UNKNOWN):
            return self.host_memory()
        if hit is not None:
            return self.answer(hit.name, f"{self.described()}; its log says: {hit.line}")
        raised = (bad.record or {}).get("exception")
        if raised == "SeatrialError" or (bad.code == exit_codes.MISTAKE and evidence.stepless):
            return self.answer(classes.USER_ERROR, self.described())
        return None

    def without_a_bad_rank(self) -> Optional[Classified]:
        outcome = self.evidence.outcome
        hit = best(self.hits.get(0, ()))
        if hit is not None:
            return self.answer(hit.name, f"{outcome.reason}; rank 0 says: {hit.line}", rank=0)
        if outcome.rank is None and outcome.exit_code == exit_codes.HUNG_AT_END:
            return self.answer(classes.HANG, outcome.reason)
        return self.host_memory() if self.out_of_memory() else None

    def out_of_memory(self) -> bool:
        """Whether Slurm says that a process of the job was killed for want of memory."""
        word = self.evidence.slurm_word
        said = any(hit.name == classes.OOM_HOST for hit in self.said)
        return said or word("state") == "OUT_OF_MEMORY" or word("exit_code") == _OOM_CODE

    def host_memory(self) -> Classified:
        tasks = (_TASK.search(hit.line) for hit in self.said)
        task = next((found for found in tasks if found), None)
        line = next((hit.line for hit in self.said if hit.name == classes.OOM_HOST), None)
        why = f"Slurm says: {line}" if line else "Slurm says OUT_OF_MEMORY"
        if task is None:
            return self.answer(classes.OOM_HOST, why)
        return self.answer(classes.OOM_HOST, why, rank=int(task[2]), node=task[1])

    def time_limit(self) -> Optional[Classified]:
        """The job's time was up, by Slurm's word, our own timer or Slurm's signal ahead of it."""
        evidence, stop, left = self.evidence, self.evidence.stop, self.evidence.seconds_left
        if evidence.slurm_word("state") == "TIMEOUT":
            return self.answer(classes.TIME_LIMIT, "Slurm says TIMEOUT")
        said = next((hit for hit in self.said if hit.name == classes.TIME_LIMIT), None)
        if said is not None:
            return self.answer(classes.TIME_LIMIT, f"Slurm says: {said.line}")
        near = left is not None and left <= evidence.signal_lead + SIGNAL_SLACK
        if stop == "the time limit" or (stop == "SIGUSR2" and near):
            return self.answer(classes.TIME_LIMIT, f"asked to stop by {stop}, ahead of the job's end")
        return None

    def consequence(self) -> Optional[Classified]:
        """What a rank says that waited for another in vain; nothing for one that was killed: it is that other."""
        bad = self.bad
        hit = best(self.hits.get(bad.rank, ()), weak=True) if bad is not None and not _killed(bad) else None
        return self.answer(hit.name, f"{self.described()}; its log says: {hit.line}") if hit else None

    def unknown(self) -> Classified:
        evidence, bad = self.evidence, self.bad
        ahead_of_time = evidence.stop == "SIGUSR2" and evidence.seconds_left is None  # it may be the time limit's
        if evidence.outcome.outcome == STOPPED and evidence.stop in ("SIGTERM", "SIGUSR2") and not ahead_of_time:
            # Slurm says of its own signals why it sends them.
            return self.answer(classes.CANCELLED, f"somebody sent {evidence.stop} to the job")
        telling = best(self.said) or best(self.said, weak=True)
        why = self.described()
        if telling is not None:
            why = f"{why}; Slurm says: {telling.line}"
            if bad is None or not (bad.record or evidence.log(bad.rank)):  # no rank began
                return Classified(classes.UNKNOWN, why, step=evidence.step)
        if evidence.stop is not None and evidence.stop not in why:
            why = f"asked to stop by {evidence.stop}, and Slurm does not say why; {why}"
        return self.answer(classes.UNKNOWN, why)

    def answer(
        self, name: Optional[str], why: str, *, rank: Optional[int] = None,
        node: Optional[str] = None,
    ) -> Classified:  # fmt: skip
        """Return the class with its rank: the one given, else the one that failed first."""
        evidence = self.evidence
        if rank is None and node is None and self.bad is not None:
            rank = self.bad.rank
        failed = evidence.outcome.outcome != STOPPED
        return Classified(
            name or classes.UNKNOWN, why, rank, node or evidence.node(rank),
            evidence.step if failed else None,
            tuple(evidence.tails.get(rank, ())[-_LINES:]) if rank is not None else (),
        )  # fmt: skip

    def described(self) -> str:
        if self.bad is None:
            return self.evidence.outcome.reason
        node = self.evidence.node(self.bad.rank)
        return f"rank {self.bad.rank}{f' on {node}' if node else ''} {self.bad.describe()}"

    def _hits(self, lines: Sequence[str]) -> list[Hit]:
        """Return what a log says; an AssertionError and the like is the user's only before the run's first step."""
        hits = scan(lines, self.evidence.rows)
        return hits if self.evidence.untried else [hit for hit in hits if hit.name != classes.USER_ERROR]

    def _weight(self, end: RankEnd) -> int:
        hits = self.hits.get(end.rank, ())
        if best(hits) is not None:
            return _CAUSE
        return _CONSEQUENCE if hits and not _killed(end) else _NOTHING


def _killed(end: RankEnd) -> bool:
    """Whether something killed it outright: that never follows from another rank's end."""
    return end.status == _SIGKILL and end.record is None
