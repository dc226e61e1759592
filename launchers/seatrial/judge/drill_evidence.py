"""What a drill is judged on beside what every gate is: the fault, the attempts, and the undisturbed run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from seatrial.judge.collect import read_steps
from seatrial.judge.evidence import DrilledAttempt, DrillEvidence, GateEvidence, Injected
from seatrial.run.fields import whole
from seatrial.run.layout import RunFolder
from seatrial.run.records import read_object, read_objects


def with_drill(evidence: GateEvidence, folder: Path) -> GateEvidence:
    """Return the evidence of the gate in ``folder`` with that of its drill; the same where it is none.

    What ended the attempt that was disturbed was the drill: nothing came from outside then.
    """
    run = RunFolder(folder)
    spec = read_object(run.spec) or {}
    drill = spec.get("drill")
    if not isinstance(drill, dict):
        return evidence
    found = _read(run, spec, drill)
    last = found.attempts[-1].number if found.attempts else None
    ours = last is not None and any(one.attempt == last for one in found.injected)
    places = {**evidence.places, "events": str(run.events), "reference": str(drill.get("reference") or "")}
    return replace(evidence, drill=found, places=places, interrupted=None if ours else evidence.interrupted)


def _read(run: RunFolder, spec: Mapping[str, Any], drill: Mapping[str, Any]) -> DrillEvidence:
    profile = spec.get("profile") or {}
    reference = drill.get("reference")
    problem = _problem(spec, Path(str(reference))) if reference else "no undisturbed run is named"
    return DrillEvidence(
        fault=str(drill.get("fault")),
        step=whole(drill.get("step")) or 0,
        injected=tuple(_injected(one) for one in read_objects(run.events) if one.get("event") == "drill_injected"),
        attempts=tuple(_attempt(one.number, read_object(one.record)) for one in run.attempts()),
        reference=str(reference) if reference else None,
        reference_steps=() if problem else tuple(read_steps(RunFolder(Path(str(reference))).metrics)),
        reference_problem=problem,
        has_spares=profile.get("executor") == "slurm" and bool(profile.get("spare_nodes")),
    )


def _problem(spec: Mapping[str, Any], folder: Path) -> Optional[str]:
    """Return why that run is nothing to compare with; None: it is."""
    there = RunFolder(folder)
    other, verdict = read_object(there.spec), (read_object(there.verdict) or {}).get("verdict")
    if other is None:
        return f"{folder} holds no run that can be read"
    if other.get("kind") != "gate" or other.get("drill"):
        return f"{folder} is no undisturbed gate"
    if other.get("same") != spec.get("same") or _layout(other) != _layout(spec):
        return f"{folder} is not the same thing, or of another layout"
    return None if verdict == "PASS" else f"the verdict of {folder} is {verdict or 'not there'}"


def _layout(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    profile = spec.get("profile") or {}
    return spec.get("world_size"), profile.get("device"), profile.get("nodes"), profile.get("gpus_per_node")


def _injected(event: Mapping[str, Any]) -> Injected:
    node = event.get("node")
    return Injected(
        whole(event.get("attempt")), str(event.get("fault")), whole(event.get("step")),
        None if node is None else str(node), str(event.get("what")),
    )  # fmt: skip


def _attempt(number: int, record: Optional[Mapping[str, Any]]) -> DrilledAttempt:
    if record is None:
        return DrilledAttempt(number)
    nodes = record.get("nodes")
    saved = record.get("saved_steps")
    return DrilledAttempt(
        number, str(record.get("class")), whole(record.get("resume_step")), whole(record.get("first_step")),
        whole(record.get("last_step")), tuple(saved) if isinstance(saved, list) else (),
        tuple(map(str, nodes)) if isinstance(nodes, list) else (),
    )  # fmt: skip
