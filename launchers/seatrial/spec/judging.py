"""What the command line says of how a run is judged: its resume check, and what it is held against. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.spec.runspec import RunSpec


def with_resume_check(spec: RunSpec, asked: bool | None) -> RunSpec:
    """Return the gate ``spec`` with its resume check on or off; None leaves what it has.

    Raises SeatrialError where it is asked for and no checkpoint lies before the last step.
    """
    if asked is None:
        return spec
    if asked and len(spec.gate["save_steps"]) < 2:
        raise SeatrialError(
            "no checkpoint to resume from", key="--resume-check", value=spec.key_of("save_interval"),
            rule="a save before the last step",
            fix=f"--set checkpoint.save_interval={max(1, int(spec.gate['steps']) // 2)}",
        )  # fmt: skip
    return replace(spec, gate={**spec.gate, "resume_check": asked})


def held_against(spec: RunSpec, file: Path | None) -> RunSpec:
    """Return ``spec`` held against the reference in ``file``, with the tolerances of its recipe; None leaves it."""
    if file is None:
        return spec
    own = {key: value for key, value in (spec.reference or {}).items() if key not in ("file", "asked")}
    return replace(spec, reference={**own, "file": str(file.expanduser().resolve()), "asked": True})
