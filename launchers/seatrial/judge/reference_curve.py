"""Makes a reference that recipes are held against: a run's loss curve, its speed, and what they were measured on. Pure.

run.reference reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.judge.curves import RunCurve, gaps
from seatrial.judge.evidence import RUN
from seatrial.judge.records import LM_LOSS
from seatrial.judge.rules import spans
from seatrial.judge.speed import Setting, after_warm_up, windows

SCHEMA = 1
DENSE_STEPS = 2000  # a curve turns fast only while it is young
_MOST_ROWS = 15_000  # some 25 bytes each: the file stays under 500 kB


def make_reference(curve: RunCurve, created: str, note: str = "") -> dict[str, Any]:
    """Return the reference that ``curve`` makes, as plain data.

    ``every`` 1: all steps are there. 10 (100, …): of the steps after the 2,000th only each such one. Raises
    SeatrialError for a run that is not at its end, and for a curve with a gap or a loss that is no finite number.
    """
    _refuse_unfinished(curve)
    losses = [(record.step, record.losses.get(LM_LOSS)) for record in curve.steps]
    missing = gaps((step for step, _ in losses), curve.interval, first=1)
    if missing:
        raise _refusal(curve, f"no step {missing}", "every step is there, from the first on")
    odd = [step for step, loss in losses if loss is None or not math.isfinite(loss)]
    if odd:
        raise _refusal(curve, f"no finite {LM_LOSS} at step {spans(odd)}", "every loss is a finite number")
    every = _every([step for step, _ in losses])
    return {
        "schema": SCHEMA, "name": curve.name, "created": created, "recipe": curve.recipe, "rehearsal": curve.rehearsal,
        "arguments": curve.arguments, "gpu_type": curve.gpu_type, "gpus": curve.gpus,
        "tokens_per_step": curve.tokens_per_step, "seed": curve.seed, "versions": dict(curve.versions), "note": note,
        "every": every, "steps": [[step, loss] for step, loss in losses if step <= DENSE_STEPS or step % every == 0],
        "validation": _validation(curve), "speed": _speed(curve),
    }  # fmt: skip


def reference_text(reference: dict[str, Any]) -> str:
    """Return a reference as JSON that people can read and git can diff: one key or one step a line."""
    rows = {"steps", "validation"}
    parts = []
    for key, value in reference.items():
        text = json.dumps(value, allow_nan=False)
        if key in rows and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _refuse_unfinished(curve: RunCurve) -> None:
    if not curve.steps:
        raise SeatrialError("no reference is made of a run without steps", file=curve.source)
    last, target = curve.steps[-1].step, curve.target
    if curve.kind == RUN and target is not None and last < target:
        raise SeatrialError(
            f"no reference is made of it: it is at step {last} of {target}", file=curve.source,
            rule="a run that is at its last step", fix="wait for its end",
        )  # fmt: skip


def _refusal(curve: RunCurve, what: str, rule: str) -> SeatrialError:
    return SeatrialError(f"no reference is made of it: {what}", file=curve.source, key="steps", rule=rule)


def _every(steps: Sequence[int]) -> int:
    late = [step for step in steps if step > DENSE_STEPS]
    every = 10 if late else 1
    while sum(step % every == 0 for step in late) > _MOST_ROWS - DENSE_STEPS:
        every *= 10
    return every


def _validation(curve: RunCurve) -> list[list[Any]]:
    """Return the validation losses, of a step's last one; a loss that is no number is refused, as a step's is."""
    losses = {
        record.iteration: record.losses[LM_LOSS]
        for record in curve.evaluations
        if record.which != "test" and LM_LOSS in record.losses
    }
    odd = [step for step, loss in losses.items() if not math.isfinite(loss)]
    if odd:
        raise _refusal(curve, f"no finite validation loss at step {spans(odd)}", "every loss is a finite number")
    return [[step, losses[step]] for step in sorted(losses)]


def _speed(curve: RunCurve) -> Optional[dict[str, Any]]:
    """Return the speed after the warm-up; None where a step has no time."""
    window = after_warm_up(windows(curve.steps, Setting(curve.gpus, curve.sequence_length)))
    return None if window is None else {
        "tokens_per_second_per_gpu": window.tokens_per_second_per_gpu, "tflops_per_gpu": window.tflops_per_gpu,
        "mean_ms": window.mean_ms, "steps": window.steps,
    }  # fmt: skip
