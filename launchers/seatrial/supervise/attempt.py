"""One attempt: start the ranks, follow them, end all when one fails, and leave a record of how it went."""

from __future__ import annotations

import platform
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from seatrial.run import checkpoint, records
from seatrial.run.layout import Attempt, RunFolder
from seatrial.supervise import exit_codes
from seatrial.supervise.follow import LogFollower, last_lines
from seatrial.supervise.plan import make_plan, value
from seatrial.supervise.ranks import LocalRanks

_POLL_SECONDS = 0.1
_FELLOW_SECONDS = 1.0  # ranks that fail together get this long to leave their own records
_RANK_PROGRAM = Path(__file__).resolve().parents[1] / "train" / "rank.py"


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: ``outcome`` is completed, failed or stopped; ``exit_code`` is 0 only when completed."""

    outcome: str
    reason: str
    exit_code: int


def run_attempt(
    spec: Mapping[str, Any],
    folder: RunFolder,
    environment: Mapping[str, str],
    hurry: Callable[[], bool],
    announce: Callable[[Attempt], None],
    rank_command: Optional[Sequence[str]] = None,
) -> Outcome:
    """Run the next attempt to its end and write its record.

    ``hurry()`` turns true when the ranks are to be ended at once; ``announce`` gets the attempt before any rank
    starts. ``rank_command`` replaces the rank program; the plan's path is appended to it.
    """
    attempt = folder.new_attempt()
    announce(attempt)
    started = records.now()
    records.append_event(folder.events, "attempt_started", attempt=attempt.number, why="first")
    records.write_json(attempt.plan, make_plan(spec, folder, attempt))
    command = [*(rank_command or (_python(spec), str(_RANK_PROGRAM))), str(attempt.plan)]
    logs = [attempt.rank_log(rank) for rank in range(spec["world_size"])]
    follower = LogFollower(folder, attempt.number, logs)
    ranks = LocalRanks(command, logs, spec["environment"], environment)
    try:
        records.append_event(folder.events, "ranks_started", attempt=attempt.number, pids=ranks.pids)
        codes, first_failed = _watch(ranks, follower, hurry)
    finally:
        ranks.end()
    follower.close()
    outcome = judge_end(spec, folder, attempt, follower, codes, first_failed)
    record = {
        "schema": records.SCHEMA,
        "attempt": attempt.number,
        "why": "first",
        "nodes": [platform.node()],
        "started": started,
        "ended": records.now(),
        "first_step": follower.first_step,
        "last_step": follower.last_step,
        "ranks": [
            {"rank": rank, "code": code, "record": attempt.exit_record(rank).is_file()}
            for rank, code in enumerate(codes)
        ],
        "first_failed_rank": first_failed,
        "last_lines": [] if first_failed is None else last_lines(logs[first_failed]),
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
    }
    records.write_json(attempt.record, record)
    records.append_event(
        folder.events, "attempt_ended", attempt=attempt.number, outcome=outcome.outcome, reason=outcome.reason
    )
    return outcome


def _python(spec: Mapping[str, Any]) -> str:
    named = str(spec["profile"]["host_python"])
    return sys.executable if named == "python3" else named


def _watch(ranks: LocalRanks, follower: LogFollower, hurry: Callable[[], bool]) -> tuple[list[int], Optional[int]]:
    """Follow until all ranks ended; return their codes and the first one that failed."""
    while True:
        codes = ranks.codes()  # asked before reading, so that an ended rank's last lines are seen
        follower.poll()
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None:
            return ranks.end(_FELLOW_SECONDS), failed
        if hurry():
            return ranks.end(), None
        if None not in codes:
            return [code or 0 for code in codes], None
        time.sleep(_POLL_SECONDS)


def judge_end(
    spec: Mapping[str, Any],
    folder: RunFolder,
    attempt: Attempt,
    follower: LogFollower,
    codes: Sequence[int],
    first_failed: Optional[int],
) -> Outcome:
    """Decide how the attempt ended. Exit code 0 of all ranks proves nothing: the loop exits 0 on a signal too."""
    if first_failed is not None:
        code = codes[first_failed]
        how = f"exit code {code}" if code > 0 else f"signal {_signal_name(-code)}"
        said = (records.read_json(attempt.exit_record(first_failed)) or {}).get("message")
        tail = f": {said}" if said else "" if code > 0 else ", without an exit record"
        # As a shell reports it: 128 + N for signal N.
        return Outcome("failed", f"rank {first_failed} ended with {how}{tail}", code if code > 0 else 128 - code)
    target = int(value(spec, "train_iters"))
    stopped = attempt.stop_file.exists()
    if any(codes) or follower.last_step != target:
        reached = f"step {follower.last_step} of {target}"
        if stopped:
            return Outcome("stopped", f"asked to stop; {reached}", exit_codes.STOPPED)
        return Outcome("failed", f"all ranks ended, but at {reached}", exit_codes.NOT_DONE)
    state = checkpoint.check(checkpoint.checkpoint_folder(folder.checkpoints, target))
    if not state.whole:
        return Outcome("failed", f"no whole checkpoint at step {target}: {state.reason}", exit_codes.NOT_DONE)
    missing = {"validation", "test"} - follower.evaluated if value(spec, "eval_iters", 0) else set()
    if missing:
        return Outcome("failed", f"no final {' and '.join(sorted(missing))} loss", exit_codes.NOT_DONE)
    return Outcome("completed", f"{target} steps, whole checkpoint, final evaluation", exit_codes.DONE)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
