"""What `watch` shows of a run: built from its records as they come, and turned into lines. Nothing here prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from seatrial.report.decisions import FINAL, Standing, class_words, decision_words, node_words, request_words
from seatrial.report.facts import loss_of
from seatrial.report.status import Job, duration, number
from seatrial.run.records import decode_float

_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", ".:-=+*#@"
_TYPICAL = 20  # steps
_ATTEMPTS_SHOWN = 5


@dataclass
class AttemptView:
    """One attempt: why it started, its steps, how it ended (empty while it runs), and the class of that end."""

    number: int
    why: str = ""
    first: int | None = None
    last: int | None = None
    ended: str = ""
    named: str = ""

    def line(self) -> str:
        steps = "no step" if self.first is None else f"steps {self.first}-{self.last}"
        why = f" ({self.why})" if self.why else ""
        named = f" [{self.named}]" if self.named else ""
        return f"attempt {self.number}{why}: {steps}, {self.ended or 'running'}{named}"


@dataclass
class View:
    """A run so far. ``losses``: step -> loss, of the attempt that did the step last."""

    run_id: str
    total: int | None = None
    step: int = 0
    losses: dict[int, float | None] = field(default_factory=dict)
    grad_norm: float | None = None
    step_times_ms: list[float] = field(default_factory=list)
    attempts: dict[int, AttemptView] = field(default_factory=dict)
    decision: str = ""
    note: str = ""
    verdict: str = ""
    standing: Standing = field(default_factory=Standing)

    @property
    def ended(self) -> bool:
        """Whether its supervisor is done with it."""
        return self.standing.ended

    def add_step(self, record: Mapping[str, Any]) -> None:
        """Take one line of metrics.jsonl."""
        self.step, self.total = int(record["step"]), int(record["of"])
        if self.losses and next(reversed(self.losses)) >= self.step:
            # An attempt that resumed does some steps again: what came after is no longer so.
            self.losses = {step: loss for step, loss in self.losses.items() if step < self.step}
        self.losses[self.step] = loss_of(record)
        self.grad_norm = decode_float(record.get("grad_norm"))
        time_ms = decode_float(record.get("step_time_ms"))
        if time_ms is not None:
            self.step_times_ms = [*self.step_times_ms[-_TYPICAL + 1 :], time_ms]
        attempt = self._attempt(record.get("attempt"))
        attempt.first = self.step if attempt.first is None else attempt.first
        attempt.last = self.step

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Take one line of events.jsonl."""
        self.note = event_words(event) or self.note
        self.standing.add(event)
        name = event.get("event")
        if name == "attempt_started":
            self._attempt(event.get("attempt")).why = str(event.get("why") or "")
            self.verdict = ""
        elif name == "attempt_ended":
            self._attempt(event.get("attempt")).ended = f"{event.get('outcome')}: {event.get('reason')}"
        elif name == "verdict":
            self.verdict = str(event.get("verdict"))
        elif name == "decision":
            self.decision = decision_words(event)
            if event.get("class") and event.get("attempt") in self.attempts:
                self.attempts[event["attempt"]].named = class_words(event["class"])

    def _attempt(self, named: Any) -> AttemptView:
        which = named if isinstance(named, int) else 0
        return self.attempts.setdefault(which, AttemptView(which))

    @property
    def eta_seconds(self) -> float | None:
        """The time that the steps left take at the pace of the last ones."""
        if self.total is None or not self.step_times_ms:
            return None
        return max(0, self.total - self.step) * median(self.step_times_ms) / 1000


def event_words(event: Mapping[str, Any]) -> str:
    """Return an event for people; empty for one that tells them nothing."""
    at = {key: event.get(key) for key in ("attempt", "step", "rank", "reason", "why", "which", "by")}
    name = event.get("event")
    if name == "submitted":
        return f"submitted as {'process' if event.get('executor') == 'local' else 'job'} {event.get('job_id')}"
    if name == "attempt_started":
        resumed = event.get("resume_step")
        return f"attempt {at['attempt']} starts" + ("" if resumed is None else f" from checkpoint {resumed}")
    if name == "evaluation":
        loss = decode_float((event.get("losses") or {}).get("lm loss"))
        return f"{at['which']} loss {number(loss)} at step {at['step']}"
    if name == "rank_exited":
        return f"rank {at['rank']} {event.get('how')}" if event.get("code") else ""
    if name == "attempt_ended":
        return f"attempt {at['attempt']} {event.get('outcome')}: {at['reason']}"
    if name == "decision":
        return ("decision: " if event.get("decision") in FINAL else "") + decision_words(event)
    if name == "supervisor_started":
        again = f", restart {event['restart_count']}" if event.get("restart_count") else ""
        where = node_words(event.get("nodes") or [event.get("host")])
        return f"job {event['job_id']}{again} runs on {where}" if event.get("job_id") else f"runs on {where}"
    if name == "checkpoints_deleted":
        return f"checkpoints {', '.join(map(str, event.get('steps') or ['none']))} deleted"
    if name in ("returned", "tended"):
        return str(event.get("words"))
    if name == "requeue_requested":
        return request_words(event)
    fixed = {
        "ranks_started": "ranks are starting", "loop_started": "training starts", "created": "", "evidence": "",
        "loop_ended": "", "supervisor_ended": "", "checkpoint_saved": f"checkpoint {at['step']} saved",
        "resume_check_started": f"resume check: again from checkpoint {at['step']}", "resume_check_ended": "judging",
        "verdict": f"{event.get('verdict')}",
        "stop_requested": f"asked to stop by {at['by']}: the ranks save and end",
    }  # fmt: skip
    return fixed.get(str(name), f"{name}: {at['reason']}" if at["reason"] else str(name))


