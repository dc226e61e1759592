"""Gates side by side over a set of nodes: submitted at once, on record, and what they found in the nodes' history."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.run import node_history, records
from seatrial.slurm.all_nodes import Group, NodeSet
from seatrial.slurm.runs import job_reference
from seatrial.slurm.submit import Submission, placed
from seatrial.spec.runspec import RunSpec

FIRST, SECOND = 1, 2


@dataclass
class Gate:
    """A gate that was to be submitted. ``run`` None: it was not, and ``error`` says why."""

    nodes: list[str]
    round: int
    of: str | None = None
    run: str | None = None
    job: str | None = None
    error: str | None = None


@dataclass
class Qualification:
    """All of it, as ``<runs>/.seatrial/all-nodes-<id>.json`` holds it. ``result``: node -> what was found; None before
    the end."""

    id: str
    path: Path
    recipe: str
    profile: str
    nodes: list[str]
    asked: list[str]
    left: dict[str, str]
    blocks: dict[str, str] | None
    gates: list[Gate] = field(default_factory=list)
    result: dict[str, Any] | None = None

    @property
    def runs(self) -> Path:
        """The folder of runs."""
        return self.path.parents[1]

    @classmethod
    def new(cls, spec: RunSpec, found: NodeSet, left: Mapping[str, str]) -> Qualification:
        """Return a new one, not on record yet. ``left``: nodes of ``found`` that no group could be made for."""
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
        runs = Path(placed(spec).profile["paths"]["runs"])
        blocks = None if found.blocks is None else {n: b for n, b in found.blocks.items() if n in found.nodes}
        left, profile = {**found.left, **left}, spec.profile["name"]
        return cls(name, _path(runs, name), spec.recipe, profile, list(found.nodes), list(found.asked), left, blocks)

    @classmethod
    def read(cls, spec: RunSpec, name: str) -> Qualification:
        """Return one that is on record. Raises SeatrialError where there is none, or it is of another run."""
        path = _path(Path(placed(spec).profile["paths"]["runs"]), name)
        data = records.read_object(path)
        if data is None:
            there = [one.stem.removeprefix("all-nodes-") for one in path.parent.glob("all-nodes-*.json")]
            raise SeatrialError(
                f"no gates over nodes {name!r} are on record", file=path, key="--resume",
                fix=did_you_mean(name, there, otherwise="the command that submitted them printed the id"),
            )  # fmt: skip
        for key, here in (("recipe", spec.recipe), ("profile", spec.profile["name"])):
            if data[key] != here:
                raise SeatrialError(f"{name} is of {key} {data[key]}", key="--resume", value=here, fix="name that one")
        gates = [Gate(**gate) for gate in data["gates"]]
        return cls(
            name, path, data["recipe"], data["profile"], data["nodes"], data["asked"], data["left"], data["blocks"],
            gates, data["result"],
        )  # fmt: skip

    def write(self) -> None:
        """Put it on record as it is now."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = {key: value for key, value in asdict(self).items() if key != "path"}
        records.write_json(self.path, {"schema": records.SCHEMA, **data})


def _path(runs: Path, name: str) -> Path:
    return runs / ".seatrial" / f"all-nodes-{name}.json"


def submit_groups(
    made: Qualification, groups: Sequence[Group], number: int, start: Callable[[list[str]], Submission],
    at_most: int | None = None,
) -> None:  # fmt: skip
    """Submit a gate for each group, all at once, and put each on record as soon as it is there.

    ``start`` submits one with further words for sbatch. ``at_most``: how many run at a time; the others wait for one of
    them to end, in the queue. An error of one group stands on record, and the others go on.
    """
    lanes: list[str | None] = []
    for group in groups:
        before = lanes[-at_most] if at_most is not None and len(lanes) >= at_most else None
        # What the command line says of dependencies replaces the script's line.
        after = [f"--dependency=singleton,afterany:{before}"] if before else []
        gate = Gate(list(group.nodes), number, group.of)
        made.gates.append(gate)
        try:
            folder = start([f"--nodelist={','.join(group.nodes)}", *after]).folder
            gate.run, gate.job = folder.path.name, job_reference(folder).job_id
        except SeatrialError as error:
            gate.error = str(error)
        finally:
            made.write()
        if gate.job is not None:
            lanes.append(gate.job)


def note(made: Qualification, results: Mapping[str, tuple[str, str, Sequence[str]]]) -> None:
    """Put what was found into the history of the profile's nodes. ``results``: node -> (result, why, runs)."""
    what = {"qualified": node_history.GATE_PASSED, "failed": node_history.GATE_FAILED}
    history = node_history.path_for(made.runs, made.profile)
    for node, (result, why, runs) in results.items():
        if result in what:
            reason = why or f"every gate of {made.id} with it passed"
            node_history.add(history, node, what[result], reason, runs[-1] if runs else None)
