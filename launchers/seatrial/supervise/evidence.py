"""What an attempt left behind, as data: what a class is made from, and the class that was made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from seatrial.supervise.exits import RankEnd
from seatrial.supervise.outcome import Outcome

_NO_ANSWER = frozenset({"", "NONE", "N/A", "UNKNOWN", "(NULL)", "0", "FALSE"})
_SLURM_SPEAKS = re.compile(r"^(?:srun|slurmstepd|slurmd): ")


@dataclass(frozen=True)
class Evidence:
    """What is known of an attempt that has ended.

    ``nodes_of_ranks``: rank -> node. ``tails``: rank -> the end of its log, of the ranks that failed and of rank 0.
    ``stop``: who asked for an early end. ``slurm``: what Slurm answered about the job, only since this attempt began
    (``state``, ``exit_code``, ``preempt_time``, ``failed_node``, ``down_nodes``); empty outside of Slurm. A value that
    is missing or empty is no answer, and never evidence. ``start_step``: the checkpoint that it loaded, if any.
    ``seconds_left`` until the job's end, ``signal_lead`` ahead of which Slurm sends SIGUSR2. ``rows``: the signatures.
    ``forced``: the class that a person gave. ``hang``: as in the attempt's record.
    """

    ends: Sequence[RankEnd]
    outcome: Outcome
    nodes_of_ranks: Mapping[int, str] = field(default_factory=dict)
    tails: Mapping[int, Sequence[str]] = field(default_factory=dict)
    srun_lines: Sequence[str] = ()
    stop: Optional[str] = None
    slurm: Mapping[str, Any] = field(default_factory=dict)
    first_step: Optional[int] = None
    last_step: Optional[int] = None
    start_step: Optional[int] = None
    seconds_left: Optional[float] = None
    signal_lead: float = 300.0
    rows: Sequence[Mapping[str, Any]] = ()
    forced: Optional[str] = None
    hang: Optional[Mapping[str, Any]] = None

    @property
    def stepless(self) -> bool:
        """Whether this attempt made no step."""
        return self.last_step is None

    @property
    def untried(self) -> bool:
        """Whether this run has never made a step: a mistake in its configuration would show only then."""
        return self.stepless and not self.start_step

    @property
    def step(self) -> int:
        """The step that was next."""
        return (self.last_step if self.last_step is not None else self.start_step or 0) + 1

    @property
    def slurm_lines(self) -> list[str]:
        """What srun and Slurm's step daemons wrote, who may write it into a rank's log."""
        own = [line for tail in self.tails.values() for line in tail if _SLURM_SPEAKS.search(line)]
        return [*self.srun_lines, *own]

    def log(self, rank: int) -> list[str]:
        """Return what a rank itself wrote: the end of its log, and the exception of its exit record."""
        lines = [line for line in self.tails.get(rank, ()) if not _SLURM_SPEAKS.search(line)]
        record = next((end.record for end in self.ends if end.rank == rank), None) or {}
        raised = f"{record.get('exception')}: {record.get('message')}" if record.get("exception") else ""
        return [*lines, *(line for line in raised.splitlines() if line not in lines)]

    def slurm_word(self, key: str) -> str:
        """Return Slurm's answer in capitals, without what follows it (CANCELLED by 1000); empty where it gave none."""
        word = str(self.slurm.get(key) or "").strip().upper()
        return "" if word in _NO_ANSWER else word.split()[0].rstrip("+")

    def node(self, rank: Optional[int]) -> Optional[str]:
        """Return the node of a rank: as Slurm calls it, else as its exit record does."""
        if rank is None:
            return None
        record = next((end.record for end in self.ends if end.rank == rank), None) or {}
        return self.nodes_of_ranks.get(rank) or str(record.get("host") or "") or None


@dataclass(frozen=True)
class Classified:
    """The class ``name`` (see classes) and ``why``, a sentence; the rank that failed first, its node, the step that
    was next, the last lines of its log. None and empty where no rank or node stands out."""

    name: str
    why: str
    rank: Optional[int] = None
    node: Optional[str] = None
    step: Optional[int] = None
    lines: tuple[str, ...] = ()
