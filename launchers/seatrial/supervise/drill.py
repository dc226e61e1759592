"""A drill: the supervisor puts a fault into its own run, once, and carries the run on from there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from seatrial.run import records
from seatrial.run.checkpoint import check, list_checkpoints
from seatrial.run.layout import Attempt, RunFolder
from seatrial.supervise import classes, policy
from seatrial.supervise.evidence import Classified
from seatrial.supervise.follow import Seen
from seatrial.supervise.outcome import STOPPED
from seatrial.supervise.policy import Budgets, Decision, Past, Slot
from seatrial.supervise.stops import PERSON

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

KILL_RANK, HANG, KILL_NODE = "kill-rank", "hang", "kill-node"
STOP_SIGNAL, TRUNCATE = "stop-signal", "truncate-checkpoint"
INJECTED = "drill_injected"
_MARK_SECONDS = 5.0  # for a rank's mark to come over a slow shared file system
_POLL_SECONDS = 0.1
# Ends that stay what they are, whatever the drill did before: not its doing, or nothing left to do.
_STAY = (classes.COMPLETE, classes.CANCELLED, classes.PREEMPTED)


@dataclass(frozen=True)
class Drill:
    """``fault`` comes at the beginning of ``step``; stop-signal once that step is on record."""

    fault: str
    step: int


def drill_of(spec: Mapping[str, Any]) -> Optional[Drill]:
    """Return the drill that a run is, None for none."""
    data = spec.get("drill")
    return Drill(str(data["fault"]), int(data["step"])) if data else None


def disturbed(folder: RunFolder) -> Optional[int]:
    """Return the number of the attempt that the fault was put into; None while there is none."""
    for attempt in folder.attempts():
        if _marks(attempt):
            return attempt.number
    events = records.read_objects(folder.events)
    return next((int(event["attempt"]) for event in events if event.get("event") == INJECTED), None)


def ranks_part(spec: Mapping[str, Any]) -> Optional[dict[str, Any]]:
    """Return what stands in the plan of the attempt that is disturbed: the ranks, and what they do to themselves."""
    drill = drill_of(spec)
    if drill is None or drill.fault == STOP_SIGNAL:
        return None
    world = int(spec["world_size"])
    count = world // int(spec["profile"].get("nodes") or 1) if drill.fault == KILL_NODE else 1
    return {"fault": drill.fault, "step": drill.step, "ranks": list(range(world - count, world))}


class Injection:
    """The fault in one attempt, as the supervisor sees and completes it. Does nothing in a run that is no drill."""

    def __init__(self, job: Job, attempt: Attempt) -> None:
        self._job, self._attempt = job, attempt
        drill = drill_of(job.spec)
        self._drill = drill if drill is not None and disturbed(job.folder) is None else None

    def plan(self) -> Optional[dict[str, Any]]:
        """Return the ranks' part, for their plan; None where this attempt is not disturbed."""
        return ranks_part(self._job.spec) if self._drill is not None else None

    def look(self, seen: Seen, nodes: Sequence[str]) -> None:
        """Send the signal once its step is on record; put on record at once that a rank has gone or stands still."""
        if self._drill is None:
            return
        if self._drill.fault == STOP_SIGNAL and (seen.last_step or 0) >= self._drill.step:
            self._event(None, None, f"the supervisor sent itself SIGUSR2 after step {seen.last_step}")
            os.kill(os.getpid(), signal.SIGUSR2)
        elif self._drill.fault in (KILL_RANK, HANG) and (marks := _marks(self._attempt)):
            self._event(*self._who(marks, nodes))

    def close(self, seen: Seen, nodes: Sequence[str]) -> None:
        """All ranks have ended: put the fault on record, and cut the checkpoint before the next attempt chooses one.

        Raises OSError where it cannot be cut.
        """
        if self._drill is None or self._drill.fault == STOP_SIGNAL:
            return
        deadline = time.monotonic() + _MARK_SECONDS
        while not (marks := _marks(self._attempt)) and seen.last_step == self._drill.step - 1:
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        if not marks:
            return
        rank, node, what = self._who(marks, nodes)
        if self._drill.fault == TRUNCATE:
            cut = truncate_newest(self._job.folder.checkpoints)
            if cut is None:
                return
            what = f"{what}; {cut}"
        self._event(rank, node, what)

    def _who(self, marks: Sequence[Mapping[str, Any]], nodes: Sequence[str]) -> tuple[int, Optional[str], str]:
        ranks = [int(mark["rank"]) for mark in marks]
        node = node_of(ranks[0], int(self._job.spec["world_size"]), nodes) or str(marks[0].get("host") or "") or None
        named = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        did = f"{marks[0].get('signal')} at the beginning of step {marks[0].get('step')}"
        return ranks[0], node, f"{named} on {node}: {did}"

    def _event(self, rank: Optional[int], node: Optional[str], what: str) -> None:
        assert self._drill is not None
        self._job.journal.event(INJECTED, attempt=self._attempt.number, fault=self._drill.fault,
                                step=self._drill.step, rank=rank, node=node, what=what)  # fmt: skip
        self._job.journal.say(f"drill {self._drill.fault}@{self._drill.step}: {what}")
        self._drill = None


