"""Whether a run is over, and its supervisor's decisions in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FINAL = ("done", "stop")
BEGINNINGS = ("attempt_started", "requeue_requested")
_NO_FAILURES = ("complete", "time_limit", "preempted", "cancelled")
_CLASSES = {"oom_gpu": "out of memory on a GPU", "oom_host": "out of memory on a host", "nan": "NaN or Inf",
            "gpu_fault": "GPU fault"}  # fmt: skip


class Standing:
    """Whether a run is over, from its events as they come: a final decision, and nothing that began after it.

    Slurm may start the job of a run that is over; a supervisor that then only ends again changes nothing.
    """

    def __init__(self) -> None:
        self._final = self._taken_up = False
        self._decided_at = ""

    @property
    def ended(self) -> bool:
        return self._final and not self._taken_up

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one line of events.jsonl."""
        name = event.get("event")
        if name == "decision":
            self._final, self._taken_up = event.get("decision") in FINAL, False
            self._decided_at = str(event.get("time"))
        elif name in ("supervisor_started", "supervisor_ended"):
            self._taken_up = name == "supervisor_started"
        elif name in BEGINNINGS or (name == "submitted" and since(event) > self._decided_at):
            self._final = False


def since(submitted: Mapping[str, Any]) -> str:
    """Return the time from which events belong to this submission: a quick job writes before the submission does."""
    return str(submitted.get("submit_time") or submitted.get("time") or "")


def decision_words(event: Mapping[str, Any]) -> str:
    """Return a ``decision`` event in words: ``attempt 1 failed: network: …; restarting in place in 10 s``."""
    reason, named = event.get("reason"), event.get("class")
    if event.get("decision") in FINAL:
        code = f"exit code {event.get('exit_code')}" + (f", {class_words(named)}" if named else "")
        return f"{event['decision']} ({code}): {reason}"
    ended = "ended" if named in _NO_FAILURES else "failed"
    head = [f"attempt {event['attempt']} {ended}"] if event.get("attempt") is not None else []
    return ": ".join([*head, *([class_words(named)] if named else []), str(reason)]) + f"; {action_words(event)}"


def action_words(decision: Mapping[str, Any]) -> str:
    """Return what a decision does about the run."""
    action = str(decision.get("action") or decision.get("decision"))
    how = "requeued" if "requeue" in (decision.get("decision"), action) else "restarting in place"
    words = {
        "restart": "restarting in place", "requeue": "requeued", "requeue_excluding": "requeued",
        "restart_on_spare": "restarting on a spare node",
        "earlier_checkpoint": f"{how} from an earlier checkpoint",
    }.get(action, action)  # fmt: skip
    if decision.get("exclude"):
        words += f" without {node_words(decision['exclude'])}"
    delay = decision.get("delay_seconds")
    return words + (f" in {delay:.0f} s" if isinstance(delay, (int, float)) and delay > 0 else "")


def class_words(name: Any) -> str:
    """Return a class of attempts' ends for people."""
    return _CLASSES.get(str(name), str(name).replace("_", " "))


def node_words(nodes: Any, most: int = 4) -> str:
    """Return the names of nodes, of many the first."""
    if not isinstance(nodes, Sequence) or isinstance(nodes, str):
        return str(nodes)
    shown = ", ".join(map(str, nodes[:most]))
    return shown + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def request_words(event: Mapping[str, Any]) -> str:
    """Return a ``requeue_requested`` event in words."""
    told = [
        f"from step {event['from_step']}" if event.get("from_step") is not None else "",
        f"without {node_words(event['exclude'])}" if event.get("exclude") else "",
        f"taking the last end as {class_words(event['force_class'])}" if event.get("force_class") else "",
        f"on profile {event['profile']}" if event.get("profile") else "",
    ]
    return ", ".join([f"requeue asked for by {event.get('by')}", *filter(None, told)])
