"""``--drill FAULT@STEP``: a gate that a fault is put into. Pure: from its text and the gate's spec to another spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.spec.runspec import Field, RunSpec

FAULTS: Mapping[str, str] = {
    "kill-rank": "the last rank is killed",
    "hang": "the last rank stands still",
    "kill-node": "all ranks of the last node are killed, and the node counts as lost",
    "stop-signal": "the job gets the signal that comes ahead of its time limit",
    "truncate-checkpoint": "the newest checkpoint is cut short, and the last rank is killed",
}
FIRST_STEP = 3  # two saves must lie before it
SOURCE = "drill"


@dataclass(frozen=True)
class Drill:
    """``fault`` comes at the beginning of ``step`` (stop-signal: once that step is made)."""

    fault: str
    step: int


def parse_drill(text: str, steps: int) -> Drill:
    """Return the drill that ``text`` names, for a gate of ``steps`` steps. Raises SeatrialError for anything else."""
    fault, at, number = text.partition("@")
    if fault not in FAULTS:
        raise SeatrialError(
            f"unknown fault {fault!r}", key="--drill", value=text, rule=f"one of {', '.join(FAULTS)}",
            fix=did_you_mean(fault, FAULTS),
        )  # fmt: skip
    step = int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else None
    if not at:
        step = default_step(steps)
    if step is None or not FIRST_STEP <= step < steps:
        raise SeatrialError(
            "the drill has no such step", key="--drill", value=text,
            rule=f"{fault}@STEP with a step from {FIRST_STEP} to {steps - 1}: two saves come before it, a step after",
            fix=f"--drill {fault}@{default_step(steps)}" if steps > FIRST_STEP else "a gate of more steps",
        )  # fmt: skip
    return Drill(fault, step)


def default_step(steps: int) -> int:
    """Return where a fault comes that names no step: late enough for few checkpoints (60 of 100: one in 25 steps)."""
    return max(FIRST_STEP, steps * 3 // 5)


def save_interval(own: int, step: int) -> int:
    """Return the largest divisor of the gate's ``own`` interval that puts two saves before ``step`` (from 3 on)."""
    return next(every for every in range(own, 0, -1) if own % every == 0 and 2 * every < step)


def drilled(spec: RunSpec, text: str) -> RunSpec:
    """Return the gate ``spec`` as a drill: its save interval, what the judge expects, and the fault.

    Raises SeatrialError where the fault or the step does not fit the gate, or the profile has nothing that could find
    the fault or make it good.
    """
    steps = int(spec.gate["steps"])
    drill = parse_drill(text, steps)
    if drill.fault == "kill-node" and spec.profile["executor"] == "slurm" and not spec.profile["spare_nodes"]:
        raise SeatrialError(
            "a drill that takes a node away needs another one", key="profile.spare_nodes", value=0,
            rule="at least 1: a gate's job is never requeued, so the node that takes over must be there",
            fix="--set profile.spare_nodes=1",
        )  # fmt: skip
    if drill.fault == "hang" and not spec.profile["hang"]["enabled"]:
        raise SeatrialError(
            "nothing would find this drill's fault", key="profile.hang.enabled", value=False,
            rule="the watch over hangs must be on", fix="--set profile.hang.enabled=true",
        )  # fmt: skip
    key = spec.key_of("save_interval")
    before = spec.fields.get(key)
    every = save_interval(int(spec.get("save_interval", steps)), drill.step)
    fields = dict(spec.fields)
    if before is None or before.value != every:
        own = before.recipe_value if before is not None and before.changed else before and before.value
        fields["checkpoint.save_interval" if before is None else key] = Field(every, "kind", SOURCE, own, changed=True)
    gate = {**spec.gate, "resume_check": False, "save_steps": [*range(every, steps, every), steps]}
    return replace(spec, fields=fields, gate=gate, drill={"fault": drill.fault, "step": drill.step, "reference": None})


def with_reference(spec: RunSpec, folder: object) -> RunSpec:
    """Return the drill ``spec`` with the run folder of the undisturbed gate that it is compared with."""
    drill: dict[str, Any] = {**(spec.drill or {}), "reference": str(folder)}
    return replace(spec, drill=drill)