def node_of(rank: int, world: int, nodes: Sequence[str]) -> Optional[str]:
    """Return a rank's node: ranks fill one node after the other."""
    return nodes[rank * len(nodes) // world] if nodes else None


def truncate_newest(checkpoints: Path) -> Optional[str]:
    """Cut the largest file of the newest whole checkpoint to half; return what was done, None where nothing could be.

    Raises OSError.
    """
    for path in reversed(list_checkpoints(checkpoints)):
        if check(path).whole:
            shard = max((file for file in path.iterdir() if file.is_file()), key=lambda file: file.stat().st_size)
            size = shard.stat().st_size
            os.truncate(shard, size // 2)
            return f"{path.name}/{shard.name} was cut from {size} to {size // 2} bytes"
    return None


def classified(spec: Mapping[str, Any], attempt: Attempt, nodes: Sequence[str], found: Classified) -> Classified:
    """Return the class of an attempt: where the drill took all ranks of a node, that node is lost."""
    drill = drill_of(spec)
    marks = _marks(attempt) if drill is not None and drill.fault == KILL_NODE else []
    if not marks or found.name in _STAY:
        return found
    rank = int(marks[0]["rank"])
    node = node_of(rank, int(spec["world_size"]), nodes)
    return replace(found, name=classes.NODE_FAILURE, why=f"the drill took node {node} away", rank=rank, node=node)


def decide(
    drill: Drill, now: Past, before: Sequence[Past], budgets: Budgets, slot: Slot, record: Mapping[str, Any],
    *, was_disturbed: bool, by_person: bool = False,
) -> Decision:  # fmt: skip
    """Return what follows an attempt of a drill, whose record is ``record``. Pure.

    The attempt that was disturbed is followed as a convergence run's would be, without a queue to go back to: a gate's
    job is never requeued. Any other that fails ends the drill as it ends a gate. ``by_person``: somebody asked for the
    end, too, while the drill's signal was being obeyed.
    """
    obeyed = record.get("stop") == "SIGUSR2" and record.get("outcome") == STOPPED
    if was_disturbed and drill.fault == STOP_SIGNAL and obeyed and not by_person:
        return Decision(policy.RESTART, "the drill asked it to stop, and it goes on", now.name)
    if was_disturbed or now.name == classes.COMPLETE:
        return policy.decide(now, before, budgets, replace(slot, can_requeue=False))
    return policy.decide_gate(now, str(record.get("reason")))


def asked_by_person(attempt: Attempt) -> bool:
    """Whether the attempt's stop file says that a person asked for its end."""
    try:
        return attempt.stop_file.read_text().startswith(PERSON)
    except OSError:
        return False


def _marks(attempt: Attempt) -> list[dict[str, Any]]:
    """Return the marks of the ranks that disturbed themselves, in the order of ranks."""
    found = (records.read_object(path) for path in sorted(attempt.path.glob("drill-[0-9]*.json")))
    return [mark for mark in found if mark is not None and isinstance(mark.get("rank"), int)]
