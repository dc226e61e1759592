"""Which nodes run ranks: alive, fit, not left out; and those that were used before stay."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.run import node_history, records
from seatrial.run.layout import RunFolder
from seatrial.supervise import berths, nodes
from seatrial.supervise.berths import Berths, choose
from seatrial.supervise.control import Control
from seatrial.supervise.job import Job
from seatrial.supervise.job_watch import JobWatch
from seatrial.supervise.journal import Journal
from seatrial.supervise.nodes import parse_down
from seatrial.supervise.preflight import Report
from tests.slurm_room.fakes import Reply, on_path


@pytest.mark.parametrize(
    ("fit", "before", "avoided", "chosen"),
    [
        ("n1 n2 n3", "", "", "n1 n2"),
        ("n1 n3", "n1 n2", "", "n1 n3"),  # the spare takes n2's place
        ("n1 n2 n3", "n2 n3", "", "n2 n3"),  # a node that came back does not push one out
        ("n1 n2 n3", "", "n1", "n2 n3"),
        ("n1 n2", "", "n1 n2", "n1 n2"),  # nobody is left: put up with
        ("n1 n2 n3", "n1 n2", "n1", "n2 n3"),
        ("n1", "n1 n2", "", None),
        ("", "", "", None),
    ],
)
def test_choose(fit: str, before: str, avoided: str, chosen: str | None) -> None:
    found = choose(fit.split(), 2, before.split(), avoided.split())
    assert found == (None if chosen is None else tuple(chosen.split()))


NODES = st.lists(st.sampled_from([f"n{n}" for n in range(8)]), unique=True)


@given(NODES, st.integers(1, 5), NODES, NODES)
def test_only_fit_nodes_are_chosen_and_all_that_are_wanted(
    fit: list[str], wanted: int, before: list[str], avoided: list[str]
) -> None:
    found = choose(fit, wanted, before, avoided)
    if found is None:
        assert len(fit) < wanted
        return
    assert len(found) == wanted and list(found) == [node for node in fit if node in found]
    if any(node in avoided for node in found):
        assert all(node in found for node in fit if node not in avoided)


@pytest.mark.parametrize(
    ("said", "down"),
    [
        ("NodeName=n1 Arch=aarch64 State=IDLE Reason=x\nNodeName=n2 State=DOWN*+DRAIN Reason=State=IDLE\n", {"n2"}),
        ("NodeName=n1 State=DRAIN\nNodeName=n2 State=FAIL\n", {"n2"}),
        ("NodeName=n1 State=IDLE+DRAIN\nNodeName=n2 State=IDLE+FAIL\n", {"n2"}),
        ("NodeName=n1 State=MIXED+FAILING+NOT_RESPONDING Reason=x\n", {"n1"}),
        ("NodeName=n1 State=MIXED+NOT_RESPONDING\n", set()),  # not proven
        ("Node n1 not found\n", set()),
        ("", set()),
    ],
)
def test_slurms_word_on_nodes(said: str, down: set[str]) -> None:
    assert parse_down(said, failing=True) == down


def test_a_node_that_is_marked_to_fail_is_not_down() -> None:
    assert parse_down("NodeName=n1 State=MIXED+FAIL\nNodeName=n2 State=DOWN+FAIL\n") == {"n2"}


def test_no_question_is_asked_about_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """scontrol would tell of all nodes of the cluster."""
    fakes = on_path(tmp_path, monkeypatch)
    fakes.script("scontrol", Reply("NodeName=n9 State=DOWN*\n"))
    assert nodes.down([], os.environ) == frozenset()
    assert not fakes.calls("scontrol")
    assert nodes.down(["n9"], os.environ) == {"n9"}


class Sea:
    """A job of three nodes, of which Slurm and the preflight say what they are told to."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.down, self.unfit = ["n1", "n2", "n3"], frozenset[str](), dict[str, tuple[str, ...]]()
        monkeypatch.setattr(berths, "nodes_now", lambda environment: self.now)
        monkeypatch.setattr(berths, "down", lambda nodes, environment, failing: self.down & {*nodes})
        monkeypatch.setattr(berths, "preflight", self._preflight)
        self.folder = RunFolder.create(root / "runs" / "run-1")
        profile = {"name": "rack", "nodes": 2, "executor": "slurm", "paths": {"runs": str(root / "runs")}}
        spec: dict[str, Any] = {"profile": profile, "kind": "convergence"}
        watch = JobWatch({"SLURM_JOB_ID": "7"})
        self.control = Control()
        self.job = Job(self.folder, spec, Journal(self.folder), self.control, watch=watch)
        self.berths = Berths(self.job)

    def _preflight(self, job: Job, nodes: list[str], attempt: int) -> Report:
        return Report(list(nodes), {node: why for node, why in self.unfit.items() if node in nodes})


