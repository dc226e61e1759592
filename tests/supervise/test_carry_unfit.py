"""What the carrier does with nodes that are not fit: no attempt is spent, and other runs avoid them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge import exclusions
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import berths, carry, classes, excluded, exit_codes
from seatrial.supervise.carry import Carrier, End
from seatrial.supervise.control import Control
from seatrial.supervise.history import History
from seatrial.supervise.job import Job
from seatrial.supervise.job_watch import JobWatch
from seatrial.supervise.journal import Journal
from seatrial.supervise.preflight import Report
from seatrial.supervise.requeue import Returned
from seatrial.supervise.resume import Start

ATTEMPT = "an attempt"


class Trip:
    """A job of two nodes and none to spare; those in ``bad`` fail their preflight. Ranks and Slurm are stand-ins."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes, self.bad, self.back = ["n1", "n2"], ["n2"], list[list[str]]()
        self.folder = RunFolder.create(root / "runs" / "run-1")
        self.control = Control()
        self.ran: list[Sequence[str] | None] = []
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(berths, "nodes_now", lambda environment: self.nodes)
        monkeypatch.setattr(carry, "job_nodes", lambda environment: self.nodes)
        monkeypatch.setattr(berths, "down", lambda nodes, environment, failing: frozenset())
        monkeypatch.setattr(berths, "preflight", lambda job, nodes, attempt: self.preflight(list(nodes)))
        monkeypatch.setattr(carry, "choose_start", lambda *_: Start(None, "the beginning"))
        monkeypatch.setattr(carry, "run_attempt", self._run)
        monkeypatch.setattr(carry, "bring_back", self._bring_back)
        monkeypatch.setattr(excluded, "ask", lambda *_, **__: "40")

    def preflight(self, nodes: list[str]) -> Report:
        return Report(nodes, {node: ("disk: full",) for node in nodes if node in self.bad})

    def carrier(
        self, *, kind: str = "convergence", executor: str = "slurm", own_job: bool = True, restart: int = 0,
        backoff: float = 0.0,
    ) -> Carrier:  # fmt: skip
        if own_job:
            (self.folder.path / "batch.sh").write_text("")
        profile = {
            "name": "rack", "nodes": 2, "executor": executor, "paths": {"runs": str(self.folder.path.parent)},
            "recovery": {"backoff_seconds": backoff},
        }  # fmt: skip
        fields = {f"schedule.{name}": {"value": value} for name, value in (("train_iters", 4), ("eval_iters", 0))}
        spec: dict[str, Any] = {"profile": profile, "kind": kind, "fields": fields}
        watch = JobWatch({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restart)}) if executor == "slurm" else None
        return Carrier(Job(self.folder, spec, Journal(self.folder), self.control, watch=watch))

    def attempt(self, carrier: Carrier) -> Any:
        return carrier._attempt(History(), "a test")

    def listed(self) -> list[tuple[str, str]]:
        lines = records.read_lines(exclusions.path_for(self.folder.path.parent, "rack"))
        return [(one.node, one.reason) for one in exclusions.active(lines, 0.0)]

    def _run(self, job: Job, start: Start, why: str, history: History, nodes: Sequence[str] | None = None) -> str:
        self.ran.append(nodes)
        return ATTEMPT

    def _bring_back(self, job: Job, record: Any, exclude: Sequence[str]) -> Returned:
        self.back.append(list(exclude))
        return Returned(True, "requeued", tuple(exclude))


@pytest.fixture
def trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trip:
    return Trip(tmp_path, monkeypatch)


def test_a_bad_node_costs_no_attempt_and_is_left_out(trip: Trip) -> None:
    end = trip.attempt(trip.carrier())
    assert isinstance(end, End) and not end.final and end.name == classes.NODE_FAILURE
    assert (trip.ran, trip.back) == ([], [["n2"]])
    ((node, reason),) = trip.listed()
    assert node == "n2" and "disk: full" in reason


def test_a_spare_is_used_and_the_bad_node_is_left_out_all_the_same(trip: Trip) -> None:
    trip.nodes = ["n1", "n2", "n3"]
    carrier = trip.carrier()
    assert trip.attempt(carrier) == ATTEMPT
    assert (trip.ran, trip.back, trip.listed()) == ([("n1", "n3")], [], [("n2", "node_failure: disk: full")])
    trip.attempt(carrier)
    assert len(trip.listed()) == 1 and trip.ran[-1] == ("n1", "n3")


@pytest.mark.parametrize("kind", ["gate", "convergence"])
def test_where_no_other_node_can_come_it_ends(trip: Trip, kind: str) -> None:
    end = trip.attempt(trip.carrier(kind=kind, own_job=kind == "gate"))
    assert (end.final, end.name, end.exit_code) == (True, classes.NODE_FAILURE, exit_codes.UNFIT_NODES)
    assert "n2: disk: full" in end.reason
    assert trip.back == []


def test_it_is_tried_so_often_and_no_more(trip: Trip) -> None:
    ends = []
    for restart in range(7):
        ends.append(trip.attempt(trip.carrier(restart=restart)))
        if ends[-1].final:
            break
    assert [end.final for end in ends] == [False] * 5 + [True]
    assert ends[-1].name == classes.NODE_FAILURE and "n2" in ends[-1].reason


def stop_in_preflight(trip: Trip, carrier: Carrier) -> None:
    before = trip.preflight
    trip.monkeypatch.setattr(trip, "preflight", lambda nodes: (ask(trip), before(nodes))[1])


def stop_in_the_wait(trip: Trip, carrier: Carrier) -> None:
    threading.Timer(0.3, ask, [trip]).start()


def ask(trip: Trip) -> None:
    trip.control.stop = "SIGTERM"


@pytest.mark.parametrize("when", [stop_in_preflight, stop_in_the_wait])
def test_who_asks_for_an_end_meanwhile_is_heard(trip: Trip, when: Callable[[Trip, Carrier], None]) -> None:
    """A preempted job goes on later, a person's word ends the run: an attempt that starts no rank tells them apart."""
    carrier = trip.carrier(backoff=20.0)
    when(trip, carrier)
    assert trip.attempt(carrier) == ATTEMPT
    assert (trip.ran, trip.back) == ([None], [])


@pytest.mark.parametrize(("restart", "requeued"), [(5, True), (6, False)])
def test_a_node_that_keeps_coming_is_put_up_with(
    trip: Trip, monkeypatch: pytest.MonkeyPatch, restart: int, requeued: bool
) -> None:
    monkeypatch.setattr(carry, "requeue", lambda *_: Returned(True, "requeued"))
    trip.bad = []
    carrier = trip.carrier(restart=restart)
    if requeued:
        with pytest.raises(carry._Ends):
            carrier._verify_exclusion(["n2"])
        return
    carrier._verify_exclusion(["n2"])
    assert trip.attempt(carrier) == ATTEMPT
    assert trip.ran == [("n1", "n2")]
