"""One attempt: start the ranks, follow them, end all when one fails, and leave a record of how it went."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import Attempt
from seatrial.supervise import exit_codes, trackers
from seatrial.supervise.attempt_record import Facts, Finished, finish
from seatrial.supervise.drill import Injection
from seatrial.supervise.dumps import Dumps, as_record
from seatrial.supervise.exits import RankEnd, read_exit_record
from seatrial.supervise.follow import LogFollower
from seatrial.supervise.hang import Hang, Limits, Watchdog
from seatrial.supervise.history import History
from seatrial.supervise.job import Job
from seatrial.supervise.outcome import FAILED, STOPPED, Outcome
from seatrial.supervise.plan import make_plan
from seatrial.supervise.ranks import Ended
from seatrial.supervise.resume import Start
from seatrial.supervise.stacks import told
from seatrial.supervise.stops import Stops

_LAST_SECONDS = 5.0  # to write the record before Slurm's SIGKILL


def run_attempt(job: Job, start: Start, why: str, history: History, nodes: Optional[Sequence[str]] = None) -> Finished:
    """Run the next attempt to its end and write its record, whatever happens; then raise what happened, if anything.

    ``why``: what made it start, for the record. ``history``: of the attempts before. ``nodes``: those that
    run ranks; None: the first of the job's.
    """
    return _Run(job, job.folder.new_attempt(), start, why, history, nodes).run()


class _Run:
    def __init__(
        self, job: Job, attempt: Attempt, start: Start, why: str, history: History, nodes: Optional[Sequence[str]]
    ) -> None:
        self.job, self.attempt, self.start, self.why, self.history = job, attempt, start, why, history
        self.logs = [attempt.rank_log(rank) for rank in range(int(job.spec["world_size"]))]
        self.follower = LogFollower(self.logs, attempt.number, job.journal)
        self.stops = Stops(job.control, attempt, job.watch, history.longest, job.signal_lead, job.patience.answer)
        self.ranks = job.ranks(attempt, self.logs, nodes)
        self.drill = Injection(job, attempt)
        self.ends: dict[int, RankEnd] = {}
        self.look = self.tidied = 0
        self.stop: Optional[str] = None
        self.hang: Optional[dict[str, Any]] = None
        self.ended_well_at: Optional[float] = None
        self.began = time.time()

    def run(self) -> Finished:
        watch = self.job.watch
        self.event(
            "attempt_started", why=self.why, resume_step=self.start.step, checkpoint_why=self.start.why,
            passed_over=self.start.passed_over, job=watch and {"id": watch.job, "restart": watch.restart},
        )  # fmt: skip
        error: Optional[BaseException] = None
        interruption: Optional[Outcome] = None
        try:
            interruption = self.begin() or self.watch()
        except SeatrialError as mistake:
            interruption = Outcome(FAILED, str(mistake), mistake.exit_code)
        except BaseException as caught:
            error, interruption = caught, _broken(caught)
        try:
            self.note(self.abandoned() if self.killed_soon() else self.ranks.end())
            self.follower.close()
            self.drill.close(self.follower.seen, self.ranks.nodes)
        except BaseException as caught:
            error, interruption = error or caught, _broken(caught)
        self.pass_on_stop()  # asked for within the last look, too
        self.tell_of_tracker()
        finished = finish(self.job, self.facts(interruption))
        if error is not None:
            raise error
        return finished

    def facts(self, interruption: Optional[Outcome]) -> Facts:
        ends = [self.ends.get(rank, RankEnd(rank, None)) for rank in range(len(self.logs))]
        return Facts(
            self.attempt, self.start, self.why, self.history, self.ranks.nodes, self.began, time.time(), ends,
            self.logs, self.follower.seen, self.stop, interruption, hang=self.hang,
        )  # fmt: skip

    def begin(self) -> Optional[Outcome]:
        """Write the plan and start the ranks, unless a stop was asked for already."""
        if self.job.control.stop:
            self.stops.ask_why()
            self.stop = self.job.control.stop
            self.event("stop_requested", by=self.stop)
            return Outcome(STOPPED, f"asked to stop by {self.job.control.stop} before it began", exit_codes.STOPPED)
        pids = self.ranks.start(self.write_plan)
        self.event("ranks_started", pids=pids, nodes=self.ranks.nodes)
        self.job.journal.say(
            f"attempt {self.attempt.number}: {len(self.logs)} ranks started on {', '.join(self.ranks.nodes)}"
        )
        return None

    def write_plan(self, nodes: Sequence[str]) -> None:
        """Write what the ranks run, once their nodes are known. Raises OSError, SeatrialError."""
        cold = not any(set(nodes) <= set(record.get("nodes") or ()) for record in self.history.records)
        end = self.job.watch.end_time if self.job.watch is not None else None
        left = None if end is None else (end - time.time()) / 60
        plan = make_plan(self.job.spec, self.job.folder, self.attempt, self.start, cold, left)
        records.write_json(self.attempt.plan, {**plan, "drill": self.drill.plan()})

    def watch(self) -> Optional[Outcome]:
        """Follow until all ranks have ended; return the outcome if it was we who ended them."""
        limits = Limits.of(self.job.spec, self.job.target, trains=not self.start.evaluate_only)
        watchdog = None if limits is None else Watchdog(limits, self.history.longest, time.monotonic())
        while True:
            self.look += 1
            self.note(self.ranks.poll())  # asked before reading, so that an ended rank's last lines are seen
            self.follower.poll()
            self.drill.look(self.follower.seen, self.ranks.nodes)
            self.job.journal.flush()
            self.tidy()
            if not self.ranks.running:
                return None
            if any(end.bad for end in self.ends.values()):
                self.look += 1
                self.note(self.ranks.end(self.job.patience.fellows))
                return None
            self.pass_on_stop()
            interruption = self.interruption()
            if interruption is None and watchdog is not None:
                hang = watchdog.look(self.follower.seen, time.monotonic())
                interruption = self.hung(hang) if hang is not None else None
            if interruption is not None:
                return interruption
            time.sleep(self.job.patience.poll)

    def tidy(self) -> None:
        """Have superseded checkpoints deleted after each save."""
        saves = len(self.follower.seen.saves)
        if saves > self.tidied and self.job.janitor is not None:
            self.tidied = saves
            self.job.janitor.look()

    def interruption(self) -> Optional[Outcome]:
        """Return why the ranks must be ended now, if they must."""
        control, first = self.job.control, self.follower.seen.first_step
        if self.job.owner is not None and self.job.owner.lost():
            control.taken_away = True
            return Outcome(FAILED, "another supervisor has taken this run up", exit_codes.BUSY)
        if control.end_at_once:
            return Outcome(STOPPED, "told a second time to end: ranks killed", exit_codes.ENDED_AT_ONCE)
        if self.killed_soon():
            return Outcome(STOPPED, "Slurm ends the job now: the ranks had no more time to save", exit_codes.STOPPED)
        if first is not None and first != self.start.first_step:
            return Outcome(
                FAILED, f"the first step was {first}, not {self.start.first_step}", exit_codes.RESUME_MISMATCH
            )
        patience = self.job.patience.stragglers
        if self.ended_well_at is not None and time.monotonic() - self.ended_well_at > patience:
            still = ", ".join(map(str, self.ranks.running[:8]))
            return Outcome(FAILED, f"ranks {still} did not end {patience:.0f} s after others", exit_codes.HUNG_AT_END)
        return None

    def hung(self, hang: Hang) -> Outcome:
        """Put a hang on record, and the ranks' stacks into their logs and the record; return why they are ended."""
        step = self.start.first_step if hang.step is None else hang.step
        self.event("hang_detected", phase=hang.phase, silent_seconds=round(hang.silent, 1),
                   limit_seconds=round(hang.limit, 1), step=step)  # fmt: skip
        self.job.journal.say(f"{hang.what} for {hang.silent:.0f} s: the ranks are asked for their stacks, then ended")
        hurry = lambda: self.job.control.end_at_once or self.killed_soon()  # noqa: E731
        wanted = (self.job.spec["profile"].get("hang") or {}).get("py_spy")
        stacks, missing = Dumps(self.ranks, self.logs, hurry).collect(str(self.attempt.plan) if wanted else "")
        self.hang = as_record(stacks, missing, hang.phase, hang.silent, hang.limit)
        return Outcome(FAILED, told(self.hang, hang.what), exit_codes.HUNG)

    def tell_of_tracker(self) -> None:
        """Put on record what Weights & Biases did not get: nothing else here would show it."""
        if (words := trackers.trouble(self.attempt)) is not None:
            self.event(trackers.FAILED, reason=words)
            self.job.journal.say(f"W&B: {words}")

    def killed_soon(self) -> bool:
        """Whether Slurm's SIGKILL is so near that only the record can still be written."""
        watch, since = self.job.watch, self.job.control.terminated_at
        if watch is None or since is None or time.monotonic() - since < watch.kill_wait - _LAST_SECONDS:
            return False
        return self.job.ended_by() is not None

    def abandoned(self) -> list[Ended]:
        """Leave the ranks to Slurm, which kills them with this process: waiting for it would cost the record."""
        return [Ended(rank, -signal.SIGKILL, True) for rank in self.ranks.running]

    def pass_on_stop(self) -> None:
        """Let who asks for an end reach the ranks through the stop file, and put on record that it was asked for."""
        asked = self.stops.who(self.follower.seen)
        if asked is None:
            return
        if not self.attempt.stop_file.exists():
            try:
                self.attempt.stop_file.write_text(f"{asked} {records.now()}\n")
            except OSError:
                # The other way: the signal that the loop itself listens to.
                if self.stop is None:
                    self.ranks.signal(signal.SIGUSR2)
        if self.stop is None:
            self.stop = asked
            self.event("stop_requested", by=self.stop)
            self.job.journal.say(f"asked to stop by {self.stop}: the ranks save and end")

    def note(self, ended: Sequence[Ended]) -> None:
        """Put ends on record. What ranks that hung end of, once they are asked for their stacks, is our doing."""
        for rank, status, killed in ended:
            killed = killed or (self.hang is not None and status != 0)
            end = RankEnd(rank, status, self.look, killed, read_exit_record(self.attempt.exit_record(rank)))
            self.ends[rank] = end
            self.event("rank_exited", rank=rank, code=end.code, killed=killed, how=end.describe())
            if end.code == 0 and self.ended_well_at is None:
                self.ended_well_at = time.monotonic()

    def event(self, name: str, **details: Any) -> None:
        self.job.journal.event(name, attempt=self.attempt.number, **details)


def _broken(error: BaseException) -> Outcome:
    return Outcome(FAILED, f"the supervisor broke: {type(error).__name__}: {error}", exit_codes.SUPERVISOR_ERROR)
