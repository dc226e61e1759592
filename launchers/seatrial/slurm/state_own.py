"""What the run folder itself knows of its job: the last witness, where Slurm knows nothing."""

from __future__ import annotations

from typing import Any

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.state_records import JobRef, Own


def read_own(ref: JobRef) -> Own:
    """Return what the events after the run's last submission say. Never raises: unreadable is a word, too.

    Only a decision that no newer attempt follows is an end. Its state is what Slurm would say of such an exit code.
    """
    try:
        events = records.read_objects(RunFolder(ref.folder).events)
    except OSError as error:
        return Own(f"its records cannot be read: {error}")
    # A quick job writes before the submission does, so it is the time and not the order that tells its events apart.
    sent: dict[str, Any] = next((event for event in reversed(events) if event.get("event") == "submitted"), {})
    since = str(sent.get("submit_time") or sent.get("time") or "")
    current = [e for e in events if e.get("event") not in ("created", "submitted") and str(e.get("time", "")) >= since]
    if not current:
        return Own("its supervisor has recorded nothing yet")
    started = _last(current, "attempt_started")
    decision = _last(current, "decision")
    began = None if started is None else str(current[started].get("time"))
    if decision is not None and (started is None or decision > started):
        return _decided(current[decision], began)
    last = current[-1]
    return Own(f"the last its supervisor recorded is {last.get('event')!r} at {last.get('time')}", started=began)


def _decided(event: dict[str, Any], started: str | None) -> Own:
    words = f"its supervisor decided {event.get('decision')!r}: {event.get('reason')}"
    code = event.get("exit_code")
    if event.get("decision") not in ("done", "stop") or not isinstance(code, int):
        return Own(words, started=started)
    return Own(words, "FAILED" if code else "COMPLETED", f"{code}:0", started, str(event.get("time")))


def _last(events: list[dict[str, Any]], name: str) -> int | None:
    return max((n for n, event in enumerate(events) if event.get("event") == name), default=None)
