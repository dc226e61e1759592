"""One attempt of a synthetic run, as the supervisor sees it: events, steps, its record and the decision after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Optional, cast

from seatrial.judge.records import EvaluationRecord, Evidence, ExitNotice, SaveRecord, Start
from seatrial.run import checkpoint, records, retention
from seatrial.supervise import attempt_record, classify, outcome, policy, slot
from seatrial.supervise.follow import Seen
from seatrial.supervise.history import History, past_of
from seatrial.supervise.resume import Start as ResumeStart
from tests.judge.test_gate_files import write_checkpoint
from tests.synthetic_endings import ENDINGS, Ending, Ranks
from tests.synthetic_steps import Step, at, line

if TYPE_CHECKING:
    from tests.synthetic_run import Run

JOB = "481516"
VERSIONS = {"python": "3.12.3", "torch": "2.11.0+cu130", "megatron_core": "0.19.2",
            "transformer_engine": "2.10.0", "cuda": "13.0"}  # fmt: skip
_LAG = 0.4  # seconds until the supervisor sees what a rank printed
_SAVE_SECONDS, _EVALUATION_SECONDS, _START_SECONDS = 25.0, 55.0, 210.0


@dataclass(frozen=True)
class Plan:
    """An attempt: its class, and the step after which it ends."""

    name: str
    last: int


class Attempt:
    """One attempt, as the supervisor sees it."""

    def __init__(self, run: Run, number: int, plan: Plan) -> None:
        self.run, self.number, self.plan = run, number, plan
        self.attempt = run.folder.attempt(number)
        self.attempt.path.mkdir(mode=0o700)
        self.nodes, self.seen, self.began = run.nodes(), Seen(), run.now
        newest = run.records[-1]["newest_checkpoint"] if run.records else None
        self.start = ResumeStart(newest, "the newest whole one" if newest else "the first attempt")
        self.why = _why(run)
        if run.from_step is not None:
            self.why = "the resume check"
            self.start = ResumeStart(run.from_step, self.why)
        self.stop: Optional[str] = None
        self.first_log: list[str] = []
        self.last_log: list[str] = []

    def event(self, name: str, /, **details: Any) -> None:
        self.run.event(name, **{**details, "attempt": self.number})

    def begin(self) -> None:
        run = self.run
        run.event("preflight", attempt=self.number, tries=1, nodes=self.nodes, failed={}, skipped=[],
                  seconds=round(run.dice.uniform(6, 14), 3), asked=True)  # fmt: skip
        run.now += 1
        self.began = run.now
        self.event("attempt_started", why=self.why, resume_step=self.start.step, checkpoint_why=self.start.why,
                   passed_over=[], job={"id": JOB, "restart": run.restart})  # fmt: skip
        self.event("ranks_started", pids=[5000 + self.number], nodes=self.nodes)
        run.now += run.dice.uniform(0.6, 1.4) * _START_SECONDS
        self.event("loop_started", **Start(self.start.step).to_json())
        if self.start.step:
            self.first_log.append(
                f"  successfully loaded checkpoint from {run.folder.checkpoints} [ t 1/1, p 1/1 ]"
                f" at iteration {self.start.step}"
            )
        self.first_log.append("[before the start of training step] datetime: 2026-11-01 00:00:00")

    def train(self) -> None:
        run = self.run
        for step in run.curve.attempt(self.number, self.start.first_step, run.dice):
            self.step(step)
            number = step.record.step
            if number == self.start.first_step:
                self.evidence("first step", number)
            if number % run.evaluate_every == 0 and number < run.steps:
                self.evaluation(number, "interval")
            if number % run.save_every == 0 and number < run.steps:
                self.save(number)
            if number == self.plan.last:
                return

    def step(self, step: Step) -> None:
        run = self.run
        run.now += step.seconds
        step = at(step, run.now)
        self.seen.step(step.record, run.now + _LAG)
        run.metrics.append(json.dumps(step.record.to_json(), separators=(",", ":")) + "\n")
        if run.logs:
            self.last_log.append(line(step.printed))

    def evidence(self, when: str, step: int) -> None:
        found = Evidence(
            when, step, self.run.ranks, "cuda", False, "MoEFlexTokenDispatcher", "hybridep",
            {"file": "/opt/deep_ep/__init__.py", "version": "1.2.1", "stand_in": False}, 24 * step, 0,
            "transformer_engine", VERSIONS, "NVIDIA GB200",
        ).to_json()  # fmt: skip
        self.event("evidence", **found, step=step)
        self.first_log.append(f"[seatrial evidence] {json.dumps(found)}")

    def evaluation(self, step: int, which: str) -> None:
        run = self.run
        run.now += run.dice.uniform(0.9, 1.1) * _EVALUATION_SECONDS
        shift = {"interval": 0.01, "validation": 0.012, "test": 0.02}[which]
        record = EvaluationRecord(step, which, {"lm loss": float(f"{run.curve.loss(step) + shift:.6E}")})
        self.seen.evaluation(record, run.now + _LAG)
        self.event("evaluation", **record.to_json(), step=step)
        on = "" if which == "interval" else f" on {which} set"
        loss = record.losses["lm loss"]
        self.last_log.append(f" validation loss at iteration {step}{on} | lm loss value: {loss:.6E} | ")

    def save(self, step: int) -> None:
        run, root = self.run, self.run.folder.checkpoints
        self.seen.save(SaveRecord(step, str(root), "started"), run.now + _LAG)
        self.first_log.append(f"saving checkpoint at iteration {step:7d} to {root} in torch_dist format")
        run.now += run.dice.uniform(0.9, 1.1) * _SAVE_SECONDS
        done = SaveRecord(step, str(root), "finished")
        self.seen.save(done, run.now + _LAG)
        self.event("checkpoint_saved", **done.to_json(), step=step)
        self.first_log.append(f"  successfully saved checkpoint from iteration {step:7d} to {root} [ t 1/1, p 1/1 ]")
        write_checkpoint(run.folder.path, step)
        if not run.gate:
            gone = retention.prune(root, *retention.keep(run.spec["profile"]["recovery"]))
            if gone.deleted:
                run.event("checkpoints_deleted", steps=list(gone.deleted), failed=[])

    def end(self) -> policy.Decision:
        run, last = self.run, self.plan.last
        ending = ENDINGS[self.plan.name](Ranks(run.ranks, self.nodes, run.dice, run.spec["failures"]))
        self.stop = ending.stop
        if ending.hang is not None:
            told = {key: ending.hang[key] for key in ("phase", "silent_seconds", "limit_seconds")}
            self.event("hang_detected", **told, step=last + 1)
        if self.plan.name == "complete":
            self.save(last)
            self.leave("done", "after training is done")
            for which in ("validation", "test"):
                self.evaluation(last, which)
            self.evidence("end", last)
        elif self.stop is not None:
            self.event("stop_requested", by=self.stop)
            if last not in self.seen.saved_steps:
                self.save(last)
            self.leave("signal", "exiting program after receiving SIGTERM")
        run.now += ending.pause
        for end in ending.ends:
            self.event("rank_exited", rank=end.rank, code=end.code, killed=end.killed, how=end.describe())
        self.write_logs(ending)
        return self.close(ending)

    def leave(self, reason: str, text: str) -> None:
        self.event("loop_ended", **ExitNotice(reason, text).to_json())
        self.first_log.append(f"[{text}] datetime: 2026-11-01 00:00:00")

    def close(self, ending: Ending) -> policy.Decision:
        """Classify, record and decide, by the supervisor's own means."""
        run, watch = self.run, SimpleNamespace(job=JOB, restart=self.run.restart)
        target = outcome.Target(run.steps)
        state = checkpoint.check(checkpoint.checkpoint_folder(run.folder.checkpoints, run.steps))
        came = outcome.decide(
            ending.ends, self.seen, target, state, stop=self.stop, interruption=ending.interruption
        )  # fmt: skip
        facts = attempt_record.Facts(
            self.attempt, self.start, self.why, History(trained=run.trained), self.nodes, self.began, run.now,
            ending.ends, [], self.seen, self.stop, ending.interruption, hang=ending.hang,
        )  # fmt: skip
        found = classify.classify(classify.Evidence(
            ending.ends, came, {rank: node for rank in range(run.ranks) if (node := facts.node_of(rank))},
            ending.tails, ending.srun, self.stop, ending.slurm, self.seen.first_step, self.seen.last_step,
            self.start.step, 200.0 if self.plan.name == "time_limit" else 5000.0, 300.0,
            run.spec["failures"], hang=ending.hang,
        ))  # fmt: skip
        job = cast(Any, SimpleNamespace(watch=watch, folder=run.folder))
        record = attempt_record._record(job, facts, came, found)
        record["job"] |= {"host": self.nodes[0]}
        decision = self.decide(record)
        record["decision"] = decision.to_json()
        records.write_json(self.attempt.record, record)
        run.records.append(record)
        run.trained = max(run.trained, self.seen.last_step or 0)
        keys = ("outcome", "reason", "exit_code", "class", "class_why", "first_step", "last_step")
        self.event("attempt_ended", **{key: record[key] for key in keys})
        if not decision.final:
            kind = "requeue" if decision.requeues else "restart"
            self.event("decision", decision=kind, exit_code=record["exit_code"], **decision.to_json())
        return decision

    def decide(self, record: Mapping[str, Any]) -> policy.Decision:
        *before, now = past_of([*self.run.records, record])
        if self.run.gate:
            return policy.decide_gate(now, str(record["reason"]))
        longest = slot.Longest.of([one["longest"] for one in (*self.run.records, record)])
        profile = self.run.spec["profile"]["recovery"]
        more = len(self.run.excluded) < int(profile["excluded_nodes"])
        place = policy.Slot(5000.0, slot.needed(longest, 300.0), may_exclude=more)
        return policy.decide(now, before, policy.Budgets.of(profile), place)

    def write_logs(self, ending: Ending) -> None:
        texts = {0: self.first_log, self.run.ranks - 1: self.last_log}
        for rank, lines in ending.tails.items():
            texts.setdefault(rank, [])
            texts[rank] = [*texts[rank], *lines]
        for rank, lines in texts.items():
            self.attempt.rank_log(rank).write_text("".join(f"{one}\n" for one in lines))
        for end in ending.ends if self.run.logs else ():
            if end.record is not None:
                self.attempt.exit_record(end.rank).write_text(json.dumps(end.record))


def _why(run: Run) -> str:
    if not run.records:
        return "the first attempt"
    last = run.records[-1]
    if last["decision"]["action"] in ("requeue", "requeue_excluding"):
        return f"requeued after {last['class']}"
    return f"{last['decision']['action']} after {last['class']}"
