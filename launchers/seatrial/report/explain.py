"""Why a run went as it did: its attempts, the decisions between them, and where its time went. As plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.judge.history import AttemptRecord, read_events, read_history
from seatrial.judge.run_goodput import Goodput, run_goodput
from seatrial.report.facts import read_facts
from seatrial.run import records
from seatrial.run.layout import RunFolder

# What an attempt's record holds. An older one lacks some: those are null, and named in ``not_recorded``.
_KEYS = (
    "why", "resume_step", "passed_over", "job", "nodes", "first_step", "last_step", "saved_steps", "newest_checkpoint",
    "stop", "saved_on_signal", "outcome", "reason", "exit_code", "class", "class_why", "failed_step",
    "first_failed_rank", "failed_node", "last_lines", "decision",
)  # fmt: skip
_MORE = ("checkpoint_why", "evaluate_only")  # said where there is something to say
_AT_ITS_END = _KEYS[_KEYS.index("first_step") :]
_ASKED = ("time", "by", "from_step", "exclude", "force_class", "profile")
_PREFLIGHT = ("time", "attempt", "nodes", "failed", "skipped", "tries", "seconds", "asked")


def goodput_of(folder: RunFolder, now: float | None) -> Goodput:
    """Return where a run's time went. ``now``: seconds since 1970 where the run goes on, None where it is over."""
    events = read_events(folder)
    return run_goodput(read_history(folder, events, now), events, now)


def explanation(folder: RunFolder, now: float | None, attempt: int | None = None) -> dict[str, Any]:
    """Return the run as ``seatrial explain --json`` prints it. ``attempt``: only this one.

    ``now``: seconds since 1970 where the run goes on, None where it is over. Raises SeatrialError where there is no
    such attempt.
    """
    events, facts = read_events(folder), read_facts(folder)
    history = read_history(folder, events, now)
    if attempt is not None and attempt not in [one.number for one in history]:
        there = ", ".join(str(one.number) for one in history) or "none yet"
        raise SeatrialError(f"no attempt {attempt}", file=folder.path, key="--attempt", rule=f"one of: {there}")
    shown = [one for one in history if attempt in (None, one.number)]
    return {
        "run": facts.run_id, "folder": str(folder.path), "kind": facts.kind, "recipe": facts.recipe,
        "profile": facts.profile, "created": facts.created, "admission": _admission(folder),
        "goes_on": now is not None, "target_step": facts.total,
        "decision": dict(facts.decision) if facts.ended else None, "verdict": facts.verdict,
        "attempts": [_attempt(one) for one in shown],
        "requests": [_picked(event, _ASKED) for event in events if event.get("event") == "requeue_requested"],
        "excluded_nodes": _excluded(history, events),
        "preflights": [
            _picked(event, _PREFLIGHT) for event in events
            if event.get("event") == "preflight" and attempt in (None, event.get("attempt"))
        ],
        "goodput": run_goodput(history, events, now).to_json(),
    }  # fmt: skip


def _attempt(one: AttemptRecord) -> dict[str, Any]:
    unknown = [key for key in _KEYS if key not in one.data and not (one.live and key in _AT_ITS_END)]
    return {
        "attempt": one.number, "live": one.live, "started": _iso(one.started), "ended": _iso(one.ended),
        **_picked(one.data, (*_KEYS, *_MORE)), "seconds": None if one.shares is None else one.shares.to_json(),
        "steps": one.steps.to_json(), "not_recorded": unknown,
    }  # fmt: skip


def _picked(data: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: data.get(key) for key in keys}


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _admission(folder: RunFolder) -> Any:
    return (records.read_object(folder.spec) or {}).get("admission")


def _excluded(history: Iterable[AttemptRecord], events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes that were left out, and after which attempt or by whose word."""
    found = []
    for one in history:
        decision = one.data.get("decision")
        nodes = decision.get("exclude") if isinstance(decision, dict) else None
        found += [{"node": str(node), "after_attempt": one.number} for node in nodes or []]
    for event in events:
        if event.get("event") == "requeue_requested":
            found += [{"node": str(node), "by": event.get("by")} for node in event.get("exclude") or []]
    return found
