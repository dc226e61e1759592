"""A synthetic run folder of any length, with the records that the real supervisor leaves.

What a run is made of comes from the program itself: the spec is resolved, ends are classified, decisions are the
policy's, time shares and records are computed as the supervisor does. Only the clock, the curve and the failures are
made up.
"""

from __future__ import annotations

import copy
import json
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional, cast

from seatrial.judge.records import EvaluationRecord, Evidence, ExitNotice, SaveRecord, Start
from seatrial.run import checkpoint, records, retention
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission import Admission
from seatrial.slurm.submit import spec_document
from seatrial.spec.provenance import Source
from seatrial.spec.resolve import resolve
from seatrial.supervise import attempt_record, classify, exit_codes, main, outcome, policy, slot
from seatrial.supervise.dumps import as_record
from seatrial.supervise.exits import RankEnd
from seatrial.supervise.follow import Seen
from seatrial.supervise.history import History, past_of
from seatrial.supervise.resume import Start as ResumeStart
from seatrial.supervise.resume_check import wanted
from seatrial.supervise.stacks import told
from tests.judge.test_gate_files import write_checkpoint
from tests.synthetic_steps import Curve, Step, at, line

BEGAN = 1_794_000_000.0  # seconds since 1970, in November 2026
JOB = "481516"
COMMIT = "3f9c2ab7d1e845560f7b6a9c8d2e4f1a0b3c5d67"
IMAGE = f"registry.example/llm/megatron:25.11@sha256:{'4d1f' * 16}"
VERSIONS = {"python": "3.12.3", "torch": "2.11.0+cu130", "megatron_core": "0.19.2",
            "transformer_engine": "2.10.0", "cuda": "13.0"}  # fmt: skip
_LAG = 0.4  # seconds until the supervisor sees what a rank printed
_SAVE_SECONDS, _EVALUATION_SECONDS, _START_SECONDS = 25.0, 55.0, 210.0
# How attempts end, over and over, and how much of a whole slot each trains.
_ENDS = (
    ("time_limit", 1.0), ("network", 0.55), ("time_limit", 0.45), ("gpu_fault", 0.4), ("time_limit", 1.0),
    ("preempted", 0.6), ("hang", 0.5), ("time_limit", 0.5), ("node_failure", 0.35), ("time_limit", 1.0),
)  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """An attempt: its class, and the step after which it ends."""

    name: str
    last: int


def write_run(
    folder: Path,
    *,
    steps: Optional[int] = None,
    attempts: Optional[int] = None,
    seed: int = 0,
    kind: str = "convergence",
    recipe: str = "nemotron_3_nano_gb200",
    profile: str = "gb200-64gpu",
    logs: bool = False,
    over: bool = True,
) -> RunFolder:
    """Write a run's folder at ``folder``, which must not exist, and return it.

    ``steps``, ``attempts``: 48,000 and 30 for a convergence run, 100 and 1 for a gate, which also has its second pass.
    ``logs``: the last rank's log has its iteration lines, and every rank its exit record; a gate always has them.
    ``over`` False: the last attempt goes on, half way to its end. A run that is over has its verdict, which is PASS.
    Every attempt trains steps that are new, so ``steps`` must be at least ten times ``attempts``.
    """
    gate = kind == "gate"
    steps, attempts = steps or (100 if gate else 48_000), attempts or (1 if gate else 30)
    if steps < 10 * attempts:
        raise ValueError(f"{steps} steps are too few for {attempts} attempts")
    run = _Run(folder, steps, attempts, seed, kind, recipe, profile, logs or gate)
    run.write(over)
    return run.folder


