"""What a run tells people about itself: from the supervisor's events to messages. Pure; nothing of the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

SCHEMA = 1
START, DECISION, DONE, STOP = "start", "decision", "done", "stop"
EVENTS = (START, DECISION, DONE, STOP)
_LONGEST = 600  # characters of a reason
_FOLLOWS = {
    "restart": "it goes on in this allocation",
    "restart_on_spare": "it goes on in this allocation, on a spare node",
    "earlier_checkpoint": "it goes on in this allocation, from an earlier checkpoint",
    "requeue": "the job goes back into the queue",
    "requeue_excluding": "the job goes back into the queue",
}


@dataclass(frozen=True)
class Run:
    """What stays the same in a supervisor's turn. ``drill``: FAULT@STEP of a gate that a fault is put into."""

    run: str
    folder: str
    recipe: str
    kind: str
    profile: str
    rehearsal: bool
    drill: Optional[str]
    target: Optional[int]
    job: Optional[str]
    restart: int
    cluster: Optional[str]
    host: str


@dataclass(frozen=True)
class Standing:
    """How far the run is, as far as this turn's events tell."""

    attempt: Optional[int] = None
    why: Optional[str] = None
    step: Optional[int] = None
    nodes: Sequence[str] = ()
    verdict: Optional[str] = None
    started: bool = False


def run_of(spec: Mapping[str, Any], folder: str, target: Optional[int], place: Mapping[str, str], host: str) -> Run:
    """Return the facts of a run. ``place``: the job's environment, of which only Slurm's names of the job are used."""
    drill = spec.get("drill")
    return Run(
        str(spec["run_id"]), folder, str(spec.get("recipe") or ""), str(spec["kind"]),
        str(spec["profile"].get("name") or ""), bool(spec.get("rehearsal")),
        f"{drill['fault']}@{drill['step']}" if drill else None, target, place.get("SLURM_JOB_ID"),
        int(place.get("SLURM_RESTART_COUNT") or 0), place.get("SLURM_CLUSTER_NAME"),
        place.get("SLURMD_NODENAME") or host,
    )  # fmt: skip


def after(standing: Standing, event: Mapping[str, Any]) -> Standing:
    """Return how the run stands once ``event`` has happened."""
    name = event.get("event")
    if name == "attempt_started":
        step = event.get("resume_step")
        return replace(standing, attempt=event.get("attempt"), why=event.get("why"), step=step or standing.step)
    if name == "ranks_started":
        return replace(standing, nodes=tuple(event.get("nodes") or ()), started=True)
    if name == "attempt_ended":
        return replace(standing, attempt=event.get("attempt"), step=event.get("last_step") or standing.step)
    if name == "verdict":
        return replace(standing, verdict=event.get("verdict"))
    return standing


def topic(event: Mapping[str, Any], before: Standing) -> Optional[str]:
    """Return which of EVENTS an event of the supervisor is; None for one that nobody is told of.

    A start is told once in a supervisor's turn. A job that Slurm did not take back is a stop: nothing runs any more.
    """
    name = event.get("event")
    if name == "ranks_started":
        return None if before.started else START
    if name == "returned":
        return None if event.get("done") else STOP
    if name == "decision":
        return {"done": DONE, "stop": STOP}.get(str(event.get("decision")), DECISION)
    return None


def message(about: str, event: Mapping[str, Any], run: Run, now: Standing) -> dict[str, Any]:
    """Return the message on ``event``, whose topic is ``about``, as the site's command gets it."""
    said = {
        "schema": SCHEMA, "event": about, "time": event.get("time"),
        "run": run.run, "run_folder": run.folder, "recipe": run.recipe, "kind": run.kind, "profile": run.profile,
        "rehearsal": run.rehearsal, "drill": run.drill, "job_id": run.job, "restart_count": run.restart,
        "cluster": run.cluster, "host": run.host, "attempt": now.attempt, "nodes": list(now.nodes), "step": now.step,
        "target_step": run.target, "action": event.get("action"), "class": event.get("class"),
        "reason": _short(now.why if about == START else event.get("reason") or event.get("words")),
        "exit_code": event.get("exit_code"), "verdict": now.verdict if about in (DONE, STOP) else None,
        "follows": _follows(about, event, run), "goodput": None,
    }  # fmt: skip
    return {**said, "text": text(said)}


def with_goodput(said: Mapping[str, Any], goodput: Optional[float]) -> dict[str, Any]:
    """Return the message with the run's goodput (0 to 1, without the time in the queue)."""
    known = {**said, "goodput": None if goodput is None else round(goodput, 4)}
    return {**known, "text": text(known)}


def text(said: Mapping[str, Any]) -> str:
    """Return a message in words, as people read it."""
    labels = [*(["a rehearsal"] if said["rehearsal"] else []), *([f"drill {said['drill']}"] if said["drill"] else [])]
    label = f" ({', '.join(labels)})" if labels else ""
    head = f"{said['run']}{label}: {_headline(said)}"
    job = f"job {said['job_id']}" + (f", restart {said['restart_count']}" if said["restart_count"] else "")
    place = [
        f"{said['kind']} of {said['recipe']}", f"profile {said['profile']}", *([job] if said["job_id"] else []),
        f"cluster {said['cluster']}, host {said['host']}" if said["cluster"] else f"host {said['host']}",
    ]  # fmt: skip
    lines = [head, *([str(said["reason"])] if said["reason"] else [])]
    if said["follows"]:
        lines.append(f"next: {said['follows']}")
    return "\n".join([*lines, "; ".join(place)])


def slack(said: Mapping[str, Any]) -> dict[str, str]:
    """Return what a Slack-compatible webhook takes. Escaped, so that no word of a log mentions anybody."""
    shown = str(said["text"])
    for sign, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        shown = shown.replace(sign, escaped)
    return {"text": shown}


def _headline(said: Mapping[str, Any]) -> str:
    step, target = said["step"], said["target_step"]
    at = f"before the first of {target} steps" if step is None else f"at step {step} of {target}"
    if said["event"] == START:
        return f"attempt {said['attempt']} started on {_nodes(said['nodes'])}, {at}"
    if said["event"] == DECISION:
        return f"{said['action']} after {said['class']} in attempt {said['attempt']}, {at}"
    verdict = f", verdict {said['verdict']}" if said["verdict"] else ""
    goodput = f", goodput {said['goodput']:.1%}" if said["goodput"] is not None else ""
    if said["event"] == DONE:
        return f"done{verdict}, {at}{goodput}"
    why = f" ({said['class']})" if said["class"] else ""
    code = f", exit code {said['exit_code']}" if said["exit_code"] is not None else ""
    return f"stopped{why}{verdict}, {at}{code}{goodput}"


def _nodes(nodes: Sequence[str]) -> str:
    return "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"


def _follows(about: str, event: Mapping[str, Any], run: Run) -> Optional[str]:
    if about == DECISION:
        action = str(event.get("action"))
        words = _FOLLOWS.get(action, action)
        delay, without = event.get("delay_seconds"), ", ".join(event.get("exclude") or ())
        return words + (f", in {delay:.0f} s" if delay else "") + (f", without {without}" if without else "")
    if about != STOP:
        return None
    if event.get("event") == "returned":
        return f"the run is not over, and no job of it is left: seatrial requeue {run.run}"
    return f"nothing by itself: seatrial explain {run.run}"


def _short(reason: Any) -> Optional[str]:
    if not reason:
        return None
    words = " ".join(str(reason).split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
