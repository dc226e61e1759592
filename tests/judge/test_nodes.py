"""What gates say of each node: tables of gates, and one run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.nodes import (
    FAILED,
    NOT_JUDGED,
    QUALIFIED,
    SUSPECT,
    GroupGate,
    NodeResult,
    exit_code,
    first_look,
    gate_of,
    judge_nodes,
)
from seatrial.run import records
from seatrial.run.layout import RunFolder


def gate(nodes: str, verdict: str | None, of: str | None = None, **more: Any) -> GroupGate:
    return GroupGate(tuple(nodes), f"{nodes}-{of or 'first'}", verdict, f"{nodes} {verdict}", of, **more)


DIED = {"blamed": {"b": "node_failure: it went down"}}
CASES: list[tuple[str, Sequence[GroupGate], dict[str, str], int]] = [
    ("all pass", [gate("ab", "PASS"), gate("cd", "PASS")], dict.fromkeys("abcd", QUALIFIED), 0),
    ("one fails, nobody looks again", [gate("ab", "FAIL"), gate("cd", "PASS")],
     {"a": SUSPECT, "b": SUSPECT, "c": QUALIFIED, "d": QUALIFIED}, 3),
    ("the bad one is named", [gate("ab", "FAIL"), gate("cd", "PASS"), gate("ac", "PASS", "a"), gate("bd", "FAIL", "b")],
     {"a": QUALIFIED, "b": FAILED, "c": QUALIFIED, "d": QUALIFIED}, 1),
    ("both are bad", [gate("ab", "FAIL"), gate("cd", "PASS"), gate("ac", "FAIL", "a"), gate("bd", "FAIL", "b")],
     {"a": FAILED, "b": FAILED, "c": QUALIFIED, "d": QUALIFIED}, 1),
    ("only together", [gate("ab", "FAIL"), gate("cd", "PASS"), gate("ac", "PASS", "a"), gate("bd", "PASS", "b")],
     {"a": SUSPECT, "b": SUSPECT, "c": QUALIFIED, "d": QUALIFIED}, 3),
    ("a second gate without a verdict", [gate("ab", "FAIL"), gate("cd", "PASS"), gate("ac", "PASS", "a"),
                                         gate("bd", None, "b")],
     {"a": SUSPECT, "b": SUSPECT, "c": QUALIFIED, "d": QUALIFIED}, 3),
    ("in two gates, of which one fails", [gate("ab", "PASS"), gate("bc", "FAIL")],
     {"a": QUALIFIED, "b": SUSPECT, "c": SUSPECT}, 3),
    ("in two gates, and the other is to blame", [gate("ab", "PASS"), gate("bc", "FAIL"), gate("ba", "PASS", "b"),
                                                gate("ca", "FAIL", "c")],
     {"a": QUALIFIED, "b": QUALIFIED, "c": FAILED}, 1),
    ("cancelled", [gate("ab", "INCONCLUSIVE"), gate("cd", None)], dict.fromkeys("abcd", NOT_JUDGED), 3),
    ("in two gates, of which one was cancelled", [gate("ab", "PASS"), gate("bc", None)],
     {"a": QUALIFIED, "b": NOT_JUDGED, "c": NOT_JUDGED}, 3),
    ("a node died", [gate("ab", "INCONCLUSIVE", **DIED), gate("cd", "PASS")],
     {"a": SUSPECT, "b": FAILED, "c": QUALIFIED, "d": QUALIFIED}, 1),
    ("a node died, the other is good",
     [gate("ab", "INCONCLUSIVE", **DIED), gate("cd", "PASS"), gate("ad", "PASS", "a")],
     {"a": QUALIFIED, "b": FAILED, "c": QUALIFIED, "d": QUALIFIED}, 1),
    ("a node died, and is back", [gate("ab", "INCONCLUSIVE", **DIED), gate("cd", "PASS"), gate("ac", "PASS", "a"),
                                  gate("bd", "PASS", "b")],
     {"a": SUSPECT, "b": SUSPECT, "c": QUALIFIED, "d": QUALIFIED}, 3),
    ("a node died twice", [gate("ab", "INCONCLUSIVE", **DIED), gate("cd", "PASS"), gate("bd", "INCONCLUSIVE", "b")],
     {"a": SUSPECT, "b": FAILED, "c": QUALIFIED, "d": QUALIFIED}, 1),
    ("the good one dies in the second round",
     [gate("ac", "FAIL"), gate("bd", "PASS"), gate("ab", "INCONCLUSIVE", "a", **DIED), gate("cd", "FAIL", "c")],
     {"a": SUSPECT, "b": FAILED, "c": FAILED, "d": QUALIFIED}, 1),
    ("the batch host is lost, and nobody says which", [gate("ab", None, lost=True), gate("cd", "PASS")],
     {"a": SUSPECT, "b": SUSPECT, "c": QUALIFIED, "d": QUALIFIED}, 3),
    ("gates of one node", [gate("a", "PASS"), gate("b", "FAIL")], {"a": QUALIFIED, "b": FAILED}, 1),
    ("not submitted", [], {"a": NOT_JUDGED}, 3),
]  # fmt: skip


@pytest.mark.parametrize(("gates", "expected", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_judge_nodes(gates: Sequence[GroupGate], expected: dict[str, str], code: int) -> None:
    found = judge_nodes(list(expected), gates, {})
    assert {node: one.result for node, one in found.items()} == expected
    assert exit_code(found.values()) == code
    for node, one in found.items():
        assert one.why or one.result == QUALIFIED
        assert set(one.runs) == {g.run for g in gates if node in g.nodes and g.of in (None, node)}


def test_reasons() -> None:
    gates = [gate("ab", "FAIL"), gate("cd", "PASS"), gate("ac", "PASS", "a"), gate("bd", "FAIL", "b")]
    found = judge_nodes("abcd", gates, {"x": "Slurm has it as down"})
    assert found["a"].why == "it passed without b"
    assert found["b"].why == "its gate failed with nodes that have passed, too: bd FAIL"
    assert found["x"] == NodeResult(NOT_JUDGED, "Slurm has it as down")
    (found_b,) = [one for node, one in judge_nodes("ab", gates[:1], {"b": "too few"}).items() if node == "b"]
    assert found_b.why == "its gate failed: ab FAIL; too few"


def test_first_look() -> None:
    gates = [gate("ab", "PASS"), gate("bc", "FAIL"), gate("de", None), gate("fg", "PASS"), gate("gh", "INCONCLUSIVE")]
    assert first_look(gates) == (["b", "c"], ["a", "f"])


VERDICTS = st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE", None])


@given(st.lists(st.tuples(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=2, unique=True), VERDICTS,
                          st.booleans(), st.booleans()), max_size=8))  # fmt: skip
def test_no_node_is_qualified_that_a_gate_speaks_against(drawn: list[Any]) -> None:
    gates = [
        GroupGate(tuple(nodes), str(n), verdict, "", nodes[0] if second else None, {nodes[0]: "x"} if blames else {})
        for n, (nodes, verdict, second, blames) in enumerate(drawn)
    ]
    found = judge_nodes("abcdef", gates, {})
    for node, one in found.items():
        first = [g for g in gates if node in g.nodes and g.of is None]
        second = [g for g in gates if g.of == node]
        if one.result == QUALIFIED:
            assert first or second
            assert all(g.verdict == "PASS" for g in first) or any(g.verdict == "PASS" for g in second)
            assert not any(g.verdict == "FAIL" for g in second)
        if one.result == FAILED:
            assert any(g.bad for g in gates if node in g.nodes)
        if one.result == SUSPECT:
            assert any(g.bad for g in first)


def test_gate_of(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert gate_of(folder, ["a", "b"], None, "CANCELLED") == GroupGate(
        ["a", "b"], "run", None, "its job ended CANCELLED, without a decision of its supervisor"
    )
    assert gate_of(folder, ["a"], "a", "NODE_FAIL").bad
    records.append_event(folder.events, "node_failed", node="b", what="preflight", reason="no GPU", attempt=0)
    records.append_event(folder.events, "node_failed", node="x", what="preflight", reason="not one of these", attempt=0)
    records.append_event(folder.events, "decision", decision="stop", reason="a gate is not repeated")
    records.write_json(folder.verdict, {"verdict": "INCONCLUSIVE"})
    found = gate_of(folder, ["a", "b"], None, "FAILED")
    assert (found.verdict, found.why, found.blamed) == (
        "INCONCLUSIVE", "a gate is not repeated", {"b": "preflight: no GPU"},
    )  # fmt: skip
    attempt = folder.new_attempt()
    records.write_json(attempt.record, {"class": "gpu_fault", "class_why": "Xid 79", "failed_node": "a"})
    assert gate_of(folder, ["a", "b"], None, "FAILED").blamed["a"] == "gpu_fault: Xid 79"
    records.write_json(attempt.record, {"class": "user_error", "class_why": "x", "failed_node": "a"})
    assert "a" not in gate_of(folder, ["a", "b"], None, "FAILED").blamed
