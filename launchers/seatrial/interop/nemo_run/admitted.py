"""What lets a convergence run be a task: a gate that passed, one that it follows, or a reason to do without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission import Admission, Wanted, read_gate, require
from seatrial.slurm.admission_identity import identity
from seatrial.spec.runspec import RunSpec


def admitted(spec: RunSpec, gate: str | None, after: Mapping[str, Any] | None, no_gate: str | None) -> Admission | None:
    """Return what admits the run; None for a gate. ``after``: the facts of a gate's task.

    Raises SeatrialError where nothing admits it, or more than one thing is named.
    """
    named = [name for name, given in (("gate", gate), ("after", after), ("no_gate", no_gate)) if given is not None]
    if spec.kind == "gate":
        if named:
            raise SeatrialError("a gate needs nothing that admits it", key=named[0], fix="leave it out")
        return None
    if len(named) != 1:
        raise SeatrialError(
            "a convergence run is admitted by one gate", key="gate, after, no_gate", value=named or None,
            rule="one of the three", fix="a gate's folder, a gate's task in the same experiment, or a reason",
        )  # fmt: skip
    if no_gate is not None:
        return Admission.without_gate(no_gate)
    if gate is not None:
        found = read_gate(RunFolder.open(gate))
        if found is None:
            raise SeatrialError("not a gate", key="gate", value=gate, rule="the run folder of a gate")
        return require(Wanted.of(spec), found).admission()
    assert after is not None
    return _after(spec, after)


def _after(spec: RunSpec, facts: Mapping[str, Any]) -> Admission:
    """The supervisor holds the gate's verdict against PASS when the run starts; here it is held that it is the same."""
    same = identity(spec)
    differing = [name for name, value in same.items() if facts["same"].get(name) != value]
    if facts["kind"] != "gate" or differing:
        raise SeatrialError(
            f"task {facts['run_id']} does not admit this run", key="after", value=differing or facts["kind"],
            rule="a gate of equal arguments but for run controls, equal train/, image and GPU type",
        )  # fmt: skip
    return Admission("after-gate", facts["run_id"], facts["folder"])