def step_words(view: View) -> str:
    """Return the progress of a run in one line."""
    parts = [f"step {view.step}/{'?' if view.total is None else view.total}"]
    if view.step:
        parts += [f"loss {number(view.losses.get(view.step))}", f"grad norm {number(view.grad_norm)}"]
    if view.step_times_ms:
        parts.append(f"{median(view.step_times_ms):.0f} ms/step")
    if view.eta_seconds is not None and not view.ended:
        parts.append(f"ETA {duration(view.eta_seconds)}")
    return "  ".join(parts)


def job_words(job: Job | None) -> str:
    """Return the state of the job in one line."""
    if job is None:
        return "asking for the state of its job"
    where = f" on {job.nodes}" if job.nodes else ""
    again = f", restarted {job.restarts} times" if job.restarts else ""
    return f"job {job.job_id or '-'}: {job.state}{where}{again}" + (f" ({job.reason})" if job.reason else "")


def lines(view: View, job: Job | None, width: int, *, blocks: bool = True) -> list[str]:
    """Return the whole view, each line cut to ``width`` cells. ``blocks``: the terminal has block elements."""
    return [line[:width] for line in _lines(view, job, width, blocks)]


def _lines(view: View, job: Job | None, width: int, blocks: bool) -> Iterator[str]:
    yield view.run_id
    yield job_words(job)
    yield ""
    done = view.step / view.total if view.total else 0.0
    bar = max(10, min(60, width - 20))
    full = int(done * bar)
    yield f"[{'#' * full}{'.' * (bar - full)}] {done:4.0%}"
    yield step_words(view)
    if view.losses:
        known = [loss for loss in view.losses.values() if loss is not None and math.isfinite(loss)]
        steps = list(view.losses)
        yield "loss  " + sparkline(list(view.losses.values()), max(10, min(100, width - 8)), blocks=blocks)
        if known:
            yield f"      steps {steps[0]}-{steps[-1]}: from {number(known[0])}, least {number(min(known))}"
    yield ""
    shown = sorted(view.attempts)[-_ATTEMPTS_SHOWN:]
    if len(view.attempts) > len(shown):
        yield f"{len(view.attempts) - len(shown)} earlier attempts"
    yield from (view.attempts[which].line() for which in shown)
    yield f"last decision: {view.decision or 'none yet'}"
    if view.note:
        yield f"latest: {view.note}"
    if job is not None and job.needs_action:
        yield f"! {job.needs_action}"
    yield ""
    yield "q or Ctrl-C: leave; the run goes on"


def sparkline(values: Sequence[float | None], width: int, *, blocks: bool = True) -> str:
    """Return ``values`` as at most ``width`` signs from the least to the greatest; neighbours share one by their mean.

    A share with a value that is no number is "!", one without any value a space.
    """
    signs = _BLOCKS if blocks else _ASCII
    count = min(width, len(values))
    if count < 1:
        return ""
    shares = [values[len(values) * n // count : len(values) * (n + 1) // count] for n in range(count)]
    means = [_mean(share) for share in shares]
    known = [mean for mean in means if mean is not None and math.isfinite(mean)]
    least, most = min(known, default=0.0), max(known, default=0.0)
    return "".join(_sign(mean, least, most, signs) for mean in means)


def _mean(share: Sequence[float | None]) -> float | None:
    known = [value for value in share if value is not None]
    return sum(known) / len(known) if known else None


def _sign(mean: float | None, least: float, most: float, signs: str) -> str:
    if mean is None:
        return " "
    if not math.isfinite(mean):
        return "!"
    place = (mean - least) / (most - least) if most > least else 0.0
    return signs[min(len(signs) - 1, int(place * len(signs)))]