@pytest.fixture
def sea(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sea:
    return Sea(tmp_path, monkeypatch)


def test_a_node_that_fails_is_left_out_from_then_on_and_on_record(sea: Sea) -> None:
    sea.unfit = {"n2": ("gpus: 3 are visible",)}
    found = sea.berths.find(0)
    assert (found.chosen, found.fit, found.failed) == (("n1", "n3"), 2, {"n2": "gpus: 3 are visible"})
    sea.unfit = {}
    assert sea.berths.find(1).chosen == ("n1", "n3")
    assert sea.berths.spares() == 0
    (event,) = [json.loads(text) for text in sea.folder.events.read_text().splitlines()]
    assert (event["event"], event["node"], event["what"]) == ("node_failed", "n2", "preflight")
    path = node_history.path_for(sea.folder.path.parent, "rack")
    assert [one["node"] for one in records.read_objects(path)] == ["n2"]


def test_what_all_nodes_lack_is_no_nodes_fault(sea: Sea) -> None:
    sea.unfit = dict.fromkeys(sea.now, ("folders: /data cannot be read",))
    found = sea.berths.find(0)
    assert (found.chosen, found.fit, found.everywhere, len(found.failed)) == (None, 0, True, 3)
    sea.unfit = {}
    assert sea.berths.find(0).chosen == ("n1", "n2"), "none of them was left out"
    assert not sea.folder.events.exists() and not node_history.path_for(sea.folder.path.parent, "rack").exists()


@pytest.mark.parametrize(
    ("now", "down", "out", "chosen", "fit"),
    [
        (["n1", "n2", "n3"], [], ["n1"], ("n2", "n3"), 2),
        (["n1", "n3"], [], [], ("n1", "n3"), 2),  # Slurm has taken n2 from the job
        (["n1", "n2", "n3"], ["n1"], [], ("n2", "n3"), 2),
        (["n1", "n2", "n3"], ["n1"], ["n2"], None, 1),
        ([], [], [], None, 0),
    ],
)
def test_find(
    sea: Sea, now: list[str], down: list[str], out: list[str], chosen: tuple[str, ...] | None, fit: int
) -> None:
    sea.now, sea.down = now, frozenset(down)
    sea.berths.leave_out(out)
    found = sea.berths.find(0)
    assert (found.chosen, found.fit) == (chosen, fit)


def test_spares_of_an_attempt_that_began_no_rank(sea: Sea) -> None:
    assert sea.berths.spares() == 1
    sea.now = ["n1", "n3"]
    assert sea.berths.spares() == 0


def test_nothing_is_asked_while_slurm_ends_the_job(sea: Sea, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(berths, "nodes_now", lambda environment: pytest.fail("KillWait runs"))
    sea.control.terminated_at = 1.0
    assert sea.berths.spares(["n1", "n2"]) == 0


@pytest.mark.parametrize(
    ("name", "noted"), [("gpu_fault", 1), ("hang", 1), ("unknown", 1), ("user_error", 0), ("preempted", 0)]
)
def test_a_mistake_is_no_failure_of_the_node_that_met_it_first(sea: Sea, name: str, noted: int) -> None:
    berths.blame(sea.job, {"failed_node": "n1", "class": name, "class_why": "so", "attempt": 0})
    path = node_history.path_for(sea.folder.path.parent, "rack")
    assert [one["what"] for one in records.read_objects(path)] == [name] * noted


def test_a_job_without_spares_is_told_without_a_question(sea: Sea, monkeypatch: pytest.MonkeyPatch) -> None:
    sea.now = ["n1", "n2"]
    assert sea.berths.find(0).chosen == ("n1", "n2")
    monkeypatch.setattr(berths, "nodes_now", lambda environment: pytest.fail("Slurm was asked"))
    assert sea.berths.spares() == 0
    assert sea.berths.job_nodes == ["n1", "n2"]
    sea.berths.leave_out(["n2"])
    assert sea.berths.job_nodes == ["n1"]


def test_spares_are_what_is_alive_beside_the_ranks(sea: Sea) -> None:
    assert sea.berths.spares(["n1", "n2"]) == 1, "a new supervisor knows the last attempt's nodes from its record"
    sea.berths.find(0)
    assert sea.berths.spares() == 1
    sea.down = frozenset({"n3"})
    assert sea.berths.spares() == 0
