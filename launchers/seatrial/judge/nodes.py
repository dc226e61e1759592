"""What gates over groups of nodes say of each node. Pure, but for ``gate_of``, which reads one gate's run folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.judge.gate import judge_run
from seatrial.judge.verdict import FAIL, PASS
from seatrial.run import records
from seatrial.run.layout import RunFolder

QUALIFIED, FAILED, SUSPECT, NOT_JUDGED = "qualified", "failed", "suspect", "not judged"
_OF_THE_NODE = ("node_failure", "gpu_fault")  # classes (supervise.classes) that name the node at fault
_LOST = "NODE_FAIL"


@dataclass(frozen=True)
class GroupGate:
    """One gate. ``verdict`` None: it has none, and ``why`` says why. ``of``: in the second round, the suspect that it
    judges. ``blamed``: nodes that the run itself found to be at fault -> how. ``lost``: Slurm lost a node of it."""

    nodes: Sequence[str]
    run: Optional[str]
    verdict: Optional[str]
    why: str = ""
    of: Optional[str] = None
    blamed: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False

    @property
    def bad(self) -> bool:
        """Whether it speaks against its nodes. One that was cancelled, or never started, does not."""
        return self.verdict != PASS and (self.verdict == FAIL or bool(self.blamed) or self.lost)


@dataclass(frozen=True)
class NodeResult:
    """``runs``: the gates that it was in."""

    result: str
    why: str = ""
    runs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"runs": list(self.runs)}


def gate_of(folder: RunFolder, nodes: Sequence[str], of: Optional[str], state: str) -> GroupGate:
    """Return what the gate in ``folder``, whose job is over, has come to. ``state``: Slurm's word for its end."""
    events = records.read_objects(folder.events)
    blamed = {
        str(event.get("node")): f"{event.get('what')}: {event.get('reason')}"
        for event in events if event.get("event") == "node_failed" and event.get("node") in nodes
    }  # fmt: skip
    for attempt in folder.attempts():
        record = records.read_object(attempt.record) or {}
        if record.get("class") in _OF_THE_NODE and record.get("failed_node") in nodes:
            blamed[record["failed_node"]] = f"{record['class']}: {record.get('class_why')}"
    decided = [event for event in events if event.get("event") == "decision"]
    why = str(decided[-1].get("reason")) if decided else f"its job ended {state}, without a decision of its supervisor"
    verdict = (records.read_object(folder.verdict) or {}).get("verdict")
    if verdict is None and folder.attempts():
        try:
            verdict = judge_run(folder.path).verdict  # the records are enough; what is missing is never a PASS
        except SeatrialError as error:
            why = f"{why}; {error}"
    return GroupGate(nodes, folder.path.name, verdict, why, of, blamed, state == _LOST)


def first_look(gates: Iterable[GroupGate]) -> tuple[list[str], list[str]]:
    """Return (suspects, those that have passed) after the first round; in no list is a node without a verdict."""
    suspects: dict[str, None] = {}
    passed: dict[str, None] = {}
    spoiled: set[str] = set()
    for gate in gates:
        if gate.verdict == PASS:
            passed.update(dict.fromkeys(gate.nodes))
        else:
            spoiled |= set(gate.nodes)
            suspects.update(dict.fromkeys(gate.nodes) if gate.bad else ())
    return list(suspects), [node for node in passed if node not in spoiled]


def judge_nodes(nodes: Sequence[str], gates: Sequence[GroupGate], left: Mapping[str, str]) -> dict[str, NodeResult]:
    """Return what is known of each node, and of those ``left`` out (with the reason why), in order.

    Qualified: all its gates have passed; or its second one has, and each one before that failed had another node in it
    that is at fault. Failed: its second gate failed, or a run named it. Suspect: one failed, and nobody knows
    more.
    """
    failed = {node: why for node in nodes if (why := _at_fault(node, gates)) is not None}
    return {node: _result(node, gates, failed, left) for node in dict.fromkeys([*nodes, *left])}


def exit_code(results: Iterable[NodeResult]) -> int:
    """Return 0 where every node is qualified, 1 where one has failed, else 3."""
    found = {one.result for one in results}
    return 1 if FAILED in found else 0 if found == {QUALIFIED} else 3


def _at_fault(node: str, gates: Sequence[GroupGate]) -> Optional[str]:
    """Return why the node is known to be at fault, if it is."""
    first = [gate for gate in gates if gate.of is None and node in gate.nodes and gate.bad]
    again = [gate for gate in gates if gate.of == node and gate.verdict is not None]
    for gate in gates:
        if gate.of is not None and gate.bad and node in gate.blamed:
            return gate.blamed[node]
    if any(gate.verdict == FAIL for gate in again):
        return f"its gate failed with nodes that have passed, too: {again[-1].why}"
    if any(gate.verdict == PASS for gate in again):
        return None
    for gate in first:
        if node in gate.blamed:
            return gate.blamed[node]
        if len(gate.nodes) == 1:
            return gate.why
    return None


def _result(
    node: str, gates: Sequence[GroupGate], failed: Mapping[str, str], left: Mapping[str, str]
) -> NodeResult:  # fmt: skip
    mine = [gate for gate in gates if node in gate.nodes and gate.of in (None, node)]
    runs = tuple(gate.run for gate in mine if gate.run is not None)
    if node in failed:
        return NodeResult(FAILED, failed[node], runs)
    spoiled = [gate for gate in mine if gate.of is None and gate.verdict != PASS]
    bad = [gate for gate in spoiled if gate.bad]
    if bad and any(gate.of == node and gate.verdict == PASS for gate in mine):
        known = [next((one for one in gate.nodes if one in failed), None) for gate in bad]
        if all(known):
            return NodeResult(QUALIFIED, f"it passed without {', '.join(filter(None, known))}", runs)
        return NodeResult(
            SUSPECT, "it passed with other nodes, and none of the gate that failed is at fault alone", runs
        )
    if bad:
        second = [gate for gate in mine if gate.of == node]
        more = left.get(node) or (f"its second gate has no verdict: {second[-1].why}" if second else "")
        return NodeResult(SUSPECT, "; ".join(filter(None, [f"its gate failed: {bad[0].why}", more])), runs)
    if spoiled:
        return NodeResult(NOT_JUDGED, spoiled[0].why, runs)
    if not mine:
        return NodeResult(NOT_JUDGED, left.get(node, "no gate with it was submitted"))
    return NodeResult(QUALIFIED, "", runs)
