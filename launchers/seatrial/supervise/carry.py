"""Carrying a run: attempt after attempt, each followed by a decision, until one is final or the job goes back."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.supervise import attempt_record, classes, drill, exit_codes, policy, slot, unfit
from seatrial.supervise.attempt import run_attempt
from seatrial.supervise.berths import Berths, Found, blame
from seatrial.supervise.dependents import gate_refuses
from seatrial.supervise.excluded import Excluded
from seatrial.supervise.history import History, past_of, read_history
from seatrial.supervise.nodes import job_nodes
from seatrial.supervise.outcome import Outcome
from seatrial.supervise.policy import Budgets, Decision, Slot
from seatrial.supervise.requeue import requeue
from seatrial.supervise.resume import NothingWhole, choose_start, discard_unfinished, give_up
from seatrial.supervise.returning import bring_back
from seatrial.supervise.watchman import watchman_of

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

_POLL_SECONDS = 0.1
_MOST_EXCLUSIONS = 5  # starts of a job after which a node that keeps coming is put up with
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class End:
    """How this supervisor's part ended. ``final``: the run's, too. ``name``: the class that it is booked under."""

    exit_code: int
    reason: str
    name: str
    final: bool = True


class Carrier:
    """One supervisor's turn with a run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.budgets = Budgets.of(job.recovery)
        self.excluded = Excluded(job.spec["profile"], job.folder.path.name) if job.on_slurm else None
        self.gate = job.spec["kind"] == "gate"
        self.drill = drill.drill_of(job.spec)
        self.berths = Berths(job)
        self.watchman = watchman_of(job)

    def carry(self) -> End:
        """Run attempts until a decision is final, or the job is back in the queue."""
        try:
            return self._carry()
        finally:
            if self.watchman is not None:
                self.watchman.stop()

    def _carry(self) -> End:
        history = read_history(self.job.folder)
        settled = self._settled(history)
        if settled is not None:
            return settled
        try:
            why = self._take_up(history)
        except _Ends as end:
            return end.end
        while True:
            history = read_history(self.job.folder)
            finished = self._attempt(history, why)
            if isinstance(finished, End):
                return finished
            if self.job.control.taken_away:
                return End(exit_codes.BUSY, finished.outcome.reason, classes.PREEMPTED, final=False)
            if self.drill is None:  # a drill's nodes are good
                blame(self.job, finished.record)
            decision = self._decide([*history.counted, finished.record], history.longest)
            self._write_decision(finished.record, decision)
            self._exclude(decision.exclude, _class_of(finished.record))
            if decision.final:
                return self._end(decision, finished.outcome)
            self.berths.leave_out(decision.exclude)
            if decision.requeues:
                code = finished.outcome.exit_code or exit_codes.NOT_DONE
                return self._back(decision, finished.record, code, history.request.exclude)
            self._before_next(decision, finished.record)
            why = f"{decision.action} after {finished.record['class']}"

    def _settled(self, history: History) -> Optional[End]:
        """Return the end of a run that has one: Slurm, or an operator, may start its job again all the same."""
        decided = history.decision
        if decided.get("decision") not in ("done", "stop") or history.request.open:
            return None
        self.job.journal.say(f"this run has ended: {decided.get('reason')}; seatrial requeue brings it back")
        code = decided.get("exit_code")
        return End(
            code if isinstance(code, int) else exit_codes.NOT_DONE, str(decided.get("reason")), "settled", final=False
        )

    def _take_up(self, history: History) -> str:
        """Do what is due before the first attempt; return why that starts. Raises _Ends where none may."""
        if (refused := gate_refuses(self.job.spec)) is not None:
            raise _Ends(End(exit_codes.DEPENDENCY_FAILED, refused, classes.DEPENDENCY_FAILED))
        last = history.records[-1] if history.records else None
        if last is None:
            self._verify_exclusion(history.decision.get("exclude") or ())
            return "the first attempt"
        if history.request.open:
            forced = history.request.force_class
            if forced:
                decision = self._decide([{**last, "class": forced}], history.longest)
                self.job.journal.say(f"a person calls attempt {last['attempt']} {forced}: {decision.reason}")
                self._before_next(decision, last)
                self._exclude(decision.exclude, _class_of(last))
            return "requeued by hand" + (f", as after {forced}" if forced else "")
        # A decision that no attempt of its own came before (nodes that were not fit) is the newer one.
        exclude = (history.decision or last.get("decision") or {}).get("exclude") or ()
        if last.get("decision") is None:
            # Its supervisor was gone before it could decide: that is made up for here.
            decision = self._decide(history.counted, history.longest)
            self._write_decision(last, decision)
            if decision.final:
                raise _Ends(self._end(decision, None))
            self._exclude(decision.exclude, _class_of(last))
            self._before_next(replace(decision, delay_seconds=0.0), last)
            exclude = decision.exclude
        self._verify_exclusion(exclude)
        return f"requeued after {last.get('class')}"

    def _verify_exclusion(self, exclude: Sequence[str]) -> None:
        """Hold this job's nodes against what was left out. Raises _Ends where the job goes back again."""
        if not exclude or self.job.watch is None:
            return
        nodes = job_nodes(os.environ)
        present = sorted(set(exclude) & set(nodes))
        self.job.journal.event("exclusion_verified", excluded=list(exclude), nodes=nodes, present=present)
        if not present or len(nodes) - len(present) >= self.berths.wanted:
            self.berths.leave_out(present)
            return
        words = f"Slurm gave {', '.join(present)} to this job, which should be left out"
        self.job.journal.say(words)
        if self.job.watch.restart <= _MOST_EXCLUSIONS and self.job.may_requeue:
            returned = requeue(self.job, exclude, _PATIENCE_SECONDS)
            if returned.done:
                raise _Ends(End(exit_codes.NOT_DONE, f"{words}; {returned.words}", classes.NODE_FAILURE, final=False))

    def _attempt(self, history: History, why: str) -> Any:
        """Run one attempt, unless a mistake or what is there already makes it needless: then the end."""
        target = self.job.target
        try:
            start = choose_start(self.job.folder, history, target.step, target.evaluations)
        except NothingWhole as error:
            return End(error.exit_code, str(error), classes.CHECKPOINT_BAD)
        except SeatrialError as error:
            return End(error.exit_code, str(error), classes.USER_ERROR)
        if start.first_step > target.step and not start.evaluate_only:
            reason = f"checkpoint {start.step} is whole and the final evaluation was seen"
            return End(exit_codes.DONE, reason, classes.COMPLETE)
        found = self.berths.find(len(self.job.folder.attempts()), self.excluded.nodes() if self.excluded else ())
        if found.chosen is None and self.job.control.stop is None and (self.job.on_slurm or found.failed):
            end = self._too_few(found)
            if end is not None:
                return end
        if found.chosen is not None:
            self._exclude_unfit(found)
            if self.watchman is not None:
                self.watchman.ensure(self.berths.job_nodes)
        return run_attempt(self.job, start, why, history, found.chosen)

    def _too_few(self, found: Found) -> Optional[End]:
        """No attempt may start: go back to the queue without the nodes that are not fit, where that is possible.

        None where somebody asks for an end: an attempt that starts no rank finds out who, and what follows.
        """
        vain = unfit.vain_starts(records.read_objects(self.job.folder.events))
        place = self._slot(slot.Longest(), ())
        most = self.excluded.most if self.excluded is not None else 0
        decision = unfit.decide(found, self.berths.wanted, vain, self.budgets, place, self.gate, most)
        if decision.final:
            return End(exit_codes.UNFIT_NODES, decision.reason, decision.name)
        self.job.journal.event("decision", decision="requeue", attempt=None, exit_code=exit_codes.UNFIT_NODES,
                               **decision.to_json())  # fmt: skip
        self.job.journal.say(f"decision: {decision.action}: {decision.reason}")
        self._exclude(decision.exclude, f"{decision.name}: {decision.reason}")
        if self._wait(decision.delay_seconds):
            return None
        return self._back(decision, {"class": decision.name}, exit_codes.UNFIT_NODES, ())

    def _decide(self, attempts: Sequence[Mapping[str, Any]], longest: slot.Longest) -> Decision:
        """Return what follows the last of ``attempts`` (records, oldest first)."""
        *before, now = past_of(attempts)
        nodes = attempts[-1].get("nodes") or ()
        if self.drill is not None:
            attempt = self.job.folder.attempt(int(attempts[-1]["attempt"]))
            return drill.decide(
                self.drill, now, before, self.budgets, self._slot(longest, nodes), attempts[-1],
                was_disturbed=drill.disturbed(self.job.folder) == attempt.number,
                by_person=drill.asked_by_person(attempt),
            )  # fmt: skip
        if self.gate:
            return policy.decide_gate(now, str(attempts[-1].get("reason")))
        return policy.decide(now, before, self.budgets, self._slot(longest, nodes))

    def _slot(self, longest: slot.Longest, of: Sequence[str]) -> Slot:
        watch, lead = self.job.watch, self.job.signal_lead
        if watch is None:
            return Slot(None, 0.0, can_requeue=False, may_exclude=False, spread=random.random())
        end = watch.end_time
        return Slot(
            None if end is None else end - time.time(), slot.needed(longest, lead), can_requeue=self.job.may_requeue,
            may_exclude=self.excluded is not None and self.excluded.most > 0, spread=random.random(),
            spares=self.berths.spares(of),
        )  # fmt: skip

    def _write_decision(self, record: Mapping[str, Any], decision: Decision) -> None:
        attempt = self.job.folder.attempt(int(record["attempt"]))
        booked = decision.to_json()
        attempt_record.write(self.job, attempt, {**record, "decision": booked})
        if not decision.final:
            kind = "requeue" if decision.requeues else "restart"
            self.job.journal.event("decision", decision=kind, attempt=attempt.number,
                                   exit_code=record.get("exit_code"), **booked)  # fmt: skip
            self.job.journal.say(f"decision: {decision.action}: {decision.reason}")

    def _exclude(self, nodes: Sequence[str], why: str) -> None:
        """Have other runs, and later starts of this one, avoid these nodes."""
        if self.excluded is None or not nodes or self.drill is not None:  # a drill's nodes are good
            return
        try:
            self.excluded.add(nodes, why)
        except OSError as error:
            self.job.journal.say(f"the excluded nodes are not on record for other runs: {error}")

    def _exclude_unfit(self, found: Found) -> None:
        """Have other runs, and later starts of this one, avoid the nodes that others stand in for here."""
        if not found.failed or self.excluded is None or not self.excluded.most or self.job.control.stop is not None:
            return  # a stop cuts the tries of a preflight short
        for node in sorted({*found.failed} - {*self.excluded.nodes()}):
            self._exclude((node,), f"{classes.NODE_FAILURE}: {found.failed[node]}")

    def _before_next(self, decision: Decision, record: Mapping[str, Any]) -> None:
        """Clear the way for the next attempt here, and wait as long as was decided, unless asked to stop."""
        if decision.action == policy.EARLIER_CHECKPOINT:
            give_up(self.job.folder, record)
        if decision.name == classes.DISK_FULL:
            discard_unfinished(self.job.folder)
        if self.drill is not None and self.drill.fault == drill.STOP_SIGNAL:
            self.job.control.go_on()
        if decision.delay_seconds:
            self.job.journal.say(f"the next attempt in {decision.delay_seconds:.0f} s")
        self._wait(decision.delay_seconds)

    def _wait(self, seconds: float) -> bool:
        """Wait; return whether somebody asks for an end."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.job.control.stop is None:
            time.sleep(_POLL_SECONDS)
        return self.job.control.stop is not None

    def _back(self, decision: Decision, record: Mapping[str, Any], code: int, by_hand: Sequence[str]) -> End:
        """Have the job run again."""
        exclude = sorted({*decision.exclude, *by_hand, *(self.excluded.nodes() if self.excluded else ())})
        returned = bring_back(self.job, record, exclude)
        self.job.journal.event("returned", done=returned.done, words=returned.words, excluded=list(returned.excluded))
        self.job.journal.say(returned.words)
        if returned.done:
            return End(code, returned.words, decision.name, final=False)
        return End(exit_codes.NOT_RETURNED, returned.words, decision.name, final=False)

    def _end(self, decision: Decision, outcome: Optional[Outcome]) -> End:
        if decision.action == policy.DONE:
            return End(exit_codes.DONE, outcome.reason if outcome else decision.reason, decision.name)
        code = outcome.exit_code if outcome is not None else exit_codes.NOT_DONE
        reason = decision.reason if outcome is None else f"{outcome.reason}; {decision.reason}"
        return End(code or exit_codes.NOT_DONE, reason, decision.name)


def _class_of(record: Mapping[str, Any]) -> str:
    return f"{record.get('class')}: {record.get('class_why')}"


class _Ends(Exception):
    """No attempt may start."""

    def __init__(self, end: End) -> None:
        super().__init__(end.reason)
        self.end = end
