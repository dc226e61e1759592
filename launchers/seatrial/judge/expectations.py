"""What a run must show, as its spec.json says, and the reference that it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.judge.evidence import (
    DEFAULT_LEARNING_RATIO,
    Expectations,
    asks_for_hybridep,
    graphs_asked_off,
    required_losses,
)
from seatrial.run.layout import RunFolder
from seatrial.run.reference import Held, Tolerances, read_reference

# What Megatron takes where a recipe does not set it.
_DEFAULTS = {
    "num_experts": None,
    "moe_token_dispatcher_type": "allgather",
    "moe_flex_dispatcher_backend": "deepep",
    "cuda_graph_impl": "none",
}


def expectations_of(spec: Mapping[str, Any], folder: Path) -> Expectations:
    """Return what the run in ``folder`` must show. Raises SeatrialError where ``spec`` does not say it."""
    arguments: dict[str, Any] = dict(_DEFAULTS)
    try:
        gate = spec["gate"]
        for key, field in spec["fields"].items():
            if field["value"] is not None:
                arguments[key.partition(".")[2]] = field["value"]
        ratio = gate.get("learning_ratio")
        return Expectations(
            steps=int(gate["steps"]),
            save_steps=tuple(int(step) for step in gate["save_steps"]),
            learning_ratio=DEFAULT_LEARNING_RATIO if ratio is None else float(ratio),
            world_size=int(spec["world_size"]),
            device=str(spec["profile"]["device"]),
            hybridep=asks_for_hybridep(arguments),
            graphs_off=graphs_asked_off(arguments),
            required_losses=required_losses(arguments),
            resume_from=resume_from(gate),
            gpu_type=spec["profile"].get("gpu_type"),
            sequence_length=count(arguments.get("seq_length")),
            global_batch_size=count(arguments.get("global_batch_size")),
            held=held(spec, folder),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise SeatrialError(
            f"the spec does not say what the gate must show ({what})", file=folder / "spec.json"
        ) from error


def held(spec: Mapping[str, Any], folder: Path) -> Held:
    """Return the reference that lies in the run's folder, and how the run is held against it."""
    said = spec.get("reference")
    if not isinstance(said, dict):
        return Held()
    try:
        limits = {key: float(said[key]) for key in ("pointwise", "final", "speed") if said.get(key) is not None}
        found = Held(None, Tolerances(**limits), said.get("asked") is True, spec.get("curve"))
        return replace(found, reference=read_reference(RunFolder(folder).reference))
    except SeatrialError as error:
        return replace(found, problem=error.message)
    except (TypeError, ValueError) as error:
        return Held(problem=f"the spec does not say how to hold it: {error}")


def resume_from(gate: Mapping[str, Any]) -> Optional[int]:
    """Return the checkpoint that the resume check loads: the last save before the end; None where none is asked for."""
    earlier = [int(step) for step in gate.get("save_steps") or () if int(step) < int(gate["steps"])]
    return max(earlier, default=None) if gate.get("resume_check") else None


def count(value: Any) -> Optional[int]:
    """Return a positive whole number, as such or as text; None for anything else."""
    try:
        return int(value) if value is not None and int(value) > 0 else None
    except (TypeError, ValueError):
        return None


def against(expected: Expectations, held: Optional[Held]) -> Expectations:
    """Return ``expected``, held against another reference with its own tolerances; None leaves it."""
    return expected if held is None else replace(expected, held=replace(held, tolerances=expected.held.tolerances))
