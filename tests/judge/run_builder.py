"""A run folder as three attempts in two jobs leave it: a time limit, a failure mended in place, the end."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from seatrial.run import records
from seatrial.run.layout import RunFolder

BEGAN = datetime(2026, 12, 1, 10, 0, 0, tzinfo=timezone.utc)
SPEC = {
    "run_id": "run-1", "recipe": "nano", "kind": "convergence", "profile": {"name": "slurm-sandbox"},
    "created": "2026-12-01T09:59:59+00:00", "provenance": {"host": "login"},
    "fields": {"schedule.train_iters": {"value": 100}},
    "admission": {"gate": "gate-1", "folder": "/runs/gate-1", "how": "gate", "reason": None, "verdict_time": None},
}  # fmt: skip
NODES = ["n1", "n2"]


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def seconds_at(seconds: float) -> float:
    return (BEGAN + timedelta(seconds=seconds)).timestamp()


class Builder:
    """Writes a run folder, event by event. ``second`` counts from BEGAN."""

    def __init__(self, root: Path, name: str = "run-1") -> None:
        root.mkdir(exist_ok=True, parents=True)
        self.folder = RunFolder.create(root / name)
        records.write_json(self.folder.spec, SPEC | {"run_id": name})

    def event(self, second: float, event: str, **details: Any) -> None:
        records.append_line(self.folder.events, {"schema": 1, "time": at(second), "event": event, **details})

    def steps(self, attempt: int, first: int, last: int, began: float) -> float:
        """Steps of one second each; return when the last was done."""
        for step in range(first, last + 1):
            began += 1
            local = datetime.fromtimestamp(seconds_at(began)).isoformat(timespec="microseconds")
            records.append_line(
                self.folder.metrics,
                {"attempt": attempt, "step": step, "of": 100, "time": local, "step_time_ms": 1000.0,
                 "losses": {"lm loss": 5.0 - step / 100}, "grad_norm": 1.0},
            )  # fmt: skip
        return began

    def start(self, second: float, number: int, why: str, resumed: int | None, **more: Any) -> None:
        self.folder.attempt(number).path.mkdir()
        passed_over = more.pop("passed_over", [])
        self.event(
            second, "attempt_started", attempt=number, why=why, resume_step=resumed, passed_over=passed_over
        )  # fmt: skip

    def end(self, number: int, started: float, ended: float, **record: Any) -> None:
        whole = {
            "schema": 1, "attempt": number, "passed_over": [], "nodes": NODES, "started": at(started),
            "ended": at(ended), "stop": None, "saved_on_signal": None, "ranks": [], "first_failed_rank": None,
            "failed_node": None, "last_lines": [], "class_why": "", "failed_step": None, **record,
        }  # fmt: skip
        records.write_json(self.folder.attempt(number).record, whole)
        keys = ("outcome", "reason", "exit_code")
        self.event(ended, "attempt_ended", attempt=number, **{key: record[key] for key in keys})
        decision = record["decision"]
        kind = {"restart": "restart", "requeue": "requeue"}.get(decision["action"], decision["action"])
        self.event(
            ended, "decision", decision=kind, attempt=number, **{"class": record["class"]}, **decision,
            exit_code=record["exit_code"],
        )  # fmt: skip


def decided(action: str, reason: str, exclude: tuple[str, ...] = (), delay: float = 0) -> dict[str, Any]:
    return {"action": action, "reason": reason, "exclude": list(exclude), "delay_seconds": delay}


def shares(**seconds: float) -> dict[str, float]:
    names = ("startup", "productive", "replayed", "saving", "evaluating", "idle")
    return dict.fromkeys(names, 0.0) | seconds


def three_attempts(root: Path, name: str = "run-1") -> RunFolder:
    """0-60 s queue; 60-120 s attempt 0; until 150 s queue; 150-200 s attempt 1; 10 s wait; 210-280 s attempt 2."""
    b = Builder(root, name)
    b.event(0.5, "submitted", executor="slurm", job_id="12", submit_time=at(0))
    b.event(60, "supervisor_started", job_id="12", restart_count=0, host="n1", nodes=NODES)
    b.start(60, 0, "first", None)
    b.steps(0, 1, 40, 70)
    b.event(115, "checkpoint_saved", step=40, attempt=0)
    b.end(
        0, 60, 120, why="first", resume_step=None, job={"id": "12", "restart": 0}, first_step=1, last_step=40,
        saved_steps=[40], stop="the time limit", saved_on_signal=True, outcome="stopped",
        reason="asked to stop by the time limit; step 40 of 100, checkpoint 40 saved", exit_code=83,
        **{"class": "time_limit"}, class_why="the slot's end was near", newest_checkpoint=40,
        decision=decided("requeue", "the slot is used up; it got from step 0 to 40"),
        seconds=shares(startup=10, productive=40, saving=5, idle=5), steps={"productive": 40, "replayed": 0},
    )  # fmt: skip
    b.event(120, "supervisor_ended", exit_code=83)
    b.event(150, "supervisor_started", job_id="12", restart_count=1, host="n1", nodes=NODES)
    b.start(150, 1, "resumed", 40)
    b.steps(1, 41, 60, 160)
    b.event(175, "checkpoint_saved", step=50, attempt=1)
    b.end(
        1, 150, 200, why="resumed", resume_step=40, job={"id": "12", "restart": 1}, first_step=41, last_step=60,
        saved_steps=[50], outcome="failed", reason="rank 3 ended with signal SIGKILL, without an exit record",
        exit_code=137, first_failed_rank=3, failed_node="n2", failed_step=61,
        last_lines=["NCCL WARN timeout", "Killed [red]"], **{"class": "network"},
        class_why="'NCCL WARN' in rank 3's log", newest_checkpoint=50,
        decision=decided("restart", "1 of 3 failures without a newer checkpoint", ("n2",), 10.0),
        seconds=shares(startup=10, productive=20, idle=20), steps={"productive": 20, "replayed": 0},
    )  # fmt: skip
    b.start(210, 2, "resumed", 50, passed_over=["iter_0000060: it lacks 2 files"])
    b.steps(2, 51, 100, 220)
    b.event(275, "checkpoint_saved", step=100, attempt=2)
    b.end(
        2, 210, 280, why="resumed", resume_step=50, checkpoint_why="the newest whole one",
        passed_over=["iter_0000060: it lacks 2 files"],
        job={"id": "12", "restart": 1}, first_step=51, last_step=100, saved_steps=[100], outcome="completed",
        reason="100 steps", exit_code=0, **{"class": "complete"}, newest_checkpoint=100,
        decision=decided("done", "100 steps"),
        seconds=shares(startup=10, productive=40, replayed=10, saving=5, idle=5),
        steps={"productive": 40, "replayed": 10},
    )  # fmt: skip
    b.event(281, "supervisor_ended", exit_code=0)
    return b.folder


NEW_KEYS = ("checkpoint_why", "class", "class_why", "decision", "seconds", "steps", "passed_over", "job",
            "newest_checkpoint", "saved_on_signal", "failed_step", "failed_node")  # fmt: skip


def as_of_old(folder: RunFolder) -> None:
    """Take away what older versions did not write."""
    for attempt in folder.attempts():
        record = records.read_json(attempt.record)
        records.write_json(attempt.record, {key: record[key] for key in record if key not in NEW_KEYS})
    events = [event for event in records.read_lines(folder.events) if "supervisor" not in event["event"]]
    folder.events.unlink()
    for event in events:
        if event["event"] == "decision":
            if event["decision"] not in ("done", "stop"):
                continue
            event = {key: event[key] for key in ("schema", "time", "event", "decision", "exit_code", "reason")}
        if event["event"] == "attempt_started":
            event.pop("passed_over")
        records.append_line(folder.events, event)
