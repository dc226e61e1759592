"""How attempts of a synthetic run end: what is left of their ranks, for the supervisor's own means to judge."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from seatrial.supervise import exit_codes
from seatrial.supervise.dumps import as_record
from seatrial.supervise.exits import RankEnd
from seatrial.supervise.outcome import FAILED, Outcome
from seatrial.supervise.stacks import told


@dataclass(frozen=True)
class Ranks:
    """The ranks of an attempt. ``rows``: the signatures of failures in logs."""

    count: int
    nodes: Sequence[str]
    dice: random.Random
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Ending:
    """What is left of the ranks. ``pause``: seconds until they are gone. ``stop``: who asked for an end. ``tails``:
    ends of logs, by rank. ``srun``, ``slurm``: what these say. ``interruption``, ``hang``: of ranks that hung."""

    ends: Sequence[RankEnd]
    pause: float
    stop: Optional[str] = None
    tails: Mapping[int, list[str]] = field(default_factory=dict)
    srun: tuple[str, ...] = ()
    slurm: Mapping[str, Any] = field(default_factory=lambda: {"state": "RUNNING"})
    interruption: Optional[Outcome] = None
    hang: Optional[Mapping[str, Any]] = None


def _well(ranks: Ranks) -> list[RankEnd]:
    return [RankEnd(rank, 0, 1, record=_exit(rank, 0)) for rank in range(ranks.count)]


def _exit(rank: int, code: int, **more: Any) -> dict[str, Any]:
    return {"schema": 1, "rank": rank, "code": code, "how": "completed" if code == 0 else "failed", "message": None,
            **more}  # fmt: skip


def _complete(ranks: Ranks) -> Ending:
    return Ending(_well(ranks), 8.0)


def _time_limit(ranks: Ranks) -> Ending:
    return Ending(_well(ranks), 6.0, "the time limit")


def _preempted(ranks: Ranks) -> Ending:
    return Ending(_well(ranks), 6.0, "SIGTERM", slurm={"state": "PREEMPTED"})


def _broken(ranks: Ranks, status: int, line: str, record: Optional[dict[str, Any]], pause: float) -> Ending:
    """One rank fails, the others are ended for it."""
    bad = ranks.dice.randrange(1, ranks.count - 1)
    ends = [RankEnd(rank, -signal.SIGTERM, 2, True) for rank in range(ranks.count)]
    ends[bad] = RankEnd(bad, status, 1, record=None if record is None else {**record, "rank": bad})
    return Ending(ends, pause, tails={bad: [line] if line else []})


def _network(ranks: Ranks) -> Ending:
    line = next(str(row["example"]) for row in ranks.rows if row["class"] == "network" and not row["weak"])
    record = _exit(0, 1, exception="DistBackendError", message="NCCL error: remote process exited")
    return _broken(ranks, 1, line, record, 610.0)


def _gpu_fault(ranks: Ranks) -> Ending:
    words = "CUDA error: uncorrectable ECC error encountered"
    record = _exit(0, 1, exception="AcceleratorError", message=words)
    return _broken(ranks, 1, f"torch.AcceleratorError: {words}", record, 15.0)


def _node_failure(ranks: Ranks) -> Ending:
    ending = _broken(ranks, -signal.SIGKILL, "", None, 45.0)
    bad = next(end.rank for end in ending.ends if not end.killed)
    node = ranks.nodes[bad * len(ranks.nodes) // ranks.count]
    return replace(ending, srun=(f"srun: error: Node failure on {node}",))


def _hang(ranks: Ranks) -> Ending:
    bad, silent = ranks.dice.randrange(1, ranks.count - 1), 181.3
    wait = ["torch/distributed/distributed_c10d.py:2812 all_reduce", "megatron/core/optimizer/clip_grads.py:118 step"]
    busy = ["torch/utils/data/dataloader.py:1284 _try_get_data", "megatron/training/training.py:1710 train_step"]
    stacks = {rank: busy if rank == bad else wait for rank in range(ranks.count)}
    hang = as_record(stacks, [], "step", silent, 180.0)
    ended = Outcome(FAILED, told(hang, "no step"), exit_codes.HUNG)
    ends = [RankEnd(rank, -signal.SIGKILL, 2, True) for rank in range(ranks.count)]
    return Ending(ends, silent + 20, interruption=ended, hang=hang)


ENDINGS: Mapping[str, Callable[[Ranks], Ending]] = {
    "complete": _complete, "time_limit": _time_limit, "preempted": _preempted, "network": _network,
    "gpu_fault": _gpu_fault, "node_failure": _node_failure, "hang": _hang,
}  # fmt: skip
