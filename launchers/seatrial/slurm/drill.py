"""The undisturbed gate that a drill is compared with: found among earlier ones, named, or run first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.slurm.admission import Gate, Wanted, differences
from seatrial.slurm.after_gate import Pair, submit_pair
from seatrial.slurm.client import Slurm
from seatrial.spec.drill import with_reference
from seatrial.spec.owners import RUN_CONTROLS
from seatrial.spec.runspec import RunSpec

# Run controls that change no loss; the others must be equal.
_FREE = frozenset({"save_interval", "log_throughput"})
_LAYOUT = ("device", "nodes", "gpus_per_node")
_ANY_AGE_DAYS = 36500.0  # a curve does not age as hardware does


def find_reference(spec: RunSpec, found: Iterable[Gate]) -> Gate | None:
    """Return the first of ``found`` (gates, the newest first) that the drill ``spec`` can be compared with."""
    wanted = Wanted.of(spec, _ANY_AGE_DAYS)
    return next((gate for gate in found if not _differences(wanted, gate)), None)


def require_reference(spec: RunSpec, gate: Gate) -> Gate:
    """Return ``gate`` if the drill can be compared with it. Raises SeatrialError that says why it cannot."""
    why = _differences(Wanted.of(spec, _ANY_AGE_DAYS), gate)
    if why:
        raise SeatrialError(
            "\n    ".join([f"{gate.run_id} is nothing to compare this drill with:", *why]), file=gate.folder.path,
            key="--reference", rule="an undisturbed gate of the same thing and layout: PASS, each step on record",
            fix="name another, or leave --reference out: where none fits, one is run first",
        )  # fmt: skip
    return gate


def submit_drill(
    gate: RunSpec, drill: RunSpec, *, allow_dirty: bool = False, require_head: str | None = None,
    slurm: Slurm | None = None,
) -> Pair:  # fmt: skip
    """Submit the undisturbed ``gate`` and the ``drill`` that waits for its PASS: both, or neither.

    Raises SeatrialError as ``submit_after_gate`` does.
    """
    return submit_pair(
        gate, lambda folder: with_reference(drill, folder.path), allow_dirty=allow_dirty, require_head=require_head,
        slurm=slurm,
    )  # fmt: skip


def _differences(wanted: Wanted, gate: Gate) -> list[str]:
    return [*differences(wanted, gate), *_other_curve(wanted.spec, gate)]


def _other_curve(spec: RunSpec, gate: Gate) -> Iterator[str]:
    """Yield what makes another loss curve although a run of either admits the other: run controls, layout, gaps."""
    there, profile = gate.spec.get("fields") or {}, gate.spec.get("profile") or {}
    values = {key.partition(".")[2]: field.get("value") for key, field in there.items()}
    for name in sorted(RUN_CONTROLS - _FREE):
        if values.get(name) != spec.get(name):
            yield f"{name} was {values.get(name)}, here it is {spec.get(name)}"
    for name in _LAYOUT:
        if profile.get(name) != spec.profile[name]:
            yield f"profile.{name} was {profile.get(name)}, here it is {spec.profile[name]}"
    steps = {line.get("step") for line in records.read_objects(gate.folder.metrics)}
    missing = [step for step in range(1, int(spec.gate["steps"]) + 1) if step not in steps]
    if missing:
        yield f"{len(missing)} of its steps are not on record, the first is {missing[0]}"
