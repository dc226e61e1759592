"""Which nodes are judged, in which groups, and how their gates are submitted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.all_nodes import Group, NodeSet, groups_of, in_service, node_set, parse_block_nodes, second_round
from seatrial.slurm.all_nodes_record import FIRST, Qualification, note, submit_groups
from seatrial.slurm.submit import Submission
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.slurm_room.fakes import FakeCommands, Reply, lines, on_path


def grouped(nodes: str, size: int, blocks: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    found = groups_of(list(nodes), size, blocks)
    return ["".join(group.nodes) for group in found.groups], dict(found.left)


def test_groups() -> None:
    assert grouped("abcd", 2) == (["ab", "cd"], {})
    assert grouped("abcde", 2) == (["ab", "cd", "de"], {})
    assert grouped("abcdefg", 4) == (["abcd", "defg"], {})
    assert grouped("ab", 1) == (["a", "b"], {})
    assert grouped("a", 2) == ([], {"a": "a gate takes 2 nodes, and there are 1 of those to judge"})
    blocks = {"a": "x", "c": "x", "e": "x", "b": "y", "d": "y", "f": "z"}
    assert grouped("abcdefg", 2, blocks) == (
        ["ac", "ce", "bd"],
        {
            "f": "a gate takes 2 nodes, and block z has 1 of those to judge",
            "g": "it is in no block, so no job with a segment gets it",
        },
    )


def test_second_round_takes_turns() -> None:
    found = second_round(list("abc"), list("xyz"), 2, None)
    assert [(group.of, "".join(group.nodes)) for group in found.groups] == [("a", "ax"), ("b", "by"), ("c", "cz")]
    found = second_round(list("ab"), list("xyz"), 3, None)
    assert ["".join(group.nodes) for group in found.groups] == ["axy", "bzx"]
    found = second_round(list("ab"), list("x"), 2, {"a": "1", "b": "2", "x": "2"})
    assert (["".join(g.nodes) for g in found.groups], list(found.left)) == (["bx"], ["a"])


NODES = st.lists(st.integers(0, 60), unique=True, max_size=40)


@given(NODES, st.integers(1, 9), st.one_of(st.none(), st.integers(1, 7)))
def test_every_node_is_in_a_group_or_named(numbers: list[int], size: int, per_block: int | None) -> None:
    nodes = [f"n{n}" for n in numbers]
    blocks = None if per_block is None else {f"n{n}": f"b{n // per_block}" for n in range(60)}  # n60: in none
    found = groups_of(nodes, size, blocks)
    inside = [node for group in found.groups for node in group.nodes]
    assert set(inside) | set(found.left) == set(nodes)
    assert not set(inside) & set(found.left)
    for group in found.groups:
        assert len(group.nodes) == len(set(group.nodes)) == size
        assert blocks is None or len({blocks[node] for node in group.nodes}) == 1
    # No more gates than needed: at most one a block that is not full of new nodes.
    assert len(inside) - len(set(inside)) <= (size - 1) * (1 if blocks is None else len(set(blocks.values())))


@given(NODES, st.integers(2, 5), st.data())
def test_a_suspect_is_tried_with_those_that_passed(numbers: list[int], size: int, data: st.DataObject) -> None:
    nodes = [f"n{n}" for n in numbers]
    blocks = {f"n{n}": f"b{n % 3}" for n in range(61)}
    suspects = data.draw(st.lists(st.sampled_from(nodes), unique=True)) if nodes else []
    passed = [node for node in nodes if node not in suspects]
    found = second_round(suspects, passed, size, blocks)
    assert sorted([*(group.nodes[0] for group in found.groups), *found.left]) == sorted(suspects)
    for group in found.groups:
        assert group.of == group.nodes[0]
        assert len(set(group.nodes)) == size
        assert set(group.nodes[1:]) <= set(passed)
        assert len({blocks[node] for node in group.nodes}) == 1


def test_blocks_of_slurm() -> None:
    text = (
        "BlockName=nvl72-01 BlockIndex=0 Nodes=gb200-[001-018] BlockSize=18\n"
        "BlockName=nvl72-02 BlockIndex=1 Nodes=gb200-[019-036] BlockSize=18\n"
        "AggregatedBlock=nvl72-[01-02] BlockIndex=2 Nodes=gb200-[001-036] BlockSize=36\n"
    )
    assert parse_block_nodes(text) == {"nvl72-01": "gb200-[001-018]", "nvl72-02": "gb200-[019-036]"}
    assert parse_block_nodes("SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-3]\n") == {}


def spec(root: Path) -> RunSpec:
    pairs = [("profile.account", "lab"), ("profile.partition", "batch"), ("profile.container.image", "/i.sqsh"),
             ("profile.paths.runs", str(root / "runs"))]  # fmt: skip
    return resolve("nemotron_3_nano_gb200", "gb200-8gpu", "gate", pairs)


def node(name: str, state: str = "idle", gres: str = "gpu:gb200:4", partition: str = "batch") -> list[object]:
    return [name, partition, state, 144, 900_000, gres, "(null)"]


PARTITION = "PartitionName={} State=UP Default={} MaxTime=UNLIMITED TotalNodes=7 Nodes=n[1-7]\n"
TOPOLOGY = "BlockName=x BlockIndex=0 Nodes=n[1-7] BlockSize=18\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    fakes = on_path(tmp_path, monkeypatch)
    rows = [node("n1"), node("n2", "mixed"), node("n3", "down*"), node("n4", "drained"), node("n5", gres="gpu:2"),
            node("n6"), node("n7", "allocated"), node("o1", partition="other")]  # fmt: skip
    fakes.script("sinfo", Reply(lines(*rows)))
    asked = f"""case "$*" in
