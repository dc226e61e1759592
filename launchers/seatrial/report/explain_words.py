"""The explanation of a run as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from seatrial.report.decisions import FINAL, action_words, class_words, decision_words, node_words, request_words
from seatrial.report.status import duration

_NOT = "not recorded"
_SHARES = ("queue", "startup", "productive", "replayed", "saving", "evaluating", "idle")
_NAMES = {"startup": "start-up"}
_PLAIN = {"first": "the run's first", "resumed": "resumed"}


def lines(data: Mapping[str, Any]) -> Iterator[str]:
    """Return what ``seatrial explain`` prints of an ``explanation``."""
    yield f"{data['run']} ({', '.join(filter(None, (data['kind'], data['recipe'], data['profile'])))})"
    if data["admission"]:
        yield f"admission: {_admission(data['admission'])}"
    asked = sorted(data["requests"], key=lambda request: str(request["time"]))
    preflights = list(data["preflights"])
    for attempt in data["attempts"]:
        while asked and attempt["started"] and _second(asked[0]["time"]) <= _second(attempt["started"]):
            yield from _request(asked.pop(0))
        yield ""
        yield from _attempt(attempt, [one for one in preflights if one["attempt"] == attempt["attempt"]])
        preflights = [one for one in preflights if one["attempt"] != attempt["attempt"]]
    for one in preflights:
        yield ""
        yield f"{_clock(one['time'])}: before attempt {one['attempt']}, which has not begun"
        yield from (f"  {'preflight':11} {words}" for words in preflight_words(one))
    for request in asked:
        yield from _request(request)
    yield ""
    if not data["attempts"]:
        yield "no attempt yet"
    if data["excluded_nodes"]:
        yield "nodes left out: " + ", ".join(_excluded(node) for node in data["excluded_nodes"])
    yield _end(data)
    yield ""
    yield from time_lines(data["goodput"])


def time_lines(goodput: Mapping[str, Any]) -> Iterator[str]:
    """Return the table of a run's time shares and what they come to."""
    wall = goodput["wall"]
    yield f"{'time':12} {'seconds':>12} {'%':>6}"
    for name in (*_SHARES, "wall"):
        part = f"{100 * goodput[name] / wall:6.1f}" if wall else f"{'-':>6}"
        yield f"{_NAMES.get(name, name):12} {goodput[name]:12.1f} {part}"
    yield goodput_words(goodput)
    again = goodput["steps_replayed"]
    yield f"steps: {goodput['steps_productive']} for the first time, {again} again"


def goodput_words(goodput: Mapping[str, Any]) -> str:
    """Return the goodput in one line."""
    parts = [
        f"{goodput[key]:.1%}" if goodput[key] is not None else "unknown" for key in ("with_queue", "without_queue")
    ]
    return f"goodput: {parts[0]} of the wall time, {parts[1]} without the queue"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def preflight_words(one: Mapping[str, Any]) -> Iterator[str]:
    """Return a preflight in words: what it came to, and a line for each node that did not pass."""
    nodes, skipped = _list(one["nodes"]), _list(one["skipped"])
    failed = one["failed"] if isinstance(one["failed"], dict) else {}
    if one["asked"] is False:
        yield "could not be made: nobody could be asked"
    else:
        unchecked = f"; not checked: {', '.join(skipped)}" if skipped else ""
        yield f"{len(nodes) - len(failed)} of {len(nodes)} nodes fit, in {duration(one['seconds'] or 0)}{unchecked}"
    for node, sentences in failed.items():
        tries = f" ({one['tries']} tries)" if one["tries"] != 1 else ""
        yield f"{node} not fit{tries}: {'; '.join(sentences)}"


