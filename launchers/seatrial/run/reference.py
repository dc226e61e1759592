"""A reference that runs are held against: a loss curve, a speed, and what they were measured on. One JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run.fields import text, whole

SCHEMA = 1
LEAST_SPEED_TOLERANCE = 0.05  # one setting moves so far from run to run, and from release to release
_KEYS = (
    "schema", "name", "created", "recipe", "kind", "rehearsal", "arguments", "gpu_type", "gpus", "tokens_per_step",
    "seed", "versions", "note", "every", "steps", "validation", "speed",
)  # fmt: skip


@dataclass(frozen=True)
class Tolerances:
    """How far a run may lie from its reference, relative. ``pointwise``: each step's loss. ``final``: the mean of the
    last steps. ``speed``: how much slower, no less than 5%."""

    pointwise: float = 0.05
    final: float = 0.02
    speed: float = 0.10


@dataclass(frozen=True)
class Reference:
    """``steps``: step -> lm loss, empty where only a speed is known. ``tokens_per_second_per_gpu``: None where only a
    curve is. ``arguments``: a hash of what decides the curve; None: nobody knows, so it counts as another's."""

    name: str
    steps: Mapping[int, float] = field(default_factory=dict)
    rehearsal: bool = False
    arguments: Optional[str] = None
    gpu_type: Optional[str] = None
    gpus: Optional[int] = None
    tokens_per_step: Optional[int] = None
    tokens_per_second_per_gpu: Optional[float] = None
    note: str = ""


@dataclass(frozen=True)
class Held:
    """A reference and how a run is held against it. ``asked``: somebody named it for this run, so it is held against it
    whatever differs; a recipe's own is only where the run is what the recipe says. ``problem``: why it is none."""

    reference: Optional[Reference] = None
    tolerances: Tolerances = field(default_factory=Tolerances)
    asked: bool = False
    arguments: Optional[str] = None
    problem: Optional[str] = None


def read_reference(path: Path) -> Reference:
    """Read a reference. Raises SeatrialError naming file, key and rule for anything that is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SeatrialError(
            f"cannot read the reference: {error}", file=path, fix="seatrial reference RUN FILE writes one"
        ) from error
    return reference_of(data, path)


def reference_of(data: Any, path: object = None) -> Reference:
    """Return the reference that parsed JSON holds. Raises SeatrialError as ``read_reference`` does."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise SeatrialError("not a reference of schema 1", file=path, key="schema")
    unknown = sorted(set(data) - set(_KEYS))
    if unknown:
        raise SeatrialError(f"unknown key {unknown[0]!r}", file=path, key=unknown[0], rule=f"one of {', '.join(_KEYS)}")
    speed = data.get("speed") or {}
    if not isinstance(speed, dict):
        raise SeatrialError("wrong value", file=path, key="speed", value=speed, rule="a mapping")
    rate = _number(speed.get("tokens_per_second_per_gpu"), "speed.tokens_per_second_per_gpu", path)
    steps = _steps(data.get("steps") or (), path)
    if not steps and rate is None:
        raise SeatrialError("neither a curve nor a speed", file=path, key="steps", rule="at least one of the two")
    return Reference(
        name=str(data.get("name") or "the reference"), steps=steps, rehearsal=data.get("rehearsal") is True,
        arguments=text(data.get("arguments")), gpu_type=text(data.get("gpu_type")), gpus=whole(data.get("gpus")),
        tokens_per_step=whole(data.get("tokens_per_step")), tokens_per_second_per_gpu=rate,
        note=str(data.get("note") or ""),
    )  # fmt: skip


def _steps(rows: Any, path: object) -> dict[int, float]:
    found: dict[int, float] = {}
    if not isinstance(rows, (list, tuple)):
        raise SeatrialError("wrong value", file=path, key="steps", rule="a list of steps and losses")
    for row in rows:
        try:
            step, loss = row
            step, loss = int(step), float(loss)
        except (TypeError, ValueError, OverflowError):
            raise SeatrialError("not a step and its loss", file=path, key="steps", value=str(row)[:80]) from None
        if not math.isfinite(loss) or step < 1 or step in found:
            raise SeatrialError("no reference is made of this", file=path, key="steps", value=[step, str(loss)],
                                rule="steps from 1, each once, with finite losses")  # fmt: skip
        found[step] = loss
    return found


def _number(value: Any, key: str, path: object) -> Optional[float]:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise SeatrialError("wrong value", file=path, key=key, value=value, rule="a number above 0")
    return float(value)
