"""Which nodes of the job run ranks: those that Slurm still has in it, and that pass their preflight."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from seatrial.run import node_history
from seatrial.supervise import classes
from seatrial.supervise.nodes import down, nodes_now
from seatrial.supervise.preflight import preflight

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

# Ends that say nothing of the node which met them first: they come from outside, or from what was asked to run.
_NOBODYS = (
    classes.COMPLETE, classes.TIME_LIMIT, classes.PREEMPTED, classes.CANCELLED, classes.USER_ERROR, classes.DATA_ERROR,
    classes.CHECKPOINT_BAD, classes.RESUME_MISMATCH,
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """``chosen``: the nodes for the ranks, in rank order; None: ranks of this host, or too few are fit.

    ``failed``: node -> why it is not fit, of those that had not been left out before. ``fit``: how many are.
    ``everywhere``: all of several nodes failed, so that the fault is theirs together and no single one's.
    """

    chosen: Optional[tuple[str, ...]]
    fit: int
    failed: Mapping[str, str] = field(default_factory=dict)
    everywhere: bool = False


def choose(
    fit: Sequence[str], wanted: int, before: Collection[str] = (), avoided: Collection[str] = ()
) -> Optional[tuple[str, ...]]:
    """Return ``wanted`` of the nodes in ``fit``, in their order; None where there are too few. Pure.

    Those of the attempt ``before`` stay, as their caches are warm; ``avoided`` ones, which other runs have met, come
    last.
    """
    ranked = sorted(fit, key=lambda node: (node in avoided, node not in before, fit.index(node)))
    chosen = set(ranked[:wanted])
    return tuple(node for node in fit if node in chosen) if len(chosen) == wanted else None


class Berths:
    """The nodes of one start of the job. ``wanted``: how many run ranks."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.wanted = int(job.spec["profile"].get("nodes") or 1)
        self._out: set[str] = set()
        self._last: tuple[str, ...] = ()
        self._had: Optional[list[str]] = None  # the job's nodes at the last look; it never gets more

    def find(self, attempt: int, avoided: Collection[str] = ()) -> Found:
        """Have the nodes show what they have, and choose. Raises SeatrialError where the job's nodes are not known."""
        if not self._job.on_slurm:
            report = preflight(self._job, [platform.node()], attempt)
            return Found(None, len(report.healthy), self._note(report.failed, attempt))
        self._had = alive = self._alive()
        report = preflight(self._job, alive, attempt)
        everywhere = len(report.nodes) > 1 and not report.healthy
        failed = _in_words(report.failed) if everywhere else self._note(report.failed, attempt)
        # Slurm may have found out meanwhile; and where nobody could be asked its word is all there is.
        gone = down(report.healthy, os.environ, failing=True)
        fit = [node for node in report.healthy if node not in gone]
        chosen = choose(fit, self.wanted, self._last, avoided)
        self._last = chosen or self._last
        return Found(
            chosen, len(fit), failed | dict.fromkeys(sorted(gone), "Slurm calls it down, or failing"), everywhere
        )

    def leave_out(self, nodes: Collection[str]) -> None:
        """Use these no more in this start of the job."""
        self._out |= set(nodes)

    def spares(self, of: Collection[str] = ()) -> int:
        """Return how many nodes could stand in for one of ``of`` (the last attempt's, where the supervisor is new)."""
        if not self._job.on_slurm or self._job.watch is None:
            return 0
        if self._had is not None and len(self._had) <= self.wanted:
            return 0  # told without a question: most jobs have none
        if self._job.control.terminated_at is not None:
            return 0  # Slurm ends the job: there is nothing to start here, and no time to ask
        alive = self._alive()
        # Where an attempt has begun no rank nobody knows its nodes: those that it needs are not spare.
        ran = self._last or of or alive[: self.wanted]
        return len(set(alive) - set(ran) - down(alive, os.environ, failing=True))

    @property
    def job_nodes(self) -> list[str]:
        """The nodes that were not lost at the last look, and are not left out."""
        return [node for node in self._had or () if node not in self._out]

    def _alive(self) -> list[str]:
        return [node for node in nodes_now(os.environ) if node not in self._out]

    def _note(self, failed: Mapping[str, Sequence[str]], attempt: int) -> dict[str, str]:
        """Leave out what failed its preflight, and put that on record."""
        words = _in_words(failed)
        self.leave_out(words)
        for node, reason in words.items():
            note_failure(self._job, node, node_history.PREFLIGHT, reason, attempt)
        return words


def _in_words(failed: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {node: "; ".join(sentences) for node, sentences in failed.items()}


def blame(job: Job, record: Mapping[str, Any]) -> None:
    """Put on record on which node an attempt failed first, whatever is decided of it."""
    node, name = record.get("failed_node"), str(record.get("class"))
    if node and name not in _NOBODYS:
        note_failure(job, str(node), name, str(record.get("class_why")), int(record["attempt"]))


def note_failure(job: Job, node: str, what: str, reason: str, attempt: int) -> None:
    """Put a node's failure into the run's events and, on a cluster, into its profile's history. Never raises."""
    job.journal.event("node_failed", node=node, what=what, reason=reason, attempt=attempt)
    if not job.on_slurm:
        return
    profile = job.spec["profile"]
    with contextlib.suppress(OSError):  # it is in the events
        path = node_history.path_for(Path(profile["paths"]["runs"]), str(profile["name"]))
        node_history.add(path, node, what, reason, job.folder.path.name, attempt)