*partition*) printf '%s' '{PARTITION.format("batch", "YES")}{PARTITION.format("other", "NO")}' ;;
*topology*) printf '%s' '{TOPOLOGY}' ;;
*hostnames*n\\[1-7\\]*) printf 'n1\\nn2\\nn3\\nn4\\nn5\\nn6\\nn7\\n' ;;
*hostnames*) echo "invalid hostlist" >&2; exit 1 ;;
esac"""
    program = fakes.bin / "scontrol"
    program.write_text(f"#!/bin/bash\n{asked}\n")
    program.chmod(0o755)
    return fakes


def test_node_set_of_a_partition(site: FakeCommands, tmp_path: Path) -> None:
    (tmp_path / "runs" / ".seatrial").mkdir(parents=True)
    line = {"node": "n6", "expires": "2099-01-01T00:00:00Z", "reason": "gpu_fault", "run": "r"}
    records.append_line(tmp_path / "runs" / ".seatrial" / "excluded-gb200-8gpu.jsonl", line)
    found = node_set(spec(tmp_path), None, site.slurm())
    assert found.nodes == ("n1", "n2", "n7")
    assert found.left == {
        "n3": "Slurm has it as down*", "n4": "Slurm has it as drained",
        "n5": "it lacks GPUs, processors or memory that the job asks of each node",
        "n6": "runs of this profile avoid it; --nodes names it all the same",
    }  # fmt: skip
    assert found.blocks is not None and set(found.blocks.values()) == {"x"}
    named = node_set(spec(tmp_path), "n6,n1", site.slurm())
    assert (named.nodes, named.left) == (("n6", "n1"), {})
    assert found.asked == found.nodes
    every = node_set(spec(tmp_path), "n[1-7]", site.slurm())
    assert (every.nodes, len(every.asked)) == (("n1", "n2", "n6", "n7"), 7)


@pytest.mark.parametrize(("named", "words"), [("n1,o1", "no node o1"), ("n[1-", "not a list of nodes")])
def test_nodes_that_are_none(named: str, words: str, site: FakeCommands, tmp_path: Path) -> None:
    with pytest.raises(SeatrialError, match=words) as caught:
        node_set(spec(tmp_path), named, site.slurm())
    assert caught.value.key == "--nodes"


def test_a_silent_slurm_groups_nothing(site: FakeCommands, tmp_path: Path) -> None:
    program = site.bin / "scontrol"
    program.write_text(program.read_text().replace("*topology*)", "*topology*) exit 1;;\n*never*)"))
    with pytest.raises(SeatrialError, match="cannot be grouped"):
        node_set(spec(tmp_path), None, site.slurm())


def test_out_of_service(site: FakeCommands) -> None:
    assert in_service(["n1", "n3"], site.slurm()) == {"n3": "Slurm has it as down*"}


class Submitter:
    """Submits to nobody: makes run folders with a job, but where a node is ``bad`` it fails."""

    def __init__(self, runs: Path, bad: str = "") -> None:
        self.runs, self.bad, self.words = runs, bad, []  # type: ignore[var-annotated]

    def __call__(self, words: Sequence[str]) -> Submission:
        self.words.append(list(words))
        if self.bad and self.bad in words[0]:
            raise SeatrialError("sbatch: invalid node")
        folder = RunFolder.create(self.runs / f"run-{len(self.words)}")
        records.append_event(folder.events, "submitted", executor="slurm", job_id=str(100 + len(self.words)))
        return Submission(folder, lambda: True)


def new(tmp_path: Path, nodes: str) -> Qualification:
    return Qualification.new(
        spec(tmp_path), NodeSet(tuple(nodes), {"z": "down"}, dict.fromkeys(nodes, "x"), tuple(nodes)), {}
    )


def test_submission_is_on_record_group_by_group(tmp_path: Path) -> None:
    made, start = new(tmp_path, "abcdef"), Submitter(tmp_path / "runs", bad="c")
    groups = [Group(("a", "b")), Group(("c", "d")), Group(("e", "f"))]
    submit_groups(made, groups, FIRST, start)
    assert start.words == [["--nodelist=a,b"], ["--nodelist=c,d"], ["--nodelist=e,f"]]
    assert [(gate.run, gate.job, gate.error) for gate in made.gates] == [
        ("run-1", "101", None), (None, None, "sbatch: invalid node"), ("run-3", "103", None),
    ]  # fmt: skip
    again = Qualification.read(spec(tmp_path), made.id)
    assert again == made
    assert json.loads(made.path.read_text())["schema"] == 1
    with pytest.raises(SeatrialError, match="is of recipe"):
        Qualification.read(replace(spec(tmp_path), recipe="other"), made.id)
    with pytest.raises(SeatrialError, match=f"did you mean '{made.id}'"):
        Qualification.read(spec(tmp_path), made.id[:-1])


def test_interrupted_submission_keeps_what_is_there(tmp_path: Path) -> None:
    made, start = new(tmp_path, "abcd"), Submitter(tmp_path / "runs")

    def interrupted(words: Sequence[str]) -> Submission:
        if start.words:
            raise KeyboardInterrupt
        return start(words)

    with pytest.raises(KeyboardInterrupt):
        submit_groups(made, [Group(("a", "b")), Group(("c", "d"))], FIRST, interrupted)
    assert Qualification.read(spec(tmp_path), made.id).gates[0].run == "run-1"


def test_at_most_so_many_at_a_time(tmp_path: Path) -> None:
    made, start = new(tmp_path, "abcdefgh"), Submitter(tmp_path / "runs", bad="=e")
    submit_groups(made, [Group((a, b)) for a, b in zip("aceg", "bdfh", strict=True)], FIRST, start, at_most=1)
    after: Any = [words[1:] for words in start.words]
    dependency = "--dependency=singleton,afterany:{}"
    # The one that was not submitted is nothing to wait for.
    assert after == [[], [dependency.format(101)], [dependency.format(102)], [dependency.format(102)]]


def test_the_history_of_nodes(tmp_path: Path) -> None:
    made = new(tmp_path, "abc")
    made.write()
    note(
        made,
        {"a": ("qualified", "", ["r1", "r2"]), "b": ("failed", "it is bad", ["r1"]), "c": ("suspect", "?", ["r3"])},
    )
    found = list(records.read_lines(tmp_path / "runs" / ".seatrial" / "nodes-gb200-8gpu.jsonl"))
    assert [(line["node"], line["what"], line["run"]) for line in found] == [
        ("a", "gate_passed", "r2"), ("b", "gate_failed", "r1"),
    ]  # fmt: skip
    assert found[1]["reason"] == "it is bad"
