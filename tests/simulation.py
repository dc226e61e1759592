"""Runs of 48,000 steps with failures, on a simulated clock and cluster, through the supervisor's own decisions.

Ours is what decides: policy.decide on history.past_of of records as the supervisor writes them, slot.lead and
slot.needed, resume.choose, retention.superseded, the excluded nodes, and the profile's budgets; run_goodput adds up.
Simulated are the clock, the ranks, the disk and Slurm.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from seatrial.judge import exclusions
from seatrial.judge.goodput import Shares, Steps
from seatrial.judge.history import AttemptRecord
from seatrial.judge.run_goodput import Goodput, run_goodput
from seatrial.run.checkpoint import CheckpointState
from seatrial.run.retention import superseded
from seatrial.spec.profile import Recovery, SlurmSite
from seatrial.supervise import classes, excluded, policy, resume, slot
from seatrial.supervise.history import past_of
from seatrial.supervise.plan import LATER_TIMEOUT_MINUTES
from seatrial.supervise.policy import Budgets, Decision, Slot
from seatrial.supervise.slot import Longest
from tests.simulation_conditions import DAY, Conditions, best_interval, ideal_goodput

STEPS = 48_000
GPUS_PER_NODE = 4
RECOVERY = Recovery().model_dump()
BUDGETS = Budgets.of(RECOVERY)
SIGNAL_LEAD = float(SlurmSite().signal_lead_seconds)
REPAIR = DAY  # how long a node that failed stays bad
REQUEUE_DELAY = 120.0  # Slurm's default: until the job's credential has expired
MOST_ATTEMPTS = 2000  # of a run that would never end
_START = 1_764_547_200.0

# Llama 3's 419 unexpected interruptions: how many, the class that each has here, and the seconds until it shows.
# Where ranks wait for one that is silent, that is Megatron's time-out; a node counts as down after SlurmdTimeout.
_TIMEOUT, _SLURMD_TIMEOUT = LATER_TIMEOUT_MINUTES * 60.0, 300.0
FAILURES = {
    "faulty GPU": (148, classes.GPU_FAULT, 0.0),
    "HBM3 memory": (72, classes.GPU_FAULT, 0.0),
    "software": (54, classes.UNKNOWN, 0.0),
    "network": (35, classes.NETWORK, _TIMEOUT),
    "host maintenance": (32, classes.NODE_FAILURE, _SLURMD_TIMEOUT),
    "NCCL watchdog": (7, classes.HANG, _TIMEOUT),
    "silent data corruption": (6, classes.RESULT_VALIDATION, 0.0),  # seen where the rerun machine is on: exit code 17
    "other hardware": (65, classes.NODE_FAILURE, _SLURMD_TIMEOUT),
}
_KINDS = 20  # in how many ways a kind of failure shows
_DETECTION = 3.0  # the supervisor's: looks, waits for the fellows' records, ends the step


@dataclass
class Run:
    """One run. ``on_disk``: step of a checkpoint -> whether it is whole. ``bad``: node -> when it is repaired."""

    at: Conditions
    interval: int
    chance: random.Random
    now: float = _START
    slot_end: float = 0.0
    nodes: Sequence[str] = ()
    on_disk: dict[int, bool] = field(default_factory=dict)
    bad: dict[str, float] = field(default_factory=dict)
    excluded: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[AttemptRecord] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    longest: Longest = field(default_factory=Longest)
    trained: int = 0

    def sail(self) -> Decision:
        """Carry the run to its end; return the final decision."""
        self.event("submitted")
        self.queue()
        while len(self.records) < MOST_ATTEMPTS:
            attempt = _Attempt(self, self.start())
            attempt.go()
            decision = self.decide(attempt)
            if decision.final:
                self.event("supervisor_ended")
                self.event("decision", decision=decision.action)
                return decision
            if decision.action in (policy.REQUEUE, policy.REQUEUE_EXCLUDING):
                self.event("supervisor_ended")
                self.queue()
            else:
                self.now += decision.delay_seconds
        return Decision(policy.STOP, "it goes on for ever", "simulation")

    @property
    def goodput(self) -> Goodput:
        return run_goodput(self.attempts, self.events)

    def event(self, name: str, **more: Any) -> None:
        time = datetime.fromtimestamp(self.now, timezone.utc).isoformat()
        self.events.append({"event": name, "time": time, **more})

    def queue(self) -> None:
        """Wait for a slot on nodes that are not left out; any others."""
        self.now += REQUEUE_DELAY + self.chance.expovariate(1 / 600)
        avoided = {one.node for one in exclusions.active(self.excluded, self.now)}
        self.nodes = ()
        while not self.nodes or avoided & set(self.nodes):
            numbers = self.chance.sample(range(self.at.cluster), self.at.gpus // GPUS_PER_NODE)
            self.nodes = [f"n{number}" for number in numbers]
        self.slot_end = self.now + self.at.slot
        self.event("supervisor_started")

    def start(self) -> resume.Start:
        if not self.records:
            return resume.Start(None, "the first attempt")
        states = [CheckpointState(step, whole, "torn") for step, whole in self.on_disk.items()]
        saved = {step for record in self.records for step in record["saved_steps"]}
        chosen = resume.choose(states, max(saved, default=None), saved)
        assert chosen.step is None or self.on_disk[chosen.step], "it loads a checkpoint that is torn"
        self.on_disk = {step: whole for step, whole in self.on_disk.items() if step <= (chosen.step or 0)}  # set aside
        return chosen

    def save(self, step: int) -> None:
        """A save is finished: the janitor tidies up."""
        self.on_disk[step] = True
        whole = [step for step, whole in self.on_disk.items() if whole]
        for gone in superseded(whole, RECOVERY["checkpoints_kept"], RECOVERY["checkpoints_kept_every"]):
            del self.on_disk[gone]

    def decide(self, attempt: _Attempt) -> Decision:
        record = attempt.record()
        self.records.append(record)
        self.attempts.append(
            AttemptRecord(len(self.attempts), record, attempt.began, self.now, False, attempt.shares, attempt.steps)
        )
        self.trained = max(self.trained, record["last_step"] or 0)
        self.longest = Longest.of([self.longest.to_json(), record["longest"]])
        *before, now = past_of(self.records)
        avoided = exclusions.active(self.excluded, self.now)
        most = excluded.cap(RECOVERY["excluded_nodes"], RECOVERY["excluded_share"], self.at.cluster)
        decision = policy.decide(now, before, BUDGETS, Slot(
            self.slot_end - self.now, slot.needed(self.longest, SIGNAL_LEAD), True, len(avoided) < most,
            self.chance.random(),
        ))  # fmt: skip
        record["decision"] = {"action": decision.action}
        expires = datetime.fromtimestamp(self.now + RECOVERY["exclusion_days"] * DAY, timezone.utc).isoformat()
        self.excluded += [{"node": node, "expires": expires} for node in decision.exclude]
        return decision


class _Attempt:
    """One attempt: it makes steps and saves until it is done, the slot is nearly over, or something fails."""

    def __init__(self, run: Run, start: resume.Start) -> None:
        self.run, self.at, self.resumed = run, run.at, start.step
        self.began, self.step, self.first = run.now, start.step or 0, start.step or 0
        self.saved: list[int] = []
        self.longest = Longest()
        self.ended: tuple[str, str | None] = (classes.COMPLETE, None)  # class and node
        self.shares = Shares()
        # A start on a node that is still bad fails on it; else failures come at random.
        still_bad = next((node for node in run.nodes if run.bad.get(node, 0.0) > run.now), None)
        kinds = [*FAILURES]
        self.kind = run.chance.choices(kinds, [FAILURES[kind][0] for kind in kinds])[0]
        self.node = run.chance.choice(run.nodes)
        fails_after = run.chance.expovariate(1 / self.at.mttf)
        if still_bad is not None:
            self.kind, self.node, fails_after = "faulty GPU", still_bad, self.at.startup * run.chance.random()
        self.fails_at = self.began + fails_after
        self.how = f"{self.kind} {run.chance.randrange(_KINDS)}"

    @property
    def steps(self) -> Steps:
        again = max(0, min(self.step, self.run.trained) - self.first)
        return Steps(self.step - self.first - again, again)

    @property
    def stop_at(self) -> float:
        """When the supervisor's timer asks the ranks to save and end."""
        longest = Longest.of([self.run.longest.to_json(), self.longest.to_json()])
        return self.run.slot_end - slot.lead(longest, SIGNAL_LEAD)

    def go(self) -> None:
        if not self.passes("startup", self.at.startup):
            return
        self.longest = replace(self.longest, startup=self.at.startup)
        while self.step < STEPS:
            until = min(STEPS, (self.step // self.run.interval + 1) * self.run.interval)
            asked = math.ceil((self.stop_at - self.run.now) / self.at.step)  # the flag is looked at after a step
            count = max(1, min(until - self.step, asked))
            if not self.train(count):
                return
            stopping = self.run.now >= self.stop_at
            if (stopping or self.step == until) and not self.save():
                return
            if stopping and self.step < STEPS:
                self.ended = (classes.TIME_LIMIT, None)
                return

    def train(self, count: int) -> bool:
        before, done = self.step, int((self.fails_at - self.run.now) / self.at.step)
        self.step += min(count, done)
        again = max(0, min(self.step, self.run.trained) - before)
        self.spend("replayed", again * self.at.step)
        self.spend("productive", (self.step - before - again) * self.at.step)
        self.longest = replace(self.longest, step=self.at.step)
        return count <= done or self.passes("idle", self.at.step)  # it fails within the step that follows

    def save(self) -> bool:
        took = self.at.save * self.run.chance.uniform(0.8, 1.3)
        self.run.on_disk[self.step] = False
        if not self.passes("saving", took):
            return False
        self.longest = Longest.of([self.longest.to_json(), {"save": took}])
        self.saved.append(self.step)
        self.run.save(self.step)
        return True

    def passes(self, share: str, seconds: float) -> bool:
        """Let time pass; return whether nothing happens in it."""
        if self.run.now + seconds < min(self.fails_at, self.run.slot_end):
            self.spend(share, seconds)
            return True
        if self.run.slot_end <= self.fails_at:  # Slurm's kill: the lead was too short
            self.spend(share, self.run.slot_end - self.run.now)
            self.ended = (classes.TIME_LIMIT, None)
            return False
        _, name, silence = FAILURES[self.kind]
        self.spend(share, max(0.0, self.fails_at - self.run.now))
        self.spend("idle", min(silence + _DETECTION, self.run.slot_end - self.run.now))
        self.ended = (name, self.node)
        if name in (classes.GPU_FAULT, classes.NODE_FAILURE):
            self.run.bad[self.node] = self.run.now + REPAIR
        return False

    def spend(self, share: str, seconds: float) -> None:
        self.run.now += seconds
        self.shares = replace(self.shares, **{share: getattr(self.shares, share) + seconds})

    def record(self) -> dict[str, Any]:
        """Return what the supervisor's record.json says, as far as decisions read it."""
        name, node = self.ended
        failed = node is not None
        return {
            "attempt": len(self.run.records), "class": name, "how": f"{name}: {self.how if failed else ''}",
            "resume_step": self.resumed, "first_step": self.first + 1 if self.step > self.first else None,
            "last_step": self.step if self.step > self.first else None, "saved_steps": self.saved,
            "failed_step": self.step if failed and self.step > self.first else None, "failed_node": node,
            "exit_code": 17 if name == classes.RESULT_VALIDATION else 1 if failed else 0,
            "newest_checkpoint": max((step for step, whole in self.run.on_disk.items() if whole), default=None),
            "longest": self.longest.to_json(), "decision": None,
        }  # fmt: skip


@dataclass(frozen=True)
class Result:
    """How a simulated run ended. ``goodput``: productive / wall, without queue."""

    conditions: Conditions
    decision: Decision
    reached: int
    attempts: int
    goodput: float
    ideal: float
    classes: Mapping[str, int]


def sail(at: Conditions, seed: int, interval: int | None = None) -> tuple[Run, Result]:
    """Simulate one run; ``interval``: steps between saves, by default the ideal's."""
    run = Run(at, interval or best_interval(at), random.Random(seed))
    decision = run.sail()
    names = [record["class"] for record in run.records]
    return run, Result(
        at, decision, run.trained, len(names), run.goodput.without_queue or 0.0, ideal_goodput(at),
        {name: names.count(name) for name in set(names)},
    )  # fmt: skip
