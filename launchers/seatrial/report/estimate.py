"""The statement before a convergence run is submitted: what it will take, as far as that is known."""

from __future__ import annotations

from datetime import datetime, timedelta

from seatrial.check.estimate import Estimate, hours, tokens_text
from seatrial.check.storage import size_text

_WIDTH = 13


def statement(found: Estimate, now: datetime) -> list[str]:
    """Return the lines. What nobody measured is said to be unknown."""
    rows = [("tokens", tokens_text(found)), ("step time", _step_time(found)), ("slots", _slots(found))]
    if found.storage:
        one, at_once = size_text(found.storage.checkpoint), size_text(found.storage.needed)
        text = f"{found.storage.written:,} of {one} are written; at most {found.storage.kept} lie on disk at once"
        rows.append(("checkpoints", f"{text} = {at_once}"))
    else:
        rows.append(("checkpoints", "their size is unknown"))
    rows.append(("end", _end(found, now)))
    return [f"{name:<{_WIDTH}}{text}" for name, text in rows]


def _step_time(found: Estimate) -> str:
    measured = found.measured
    if measured is None or found.step_seconds is None:
        return "unknown: no gate has measured it yet"
    text = f"{found.step_seconds:,.2f} s"
    if measured.gpus == found.gpus:
        text += f", measured by {measured.run}"
    else:
        text += f", an estimate: {measured.run} measured {measured.step_seconds:,.2f} s on {measured.gpus} GPUs, "
        text += f"scaled to {found.gpus} by their number alone"
    if measured.tokens_per_step != found.sequences * found.length:
        text += f" (its steps had {measured.tokens_per_step:,} tokens, these have {found.sequences * found.length:,})"
    return text


def _slots(found: Estimate) -> str:
    if found.step_seconds is None:
        return f"of {hours(found.slot_seconds)}; how many is unknown without a step time"
    startup = "unknown" if found.startup_seconds is None else hours(found.startup_seconds)
    save = "unknown" if found.save_seconds is None else hours(found.save_seconds)
    parts = f"start-up {startup}, a save {save}"
    if found.slots is None:
        return f"of {hours(found.slot_seconds)}: too short for a step beside its {parts}"
    return f"{found.slots:,} of {hours(found.slot_seconds)} ({parts})"


def _end(found: Estimate, now: datetime) -> str:
    if found.wall_seconds is None:
        return "unknown"
    end = now + timedelta(seconds=found.wall_seconds)
    words = f"{end:%Y-%m-%d %H:%M %Z}, after {hours(found.wall_seconds)}".replace(" ,", ",")
    return f"{words}: without waiting in the queue, evaluations and failures"
