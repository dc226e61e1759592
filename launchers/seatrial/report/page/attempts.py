"""The parts about attempts, events, time shares and nodes of one run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seatrial.judge import clock
from seatrial.judge.history import AttemptRecord
from seatrial.report.decisions import action_words, class_words
from seatrial.report.page.markup import Markup, details, html, table, tag
from seatrial.report.page.nodes import decision_of
from seatrial.report.page.records import Run, attempt_to, listed, node_spans
from seatrial.report.page.records import clock as clock_words
from seatrial.report.page.timeline import class_of, tone_of
from seatrial.report.page.times import shares_bar
from seatrial.report.status import duration
from seatrial.report.watch import event_words

_MOST_EVENTS = 400
_LAST_LINES = 40
# Told elsewhere on the page, and often.
_ELSEWHERE = frozenset({"evaluation", "evidence", "checkpoint_saved", "attempt_record", "loop_ended"})


def attempts_part(run: Run) -> Markup:
    """Return the attempts, a row each, and the events."""
    if not run.history:
        return html(tag("p", "No attempt has begun yet."), _events(run))
    heads = ["#", "started", "steps", "end", "what happened", "decision", "time"]
    rows = [_row(run, one) for one in run.history]
    return html(table(heads, rows, "Attempts"), _requests(run), _events(run))


def _row(run: Run, one: AttemptRecord) -> Markup:
    data, tone = one.data, tone_of(one)
    ended = "goes on" if one.live else str(data.get("outcome") or "unknown")
    job = data.get("job")
    number = job.get("id") if isinstance(job, Mapping) else None
    start = [tag("div", clock_words(one.started)), tag("div", data.get("why") or "", class_="muted small")]
    if number is not None:
        again = f", restart {job['restart']}" if isinstance(job, Mapping) and job.get("restart") else ""
        start.append(tag("div", f"job {number}{again}", class_="muted small"))
    shares = Markup() if one.shares is None else shares_bar(one.shares.to_json(), f"Time of attempt {one.number}")
    pill = tag("span", class_of(one), class_=f"pill {tone if tone != 'plain' else ''}".strip())
    what = f"{ended}: {data.get('reason')}" if data.get("reason") else ended
    return tag(
        "tr", tag("th", one.number, scope="row"), tag("td", *start, class_="nowrap"),
        tag("td", _steps(one), class_="nowrap"), tag("td", pill, tag("div", _lasted(one), class_="muted small")),
        tag("td", tag("div", what), _more(one), class_="wider"),
        tag("td", attempt_to(lambda: _decided(one)) or "", class_="wide"), tag("td", shares),
        id=f"{run.prefix}attempt-{one.number}",
    )  # fmt: skip


def _lasted(one: AttemptRecord) -> str:
    return "" if one.started is None or one.ended is None else "after " + duration(max(0.0, one.ended - one.started))


def _from(data: Mapping[str, Any]) -> str:
    if "resume_step" not in data:
        return "from where is not recorded"
    return "from the beginning" if data["resume_step"] is None else f"from checkpoint {data['resume_step']}"


def _steps(one: AttemptRecord) -> Markup:
    data = one.data
    first, last = data.get("first_step"), data.get("last_step")
    words = f"{first}-{last}" if first is not None else str(one.steps.productive + one.steps.replayed or "none")
    again = f"{one.steps.replayed} again" if one.steps.replayed else ""
    newest = data.get("newest_checkpoint")
    saved = f"saved {newest}" if newest is not None else ""
    said = (_from(data), again, saved)
    return html(tag("div", words), *(tag("div", more, class_="muted small") for more in said if more))


def _more(one: AttemptRecord) -> Markup:
    """Return what is worth unfolding: who failed, why it has this class, passed over checkpoints, the last lines."""
    data = one.data
    said: list[tuple[str, Any]] = [("class", data.get("class_why"))]
    if data.get("first_failed_rank") is not None:
        step = f", at step {data['failed_step']}" if data.get("failed_step") is not None else ""
        where = data.get("failed_node") or "a node that is not recorded"
        said.append(("failed first", f"rank {data['first_failed_rank']} on {where}{step}"))
    said += [("passed over", text) for text in listed(data.get("passed_over"))[:20]]
    if data.get("stop"):
        said.append(("asked to stop by", data["stop"]))
    lines = [str(line) for line in listed(data.get("last_lines"))[-_LAST_LINES:]]
    shown = [tag("div", tag("span", f"{name}: ", class_="muted"), text) for name, text in said if text]
    if lines:
        shown.append(tag("pre", "\n".join(lines)))
    return details("more", *shown) if shown else Markup()


def _decided(one: AttemptRecord) -> str:
    decision = decision_of(one)
    if not decision:
        return "" if one.live else "none on record"
    return f"{action_words(decision)}: {decision.get('reason')}" if decision.get("reason") else action_words(decision)


def _requests(run: Run) -> Markup:
    asked = [
        tag("li", f"{str(event.get('time'))[:19]} UTC: {words}") for event in run.events
        if event.get("event") == "requeue_requested" and (words := _words(event))
    ]  # fmt: skip
    return html(tag("h3", "Requests by hand"), tag("ul", *asked)) if asked else Markup()


def _events(run: Run) -> Markup:
    told = [(event, words) for event in run.events if event.get("event") not in _ELSEWHERE and (words := _words(event))]
    if not told:
        return Markup()
    begun = next((time for event in run.events if (time := clock.of_record(event.get("time"))) is not None), None)
    half = _MOST_EVENTS // 2
    shown: Sequence[Any] = told if len(told) <= _MOST_EVENTS else [*told[:half], None, *told[-half:]]
    rows = [
        ["", "", "", f"{len(told) - 2 * half} more in events.jsonl"]
        if one is None
        else list(_event(one[0], one[1], begun))
        for one in shown
    ]
    return details(f"{len(told)} events", table(["time", "after", "attempt", "event"], rows, "Events"))


def _event(event: Mapping[str, Any], words: str, begun: float | None) -> Iterator[Any]:
    time = clock.of_record(event.get("time"))
    yield tag("td", clock_words(time), class_="nowrap")
    yield tag("td", "" if time is None or begun is None else duration(max(0.0, time - begun)), class_="nowrap")
    yield event.get("attempt", "") if event.get("attempt") is not None else ""
    yield words


def _words(event: Mapping[str, Any]) -> str:
    """Return an event in words; what the terminal has none for by its name and what it says."""
    name = str(event.get("event"))
    if name == "preflight":
        failed = event.get("failed")
        names = node_spans(failed) if isinstance(failed, Mapping) and failed else ""
        return (
            f"preflight: {names} did not pass" if names else f"preflight: {len(listed(event.get('nodes')))} nodes pass"
        )
    if name == "hang_detected":
        return f"no sign of life for {event.get('silent_seconds')} s in a {event.get('phase')}: taken as hung"
    if name == "resume_check_started":
        return f"resume check: from checkpoint {event.get('step')} to the end again"
    if name == "resume_check_ended":
        return f"resume check {event.get('outcome')}: {event.get('reason')}"
    if name == "supervisor_ended":
        return f"supervisor ended with exit code {event.get('exit_code')}"
    if name == "admission":
        return f"admitted by gate {event.get('gate')}" if event.get("gate") else "admitted without a gate"
    found = attempt_to(lambda: event_words(event))
    return class_words(name) if found is None else found
