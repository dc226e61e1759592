"""One attempt: start the ranks, follow them, end all when one fails, and leave a record of how it went."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional, Union

from seatrial.errors import SeatrialError
from seatrial.run import checkpoint, records
from seatrial.run.layout import Attempt, RunFolder
from seatrial.supervise import exit_codes
from seatrial.supervise.control import Control
from seatrial.supervise.exits import RankEnd, last_lines, read_exit_record
from seatrial.supervise.follow import LogFollower
from seatrial.supervise.journal import Journal
from seatrial.supervise.outcome import FAILED, STOPPED, Outcome, Target, decide
from seatrial.supervise.plan import make_plan, value
from seatrial.supervise.ranks import Ended, LocalRanks
from seatrial.supervise.resume import Start
from seatrial.supervise.srun import SrunRanks

_RANK_PROGRAM = Path(__file__).resolve().parents[1] / "train" / "rank.py"


@dataclass(frozen=True)
class Patience:
    """Seconds. ``fellows``: for ranks that fail with another to leave their own records. ``stragglers``: for the other
    ranks to end once one has ended well."""

    poll: float = 0.1
    fellows: float = 1.0
    stragglers: float = 300.0


@dataclass(frozen=True)
class Job:
    """What all attempts of this supervisor share. ``rank_command`` replaces the rank program (the plan is appended)."""

    folder: RunFolder
    spec: Mapping[str, Any]
    journal: Journal
    control: Control
    rank_command: Optional[Sequence[str]] = None
    patience: Patience = Patience()

    @property
    def target(self) -> Target:
        """What proves this run complete."""
        step = int(value(self.spec, "train_iters"))
        return Target(step) if value(self.spec, "eval_iters", 0) else Target(step, ())

    def command(self, attempt: Attempt) -> list[str]:
        """Return the words that start a rank."""
        program = (str(self.spec["profile"].get("rank_python") or sys.executable), str(_RANK_PROGRAM))
        return [*(self.rank_command or program), str(attempt.plan)]

    def ranks(self, attempt: Attempt, logs: Sequence[Path]) -> Union[LocalRanks, SrunRanks]:
        """Return the ranks of ``attempt``, not started yet: a job step, or processes of this host."""
        if self.spec["profile"].get("executor") == "slurm":
            return SrunRanks(self.spec, attempt, self.command(attempt), os.environ)
        return LocalRanks(self.command(attempt), logs, self.spec["environment"], os.environ)


def run_attempt(job: Job, start: Start) -> Outcome:
    """Run the next attempt to its end and write its record, whatever happens; then raise what happened, if anything."""
    return _Run(job, job.folder.new_attempt(), start).run()


class _Run:
    def __init__(self, job: Job, attempt: Attempt, start: Start) -> None:
        self.job, self.attempt, self.start = job, attempt, start
        self.logs = [attempt.rank_log(rank) for rank in range(int(job.spec["world_size"]))]
        self.follower = LogFollower(self.logs, attempt.number, job.journal)
        self.ranks = job.ranks(attempt, self.logs)
        self.ends: dict[int, RankEnd] = {}
        self.look = 0
        self.stop: Optional[str] = None
        self.ended_well_at: Optional[float] = None
        self.began = records.now()

    def run(self) -> Outcome:
        self.event(
            "attempt_started", why=self.start.why, resume_step=self.start.step, passed_over=self.start.passed_over
        )
        error: Optional[BaseException] = None
        interruption: Optional[Outcome] = None
        try:
            interruption = self.begin() or self.watch()
        except SeatrialError as mistake:
            interruption = Outcome(FAILED, str(mistake), mistake.exit_code)
        except BaseException as caught:
            error, interruption = caught, _broken(caught)
        try:
            self.note(self.ranks.end())
            self.follower.close()
        except BaseException as caught:
            error, interruption = error or caught, _broken(caught)
        outcome = self.record(interruption)
        if error is not None:
            raise error
        return outcome

    def begin(self) -> Optional[Outcome]:
        """Write the plan and start the ranks, unless a stop was asked for already."""
        if self.job.control.stop:
            return Outcome(STOPPED, f"asked to stop by {self.job.control.stop} before it began", exit_codes.STOPPED)
        plan = make_plan(self.job.spec, self.job.folder, self.attempt, self.start.step)
        records.write_json(self.attempt.plan, plan)
        pids = self.ranks.start()
        self.event("ranks_started", pids=pids)
        self.job.journal.say(
            f"attempt {self.attempt.number}: {len(self.logs)} ranks started on {', '.join(self.ranks.nodes)}"
        )
        return None

    def watch(self) -> Optional[Outcome]:
        """Follow until all ranks have ended; return the outcome if it was we who ended them."""
        while True:
            self.look += 1
            self.note(self.ranks.poll())  # asked before reading, so that an ended rank's last lines are seen
            self.follower.poll()
            self.job.journal.flush()
            if not self.ranks.running:
                return None
            if any(end.bad for end in self.ends.values()):
                self.look += 1
                self.note(self.ranks.end(self.job.patience.fellows))
                return None
            self.pass_on_stop()
            interruption = self.interruption()
            if interruption is not None:
                self.note(self.ranks.end())
                return interruption
            time.sleep(self.job.patience.poll)

    def interruption(self) -> Optional[Outcome]:
        """Return why the ranks must be ended now, if they must."""
        first = self.follower.seen.first_step
        if self.job.control.end_at_once:
            return Outcome(STOPPED, "told a second time to end: ranks killed", exit_codes.ENDED_AT_ONCE)
        if first is not None and first != self.start.first_step:
            return Outcome(
                FAILED, f"the first step was {first}, not {self.start.first_step}", exit_codes.RESUME_MISMATCH
            )
        patience = self.job.patience.stragglers
        if self.ended_well_at is not None and time.monotonic() - self.ended_well_at > patience:
            still = ", ".join(map(str, self.ranks.running[:8]))
            return Outcome(FAILED, f"ranks {still} did not end {patience:.0f} s after others", exit_codes.HUNG_AT_END)
        return None

    def pass_on_stop(self) -> None:
        """Let a signal reach the ranks through the stop file, and put on record that a stop was asked for."""
        asked = self.job.control.stop
        if asked and not self.attempt.stop_file.exists():
            try:
                self.attempt.stop_file.write_text(f"{asked} {records.now()}\n")
            except OSError:
                # The other way: the signal that the loop itself listens to.
                if self.stop is None:
                    self.ranks.signal(signal.SIGUSR2)
        if self.stop is None and (asked or self.attempt.stop_file.exists()):
            self.stop = asked or "the stop file"
            self.event("stop_requested", by=self.stop)
            self.job.journal.say(f"asked to stop by {self.stop}: the ranks save and end")

    def note(self, ended: Sequence[Ended]) -> None:
        """Put ends on record."""
        for rank, status, killed in ended:
            end = RankEnd(rank, status, self.look, killed, read_exit_record(self.attempt.exit_record(rank)))
            self.ends[rank] = end
            self.event("rank_exited", rank=rank, code=end.code, killed=killed, how=end.describe())
            if end.code == 0 and self.ended_well_at is None:
                self.ended_well_at = time.monotonic()

    def record(self, interruption: Optional[Outcome]) -> Outcome:
        """Decide, and write record.json; a disk that takes no document still may take the event."""
        ends = [self.ends.get(rank, RankEnd(rank, None)) for rank in range(len(self.logs))]
        # A rank's record may have come after the look that saw its end (a slow shared file system).
        ends = [replace(e, record=e.record or read_exit_record(self.attempt.exit_record(e.rank))) for e in ends]
        target, seen = self.job.target, self.follower.seen
        state = checkpoint.check(checkpoint.checkpoint_folder(self.job.folder.checkpoints, target.step))
        self.pass_on_stop()  # asked for within the last look, too
        outcome = decide(ends, seen, target, state, stop=self.stop, interruption=interruption)
        lines = [] if outcome.rank is None else last_lines(self.logs[outcome.rank])
        record = {
            "schema": records.SCHEMA, "attempt": self.attempt.number, "why": self.start.why,
            "resume_step": self.start.step, "nodes": self.ranks.nodes, "started": self.began, "ended": records.now(),
            "first_step": seen.first_step, "last_step": seen.last_step, "saved_steps": seen.saved_steps,
            "stop": self.stop, "ranks": [end.to_json() for end in ends], "first_failed_rank": outcome.rank,
            "last_lines": lines, "outcome": outcome.outcome, "reason": outcome.reason, "exit_code": outcome.exit_code,
        }  # fmt: skip
        try:
            records.write_json(self.attempt.record, record)
        except OSError as error:
            self.job.journal.say(f"cannot write {self.attempt.record}: {error}")
            self.event("attempt_record", record=record)
        self.event("attempt_ended", outcome=outcome.outcome, reason=outcome.reason, exit_code=outcome.exit_code)
        self.job.journal.say(f"attempt {self.attempt.number} {outcome.outcome}: {outcome.reason}")
        for line in lines:
            self.job.journal.say(f"  rank {outcome.rank}: {line}")
        return outcome

    def event(self, name: str, **details: Any) -> None:
        self.job.journal.event(name, attempt=self.attempt.number, **details)


def _broken(error: BaseException) -> Outcome:
    return Outcome(FAILED, f"the supervisor broke: {type(error).__name__}: {error}", exit_codes.SUPERVISOR_ERROR)