class _Run:
    def __init__(
        self, path: Path, steps: int, attempts: int, seed: int, kind: str, recipe: str, profile: str, logs: bool
    ) -> None:  # fmt: skip
        self.gate, self.logs, self.dice = kind == "gate", logs, random.Random(f"times {seed}")
        self.plans = _plans(steps, attempts)
        self.folder = RunFolder.create(path)
        self.spec = _spec(path.name, steps, kind, recipe, profile, self.plans)
        fields = {key.partition(".")[2]: item["value"] for key, item in self.spec["fields"].items()}
        self.save_every, self.evaluate_every = int(fields["save_interval"]), int(fields["eval_interval"])
        self.ranks = int(self.spec["world_size"])
        rates = (fields["lr"], fields["min_lr"], max(1, int(fields["lr_warmup_iters"])))
        self.curve = Curve(
            steps, 4800 if self.gate else steps, int(fields["global_batch_size"]), self.ranks, rates, seed
        )
        self.steps, self.now = steps, BEGAN
        self.pool = [f"gb200-{number:03d}" for number in range(1, int(self.spec["profile"]["nodes"]) + 9)]
        self.excluded: list[str] = []
        self.events: list[tuple[float, dict[str, Any]]] = []
        self.metrics: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.trained = self.restart = 0
        self.from_step: Optional[int] = None  # of a gate's second pass

    def write(self, over: bool) -> None:
        records.write_json(self.folder.spec, self.spec)
        (self.folder.path / "job_id").write_text(f"{JOB}\n")
        self.event("created", run_id=self.folder.path.name, hash=self.spec["hash"])
        if self.spec["admission"]:
            self.event("admission", **self.spec["admission"])
        self.event("submitted", executor="slurm", job_id=JOB, cluster=None, adopted=False, user="1000",
                   submit_time=records.iso(self.now), excluded=[])  # fmt: skip
        self.job_starts()
        for number, plan in enumerate(self.plans):
            last = number == len(self.plans) - 1
            if last and not over:
                self.attempt(number, replace(plan, last=(self.trained + plan.last) // 2), live=True)
                break
            decision = self.attempt(number, plan)
            if last:
                self.end(decision)
                break
            if decision.final:
                raise AssertionError(f"attempt {number} would be the last: {decision}")
            self.excluded += decision.exclude
            self.now += decision.delay_seconds + 0.2
            if decision.requeues:
                self.event("returned", done=True, words="put back into the queue", excluded=sorted(self.excluded))
                self.event("supervisor_ended", exit_code=self.records[-1]["exit_code"])
                self.restart += 1
                self.job_starts()
        self.flush()

    def event(self, event: str, /, **details: Any) -> None:
        self.events.append((self.now, {"schema": 1, "time": records.iso(self.now), "event": event, **details}))

    def say(self, text: str) -> None:
        """Stand in for a journal: nobody reads the batch log."""

    def flush(self) -> None:
        text = "".join(f"{json.dumps(event, separators=(',', ':'))}\n" for _, event in self.events)
        self.folder.events.write_text(text)
        self.folder.metrics.write_text("".join(self.metrics))
        for path in (self.folder.events, self.folder.metrics):
            path.chmod(0o600)

    def nodes(self) -> list[str]:
        there = [node for node in self.pool if node not in self.excluded]
        return there[: int(self.spec["profile"]["nodes"])]

    def job_starts(self) -> None:
        self.now += self.dice.uniform(60, 1800)
        self.event("supervisor_started", host=self.nodes()[0], pid=4000 + self.restart, job_id=JOB,
                   restart_count=self.restart, cluster="cluster")  # fmt: skip

    def attempt(self, number: int, plan: _Plan, *, live: bool = False) -> policy.Decision:
        """Run one attempt; return what was decided after it."""
        one = _Attempt(self, number, plan)
        one.begin()
        one.train()
        if live:
            one.write_logs(_Ending([], 0.0, {}))
            return policy.Decision("", "", "")
        return one.end()

    def end(self, decision: policy.Decision) -> None:
        if self.gate:
            self.check_resume()
        self.flush()
        recovery = self.spec["profile"]["recovery"]
        job = SimpleNamespace(folder=self.folder, spec=self.spec, journal=self, recovery=recovery)
        reason = self.records[-1]["reason"]
        code = main._judged(cast(Any, job), main.End(exit_codes.DONE, reason, decision.name))
        if code:
            raise AssertionError(f"the verdict on {self.folder.path} makes {code}")
        self.event("decision", decision="done", action="done", exit_code=0, reason=reason,
                   attempt=self.records[-1]["attempt"], **{"class": decision.name})  # fmt: skip
        self.event("supervisor_ended", exit_code=0)

    def check_resume(self) -> None:
        """Make the second pass of a gate: from an earlier checkpoint to the end again, into a root of its own."""
        step = wanted(self.spec)
        if step is None:
            return
        self.event("resume_check_started", step=step)
        second = copy.copy(self)
        second.folder, second.from_step = self.folder.second_pass, step
        second.events, second.metrics, second.records = [], [], []
        for folder in (second.folder.path, second.folder.path / "attempts"):
            folder.mkdir(mode=0o700)
        second.attempt(len(self.plans), self.plans[-1])
        second.flush()
        self.now = second.now
        ended = second.records[-1]
        self.event("resume_check_ended", outcome=ended["outcome"], reason=ended["reason"])


class _Attempt:
    """One attempt, as the supervisor sees it."""

    def __init__(self, run: _Run, number: int, plan: _Plan) -> None:
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
        ending = _ENDINGS[self.plan.name](self)
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

    def close(self, ending: _Ending) -> policy.Decision:
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

    def write_logs(self, ending: _Ending) -> None:
        texts = {0: self.first_log, self.run.ranks - 1: self.last_log}
        for rank, lines in ending.tails.items():
            texts.setdefault(rank, [])
            texts[rank] = [*texts[rank], *lines]
        for rank, lines in texts.items():
            self.attempt.rank_log(rank).write_text("".join(f"{one}\n" for one in lines))
        for end in ending.ends if self.run.logs else ():
            if end.record is not None:
                self.attempt.exit_record(end.rank).write_text(json.dumps(end.record))


@dataclass(frozen=True)
class _Ending:
    """What is left of the ranks at an attempt's end; ``pause``: seconds until they are gone."""

    ends: list[RankEnd]
    pause: float
    tails: Mapping[int, list[str]]
    srun: tuple[str, ...] = ()
    slurm: Mapping[str, Any] = field(default_factory=lambda: {"state": "RUNNING"})
    interruption: Optional[outcome.Outcome] = None
    hang: Optional[Mapping[str, Any]] = None


def _well(one: _Attempt) -> list[RankEnd]:
    return [RankEnd(rank, 0, 1, record=_exit(rank, 0)) for rank in range(one.run.ranks)]


def _exit(rank: int, code: int, **more: Any) -> dict[str, Any]:
    return {"schema": 1, "rank": rank, "code": code, "how": "completed" if code == 0 else "failed", "message": None,
            **more}  # fmt: skip


def _complete(one: _Attempt) -> _Ending:
    return _Ending(_well(one), 8.0, {})


def _time_limit(one: _Attempt) -> _Ending:
    one.stop = "the time limit"
    return _Ending(_well(one), 6.0, {})


def _preempted(one: _Attempt) -> _Ending:
    one.stop = "SIGTERM"
    return _Ending(_well(one), 6.0, {}, slurm={"state": "PREEMPTED"})


def _broken(
    one: _Attempt, status: int, line: str, record: Optional[dict[str, Any]], pause: float, **more: Any
) -> _Ending:
    """One rank fails, the others are ended for it."""
    bad = one.run.dice.randrange(1, one.run.ranks - 1)
    ends = [RankEnd(rank, -signal.SIGTERM, 2, True) for rank in range(one.run.ranks)]
    ends[bad] = RankEnd(bad, status, 1, record=None if record is None else {**record, "rank": bad})
    return _Ending(ends, pause, {bad: [line] if line else []}, **more)


def _network(one: _Attempt) -> _Ending:
    record = _exit(0, 1, exception="DistBackendError", message="NCCL error: remote process exited")
    return _broken(one, 1, _example(one, "network"), record, 610.0)


def _gpu_fault(one: _Attempt) -> _Ending:
    record = _exit(0, 1, exception="AcceleratorError", message="CUDA error: uncorrectable ECC error encountered")
    return _broken(one, 1, "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", record, 15.0)


def _node_failure(one: _Attempt) -> _Ending:
    ending = _broken(one, -signal.SIGKILL, "", None, 45.0)
    bad = next(end.rank for end in ending.ends if not end.killed)
    node = one.nodes[bad * len(one.nodes) // one.run.ranks]
    return replace(ending, srun=(f"srun: error: Node failure on {node}",))


def _hang(one: _Attempt) -> _Ending:
    bad, silent = one.run.dice.randrange(1, one.run.ranks - 1), 181.3
    wait = ["torch/distributed/distributed_c10d.py:2812 all_reduce", "megatron/core/optimizer/clip_grads.py:118 step"]
    busy = ["torch/utils/data/dataloader.py:1284 _try_get_data", "megatron/training/training.py:1710 train_step"]
    stacks = {rank: busy if rank == bad else wait for rank in range(one.run.ranks)}
    hang = as_record(stacks, [], "step", silent, 180.0)
    one.event("hang_detected", phase="step", silent_seconds=silent, limit_seconds=180.0, step=one.plan.last + 1)
    ended = outcome.Outcome(outcome.FAILED, told(hang, "no step"), exit_codes.HUNG)
    ends = [RankEnd(rank, -signal.SIGKILL, 2, True) for rank in range(one.run.ranks)]
    return _Ending(ends, silent + 20, {}, interruption=ended, hang=hang)


_ENDINGS = {"complete": _complete, "time_limit": _time_limit, "preempted": _preempted, "network": _network,
            "gpu_fault": _gpu_fault, "node_failure": _node_failure, "hang": _hang}  # fmt: skip


def _example(one: _Attempt, name: str) -> str:
    rows = one.run.spec["failures"]
    return next(str(row["example"]) for row in rows if row["class"] == name and not row["weak"])


def _why(run: _Run) -> str:
    if not run.records:
        return "the first attempt"
    last = run.records[-1]
    if last["decision"]["action"] in ("requeue", "requeue_excluding"):
        return f"requeued after {last['class']}"
    return f"{last['decision']['action']} after {last['class']}"


def _plans(steps: int, attempts: int) -> list[_Plan]:
    ends = [_ENDS[number % len(_ENDS)] for number in range(attempts)]
    whole = sum(share for _, share in ends)
    plans: list[_Plan] = []
    reached = 0.0
    for name, share in ends:
        reached += share
        plans.append(_Plan(name, max(len(plans) + 1, round(steps * reached / whole))))
    return [*plans[:-1], _Plan("complete", steps)]


def _spec(
    run_id: str, steps: int, kind: str, recipe: str, profile: str, plans: list[_Plan]
) -> dict[str, Any]:  # fmt: skip
    """Return spec.json as submission writes it, from a resolved recipe."""
    changes = {"profile.container.image": IMAGE, "data.data_path": '["/data/corpus/text_document"]'}
    if kind != "gate":
        per_slot = max(after.last - before for before, after in zip([0, *(plan.last for plan in plans)], plans))
        changes["profile.time_limit_minutes"] = str(round((per_slot * 5.4 + 3600) / 60))
        changes["schedule.train_iters"] = changes["schedule.lr_decay_iters"] = str(steps)
        changes["schedule.lr_warmup_iters"] = str(max(1, steps // 100))
        changes["checkpoint.save_interval"] = str(max(1, steps // 48))
        changes["evaluation.eval_interval"] = str(max(1, steps // 60))
    spec = resolve(recipe, profile, kind, list(changes.items()))
    gate = None if kind == "gate" else Admission(
        "gate", f"{recipe}-gate-20261106-081500-5c01fe", f"/runs/{recipe}-gate-20261106-081500-5c01fe",
        verdict_time=records.iso(BEGAN - 3600),
    )  # fmt: skip
    document = spec_document(spec, run_id, Source(COMMIT), gate)
    document["provenance"] |= {"host": "login-01", "interpreter": "/opt/seatrial/bin/python", "machine": "aarch64"}
    return {**document, "created": records.iso(BEGAN)}
