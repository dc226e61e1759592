"""What an attempt came to, from what was seen of it. Pure. Exit code 0 proves nothing: the loop exits 0 on a signal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Optional

from seatrial.run.checkpoint import CheckpointState
from seatrial.supervise import exit_codes
from seatrial.supervise.exits import RankEnd, first_bad
from seatrial.supervise.follow import Seen

COMPLETED, FAILED, STOPPED = "completed", "failed", "stopped"


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: ``outcome`` is completed, failed or stopped; ``exit_code`` is 0 only when completed.

    ``rank``: the one that failed first, if one did.
    """

    outcome: str
    reason: str
    exit_code: int
    rank: Optional[int] = None


@dataclass(frozen=True)
class Target:
    """What proves completion: this step, a whole checkpoint there, and the final evaluations if any are due."""

    step: int
    evaluations: tuple[str, ...] = ("validation", "test")


def decide(
    ends: Sequence[RankEnd],
    seen: Seen,
    target: Target,
    checkpoint: CheckpointState,
    *,
    done_before: Optional[int] = None,
    evaluated_before: Collection[tuple[int, str]] = (),
    stop: Optional[str] = None,
    interruption: Optional[Outcome] = None,
) -> Outcome:
    """Return the outcome of an attempt whose ranks have all ended.

    ``checkpoint``: the state of the one at ``target.step``. ``done_before``: the last step, where an attempt before has
    made all of them; ``evaluated_before``: (step, which), by attempts before. ``stop``: who asked for an early end, if
    anybody did. ``interruption``: the outcome if the supervisor itself ended the ranks; a rank that failed before goes
    first.
    """
    bad = first_bad(ends)
    if bad is not None:
        return Outcome(FAILED, f"rank {bad.rank} {bad.describe()}", bad.code or exit_codes.SUPERVISOR_ERROR, bad.rank)
    if interruption is not None:
        return interruption
    reached = seen.last_step if done_before is None else done_before
    where = f"step {reached} of {target.step}"
    if reached != target.step:
        if stop is not None:
            saved = f"checkpoint {seen.saved_steps[-1]} saved" if seen.saved_steps else "nothing saved"
            return Outcome(STOPPED, f"asked to stop by {stop}; {where}, {saved}", exit_codes.STOPPED)
        return _not_done(f"all ranks ended with 0, but at {where}")
    if not checkpoint.whole:
        return _not_done(f"no whole checkpoint at step {target.step}: {checkpoint.reason}")
    missing = sorted(
        which for which in target.evaluations if (target.step, which) not in {*seen.evaluations, *evaluated_before}
    )
    if missing:
        return _not_done(f"no final {' and '.join(missing)} loss")
    return Outcome(COMPLETED, f"{target.step} steps, whole checkpoint, final evaluation", exit_codes.DONE)


def _not_done(reason: str) -> Outcome:
    return Outcome(FAILED, reason, exit_codes.NOT_DONE)
