"""A synthetic run folder of any length, with the records that the real supervisor leaves.

What a run is made of comes from the program itself: the spec is resolved, ends are classified, decisions are the
policy's, time shares and records are computed as the supervisor does. Only the clock, the curve and the failures are
made up.
"""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional, cast

from seatrial.judge.evidence import required_losses
from seatrial.judge.expectations import resume_from
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission import Admission
from seatrial.slurm.submit import spec_document
from seatrial.spec.provenance import Source
from seatrial.spec.resolve import resolve
from seatrial.supervise import exit_codes, main, policy
from seatrial.supervise.carry import End
from tests.synthetic_attempt import JOB, Attempt, Plan
from tests.synthetic_endings import Ending
from tests.synthetic_steps import Curve

BEGAN = 1_794_000_000.0  # seconds since 1970, in November 2026
COMMIT = "3f9c2ab7d1e845560f7b6a9c8d2e4f1a0b3c5d67"
IMAGE = f"registry.example/llm/megatron:25.11@sha256:{'4d1f' * 16}"
# How attempts end, over and over, and how much of a whole slot each trains.
_ENDS = (
    ("time_limit", 1.0), ("network", 0.55), ("time_limit", 0.45), ("gpu_fault", 0.4), ("time_limit", 1.0),
    ("preempted", 0.6), ("hang", 0.5), ("time_limit", 0.5), ("node_failure", 0.35), ("time_limit", 1.0),
)  # fmt: skip


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
    run = Run(folder, steps, attempts, seed, kind, recipe, profile, logs or gate)
    run.write(over)
    return run.folder


class Run:
    """A run that is being written: its clock, its curve and its records so far."""

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
            steps,
            4800 if self.gate else steps,
            int(fields["global_batch_size"]),
            self.ranks,
            rates,
            seed,
            required_losses(fields),
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

    def attempt(self, number: int, plan: Plan, *, live: bool = False) -> policy.Decision:
        """Run one attempt; return what was decided after it."""
        one = Attempt(self, number, plan)
        one.begin()
        one.train()
        if live:
            one.write_logs(Ending([], 0.0))
            return policy.Decision("", "", "")
        return one.end()

    def end(self, decision: policy.Decision) -> None:
        if self.gate:
            self.check_resume()
        self.flush()
        recovery = self.spec["profile"]["recovery"]
        job = SimpleNamespace(folder=self.folder, spec=self.spec, journal=self, recovery=recovery)
        reason = self.records[-1]["reason"]
        code = main._judged(cast(Any, job), End(exit_codes.DONE, reason, decision.name))
        if code:
            raise AssertionError(f"the verdict on {self.folder.path} makes {code}")
        self.event("decision", decision="done", action="done", exit_code=0, reason=reason,
                   attempt=self.records[-1]["attempt"], **{"class": decision.name})  # fmt: skip
        self.event("supervisor_ended", exit_code=0)

    def check_resume(self) -> None:
        """Make the second pass of a gate: from an earlier checkpoint to the end again, into a root of its own."""
        step = resume_from(self.spec["gate"])
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


def _plans(steps: int, attempts: int) -> list[Plan]:
    ends = [_ENDS[number % len(_ENDS)] for number in range(attempts)]
    whole = sum(share for _, share in ends)
    plans: list[Plan] = []
    reached = 0.0
    for name, share in ends:
        reached += share
        plans.append(Plan(name, max(len(plans) + 1, round(steps * reached / whole))))
    return [*plans[:-1], Plan("complete", steps)]


def _spec(
    run_id: str, steps: int, kind: str, recipe: str, profile: str, plans: list[Plan]
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