def _attempt(one: Mapping[str, Any], preflights: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    why = _PLAIN.get(str(one["why"]), str(one["why"]))
    yield f"attempt {one['attempt']}: {_NOT if 'why' in one['not_recorded'] else why}"
    yield from (f"  {'preflight':11} {words}" for preflight in preflights for words in preflight_words(preflight))
    for name, text in _facts(one):
        if text:
            yield f"  {name:11} {text}"
        if name == "failed":
            yield from (f"    | {line}" for line in one["last_lines"] or [])


def _facts(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    lost = one["not_recorded"]

    def said(key: str, words: str) -> str:
        return _NOT if key in lost else words

    yield "started", f"{_clock(one['started'])}{_job(one['job'])}"
    yield "nodes", said("nodes", node_words(one["nodes"] or [], 8) or "unknown")
    yield "from", said("resume_step", _from(one))
    for text in one["passed_over"] or []:
        yield "passed over", str(text)
    yield "steps", _steps(one)
    if one["live"]:
        yield "ended", "not yet"
    else:
        yield "ended", f"{_clock(one['ended'])}{_lasted(one)}: {one['outcome'] or 'unknown'}: {one['reason'] or _NOT}"
        yield "stop asked", f"by {one['stop']}; saved on signal: {_saved(one)}" if one["stop"] else ""
        yield "class", said("class", ": ".join(filter(None, (class_words(one["class"]), one["class_why"]))))
        yield "failed", _failed(one)
        yield "decision", said("decision", _decision(one["decision"]))
    yield "time", _time(one)


def _from(one: Mapping[str, Any]) -> str:
    step = one["resume_step"]
    words = "step 1, no checkpoint" if step is None else f"checkpoint {step}"
    words += ", to evaluate only" if one["evaluate_only"] else ""
    more = one["checkpoint_why"] not in (None, "", one["why"])
    return words + (f": {one['checkpoint_why']}" if more else "")


def _steps(one: Mapping[str, Any]) -> str:
    done = one["steps"]["productive"] + one["steps"]["replayed"]
    words = f"{one['first_step']}-{one['last_step']}" if one["first_step"] is not None else str(done or "none")
    words += " so far" if one["live"] else ""
    if one["steps"]["replayed"]:
        words += f" ({one['steps']['replayed']} of them again)"
    saved = _list(one["saved_steps"])
    if saved:
        first = f"{len(saved)} checkpoints, the last " if len(saved) > 1 else ""
        words += f"; saved {first}{saved[-1]}"
    newest = one["newest_checkpoint"]
    return words + (f"; newest whole checkpoint {newest}" if newest is not None else "")


def _failed(one: Mapping[str, Any]) -> str:
    if one["first_failed_rank"] is None:
        return ""
    step = f", at step {one['failed_step']}" if one["failed_step"] is not None else ""
    return f"rank {one['first_failed_rank']} first, on {one['failed_node'] or 'a node that is ' + _NOT}{step}"


def _saved(one: Mapping[str, Any]) -> str:
    if "saved_on_signal" in one["not_recorded"]:
        return _NOT
    return {True: "yes", False: "no"}.get(one["saved_on_signal"], "there was no step to save")


def _decision(decision: Any) -> str:
    if not isinstance(decision, dict):
        return "none"
    words = action_words(decision)
    return f"{words}: {decision['reason']}" if decision.get("reason") else words


def _time(one: Mapping[str, Any]) -> str:
    seconds = one["seconds"]
    if seconds is None:
        return _NOT
    shown = [name for name in _SHARES if seconds.get(name, 0) >= 0.05]
    return ", ".join(f"{_NAMES.get(name, name)} {seconds[name]:.1f} s" for name in shown) or "none"


def _lasted(one: Mapping[str, Any]) -> str:
    return "" if one["seconds"] is None else f", after {duration(sum(one['seconds'].values()))}"


def _job(job: Any) -> str:
    if not isinstance(job, dict) or job.get("id") is None:
        return ""
    return f", job {job['id']}" + (f" (restart {job['restart']})" if job.get("restart") else "")


def _request(request: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"{_clock(request['time'])}: {request_words(request)}"


def _excluded(entry: Mapping[str, Any]) -> str:
    return f"{entry['node']} (" + (
        f"after attempt {entry['after_attempt']})" if "by" not in entry else f"by {entry['by']})"
    )


def _admission(admission: Any) -> str:
    if not isinstance(admission, dict):
        return str(admission)
    if admission.get("how") == "none":
        return f"without a gate: {admission.get('reason')}"
    return f"by gate {admission.get('gate')}" + (" (submitted with it)" if admission.get("how") == "after-gate" else "")


def _end(data: Mapping[str, Any]) -> str:
    verdict = f"verdict {data['verdict']}; " if data["verdict"] else ""
    decision = data["decision"]
    if decision and decision.get("decision") in FINAL:
        return f"{verdict}{decision_words(decision)}"
    return (
        f"{verdict}it goes on" if data["goes_on"] else f"{verdict}its job is over, and its supervisor left no decision"
    )


def _clock(time: Any) -> str:
    return f"{str(time)[:19].replace('T', ' ')} UTC" if time else "unknown"


def _second(time: Any) -> str:
    return str(time)[:19]
