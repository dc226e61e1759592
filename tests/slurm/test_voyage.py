"""Runs disturbed on the real Slurm, with real training: each ends with the undisturbed run's losses, or stops."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.run import checkpoint
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.client import Slurm
from seatrial.slurm.requeue import Wish, requeue
from tests.slurm import jobs, voyages
from tests.slurm.conftest import clusters
from tests.slurm.fleet import VOYAGES, Fleet, Sea, voyage
from tests.slurm.voyages import SAVES, STEPS

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def fleet(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, calm: RunFolder
) -> Iterator[Fleet]:
    items = [item for item in request.session.items if item.path == Path(__file__)]
    names = [item.callspec.params["name"] for item in items if hasattr(item, "callspec")]
    with clusters() as make:
        fleet = Fleet(names, cluster, make, lambda name: tmp_path_factory.mktemp(name), calm)
        yield fleet
        fleet.close()


def rank_fails(sea: Sea, how: str, words: str) -> None:
    folder = sea.embark(fault={"rank": 1, "step": 13, "how": how})
    first, second = sea.ended_well(folder)
    assert (first["class"], first["first_failed_rank"], first["failed_node"]) == ("unknown", 1, first["nodes"][1])
    assert words in first["class_why"]
    assert (first["last_step"], first["newest_checkpoint"]) == (12, SAVES)
    assert first["decision"]["action"] == "restart"
    assert (second["resume_step"], second["first_step"], second["class"]) == (SAVES, SAVES + 1, "complete")
    assert (second["steps"]["replayed"], second["steps"]["productive"]) == (12 - SAVES, STEPS - 12)


@voyage()
def rank_killed(sea: Sea) -> None:
    rank_fails(sea, "kill", "SIGKILL")


@voyage(campaign=True)
def rank_exits(sea: Sea) -> None:
    rank_fails(sea, "exit", "exit code 7")


@voyage(campaign=True)
def rank_raises(sea: Sea) -> None:
    rank_fails(sea, "raise", "the test wants it so")


@voyage(campaign=True)
def rank_aborts(sea: Sea) -> None:
    rank_fails(sea, "abort", "SIGABRT")


@voyage(campaign=True, preempt_mode="REQUEUE", kill_wait_seconds=20)
def preempted_without_grace(sea: Sea) -> None:
    folder = sea.embark(pace=0.5, partition="batch", **{"slurm.preempt_mode": "REQUEUE"})
    voyages.reach(folder, 20)
    voyages.preempt(sea.cluster, sea.root)
    first, second = sea.ended_well(folder)
    assert (first["class"], first["stop"]) == ("preempted", "SIGTERM")
    assert first["decision"]["action"] == "requeue"
    assert second["job"]["restart"] == 1
    assert first["saved_on_signal"] is True, "the ranks had KillWait to save in"
    assert second["first_step"] == first["last_step"] + 1
    assert len(jobs.records(sea.cluster, voyages.job(folder))) == 2


def preempted_in_grace(sea: Sea, asked_by: str) -> None:
    folder = sea.embark(pace=0.5, partition="batch", **{"slurm.preempt_mode": "REQUEUE"})
    voyages.reach(folder, 12)
    voyages.preempt(sea.cluster, sea.root)
    first, second = sea.ended_well(folder)
    assert (first["class"], first["stop"], first["saved_on_signal"]) == ("preempted", asked_by, True)
    assert second["first_step"] == first["last_step"] + 1
    assert len(voyages.attempts(folder)) == 2, "Slurm 24.11 starts such a job once more after its end"


@voyage(preempt_mode="REQUEUE", grace_seconds=40)
def preempted_and_only_the_ranks_are_told(sea: Sea) -> None:
    preempted_in_grace(sea, "SIGTERM to the ranks")


@voyage(campaign=True, preempt_mode="REQUEUE", grace_seconds=40, send_user_signal=True)
def preempted_and_the_job_is_told(sea: Sea) -> None:
    preempted_in_grace(sea, "SIGUSR2")


@voyage(campaign=True, preempt_mode="CANCEL", kill_wait_seconds=20)
def preempted_for_good(sea: Sea) -> None:
    folder = sea.embark(pace=0.5, partition="batch", **{"slurm.preempt_mode": "CANCEL"})
    voyages.reach(folder, 20)
    before = voyages.job(folder)
    voyages.preempt(sea.cluster, sea.root)
    first, second = sea.ended_well(folder)
    assert first["class"] == "preempted"
    assert (first["job"]["id"], second["job"]["id"]) == (before, voyages.job(folder))
    assert voyages.events(folder, "submitted")[-1]["replaces"] == before


@voyage(campaign=True)
def an_operator_requeues_it_twice(sea: Sea) -> None:
    folder = sea.embark(pace=0.3)
    voyages.reach(folder, 12)
    sea.cluster.run("scontrol", "requeue", voyages.job(folder))
    voyages.reach(folder, 20, attempt=1)
    sea.cluster.run("scontrol", "requeue", voyages.job(folder))
    found = sea.ended_well(folder)
    assert [one["class"] for one in found] == ["preempted", "preempted", "complete"]
    assert [one["job"]["restart"] for one in found] == [0, 1, 2]
    assert all(folder.attempt(number).rank_log(1).stat().st_size for number in range(3))


@voyage()
def cancelled_by_scancel(sea: Sea) -> None:
    folder = sea.embark(pace=0.3)
    voyages.reach(folder, 10)
    sea.cluster.run("scancel", voyages.job(folder))
    (only,) = sea.stopped(folder, "cancelled")
    assert (only["class"], only["saved_on_signal"]) == ("cancelled", True)


def through_time_limits(sea: Sea, pace: float, slots: int) -> None:
    folder = sea.embark(pace=pace, time_limit_minutes=1)
    found = sea.ended_well(folder, patience=900)
    assert len(found) > slots
    for one, following in zip(found, found[1:], strict=False):
        assert (one["class"], one["saved_on_signal"]) == ("time_limit", True)
        assert one["stop"] in ("the time limit", "SIGUSR2")  # Slurm's signal counts until a save was timed
        assert one["decision"]["action"] == "requeue"
        if not following["evaluate_only"]:
            assert following["first_step"] == one["last_step"] + 1
    states = [state for state, _ in jobs.records(sea.cluster, voyages.job(folder))]
    assert states == ["REQUEUED"] * (len(found) - 1) + ["COMPLETED"]


@voyage()
def time_limit(sea: Sea) -> None:
    through_time_limits(sea, 1.2, 1)


@voyage(campaign=True)
def time_limit_three_times(sea: Sea) -> None:
    through_time_limits(sea, 2.0, 3)


@voyage(slurmd_timeout_seconds=15)
def the_batch_hosts_daemon_dies(sea: Sea) -> None:
    folder = sea.embark(pace=2)
    voyages.reach(folder, 18)
    host = voyages.events(folder, "ranks_started")[0]["nodes"][0]
    sea.cluster.stop_slurmd(host, signal.SIGKILL)  # the supervisor there lives on, and nobody tells it
    found = sea.ended_well(folder)
    assert (found[0]["class"], found[0]["failed_node"]) == ("node_failure", host)
    assert host not in found[-1]["nodes"]


@voyage()
def a_damaged_checkpoint(sea: Sea) -> None:
    """One cut short after its save, another that was never finished: the one before both is taken."""
    folder = sea.embark(pace=0.4)
    voyages.reach(folder, 19)
    shards = sorted(checkpoint.checkpoint_folder(folder.checkpoints, 16).glob("*.distcp"))
    os.truncate(shards[0], shards[0].stat().st_size - 1)
    checkpoint.checkpoint_folder(folder.checkpoints, 18).mkdir()
    voyages.kill_rank(folder)
    first, second = sea.ended_well(folder)
    assert (first["newest_checkpoint"], second["resume_step"], second["first_step"]) == (8, 8, 9)
    words = " ".join(second["passed_over"])
    assert "iter_0000018: .metadata is missing" in words
    assert f"iter_0000016: {shards[0].name} has" in words
    assert "the tracker file names 16" in words


@voyage(campaign=True)
def killed_during_a_save(sea: Sea) -> None:
    folder = sea.embark(pace=0.3)
    jobs.until(checkpoint.checkpoint_folder(folder.checkpoints, 16).is_dir, "the second save")
    voyages.kill_rank(folder, 0)
    _, second = sea.ended_well(folder)
    assert second["resume_step"] in (SAVES, 2 * SAVES)


@voyage()
def disk_full_for_a_while(sea: Sea) -> None:
    folder = sea.embark(pace=0.4, hold=True)
    with voyages.small_disk(folder.checkpoints) as disk:
        fill(sea, folder, disk)
        disk.free()
        first, second = sea.ended_well(folder)
        assert (first["class"], first["newest_checkpoint"], second["resume_step"]) == ("disk_full", SAVES, SAVES)


@voyage(campaign=True)
def disk_full_for_good(sea: Sea) -> None:
    folder = sea.embark(pace=0.4, hold=True)
    with voyages.small_disk(folder.checkpoints) as disk:
        fill(sea, folder, disk)
        sea.stopped(folder, "disk_full")
        assert checkpoint.check(checkpoint.checkpoint_folder(folder.checkpoints, SAVES)).whole


def fill(sea: Sea, folder: RunFolder, disk: voyages.Disk) -> None:
    """Let the run begin; leave nothing of its disk after the first save, until that has failed the second."""
    sea.cluster.run("scontrol", "release", voyages.job(folder))
    voyages.reach(folder, SAVES + 2)
    disk.fill()
    jobs.until(lambda: voyages.attempts(folder), "the failed save")


@voyage(campaign=True)
def asked_to_stop_in_an_evaluation(sea: Sea) -> None:
    folder = sea.embark(evaluation=(10, 1.0))
    voyages.reach(folder, 10)
    sea.cluster.run("scancel", "--signal=USR2", "--batch", voyages.job(folder))
    (only,) = sea.stopped(folder, "cancelled")
    assert (only["last_step"], only["saved_on_signal"], only["saved_steps"]) == (10, True, [8, 10])
    evaluated = [event["time"] for event in voyages.events(folder, "evaluation")]
    assert voyages.events(folder, "stop_requested")[0]["time"] < evaluated[0], "it was asked for during the evaluation"


@voyage(campaign=True)
def killed_in_the_final_evaluation(sea: Sea) -> None:
    folder = sea.embark(fault={"rank": 1, "step": "evaluation", "how": "kill"})
    first, second = sea.ended_well(folder)
    assert (first["class"], first["last_step"], first["newest_checkpoint"]) == ("unknown", STEPS, STEPS)
    assert (second["evaluate_only"], second["first_step"], second["class"]) == (True, None, "complete")
    assert {event["which"] for event in voyages.events(folder, "evaluation")} == {"validation", "test"}


@voyage(campaign=True)
def killed_by_its_time_limit(sea: Sea) -> None:
    """A rank that does not answer cannot save. Slurm ends the job, which is not the end of the run."""
    folder = sea.embark(pace=0.3, fault={"rank": 1, "step": 19, "how": "hang"}, time_limit_minutes=1)
    found = sea.ended_well(folder, patience=900)
    hung = next(n for n, one in enumerate(found) if one["last_step"] == 18)
    assert (found[hung]["class"], found[hung]["saved_on_signal"]) == ("time_limit", False)
    assert found[hung + 1]["first_step"] == found[hung]["newest_checkpoint"] + 1


@voyage()
def nan(sea: Sea) -> None:
    folder = sea.embark(fault={"rank": "all", "step": 11, "how": "nan"})
    (only,) = sea.stopped(folder, "nan")
    assert (only["failed_step"], only["newest_checkpoint"]) == (11, SAVES)


@voyage(campaign=True)
def brought_back_by_hand(sea: Sea) -> None:
    """By two people at once, from an older checkpoint than the newest, and without a node."""
    folder = sea.embark(fault={"rank": "all", "step": 19, "how": "nan"})
    (first,) = sea.stopped(folder, "nan")
    slurm = Slurm(environment=os.environ | sea.cluster.environment())
    refused: list[SeatrialError] = []

    def bring() -> None:
        try:
            requeue(folder, Wish("somebody", SAVES, (first["nodes"][0],)), slurm)
        except SeatrialError as error:
            refused.append(error)

    people = [threading.Thread(target=bring) for _ in range(2)]
    for one in people:
        one.start()
    for one in people:
        one.join()
    assert len(refused) == 1, refused
    jobs.until(lambda: voyages.events(folder, "decision")[-1]["decision"] == "done", "the second end", 300)
    assert len(voyages.events(folder, "submitted")) == 2
    first, second = voyages.attempts(folder)
    assert (second["why"], second["resume_step"], second["class"]) == ("requeued by hand", SAVES, "complete")
    assert "iter_0000016: a person asked for an earlier one" in second["passed_over"]
    assert first["nodes"][0] not in second["nodes"]
    voyages.same_losses(folder, sea.calm)
    voyages.nothing_left(sea.cluster, folder)


@voyage(campaign=True)
def a_mistake_at_the_start(sea: Sea) -> None:
    folder = sea.embark(fault={"how": "import"})
    assert len(sea.stopped(folder, "user_error")) == 1


@voyage(campaign=True)
def the_same_step_fails_again(sea: Sea) -> None:
    folder = sea.embark(fault={"rank": 0, "step": 12, "how": "raise", "times": 9})
    assert [one["last_step"] for one in sea.stopped(folder, "crash_loop")] == [11, 11]


@voyage(campaign=True, nodes=18)
def the_controller_is_away_for_a_minute(sea: Sea) -> None:
    """And a rank dies within: nothing is lost."""
    folder = sea.embark(pace=0.5)
    voyages.reach(folder, 12)
    with voyages.away(sea.cluster, "controller"):
        time.sleep(5)
        voyages.kill_rank(folder)
        time.sleep(55)
    sea.ended_well(folder)


@voyage(campaign=True, nodes=18)
def accounting_is_away(sea: Sea) -> None:
    folder = sea.embark(pace=0.3)
    voyages.reach(folder, 12)
    with voyages.away(sea.cluster, "accounting"):
        sea.cluster.run("scontrol", "requeue", voyages.job(folder))
        voyages.reach(folder, 20, attempt=1)
        voyages.kill_rank(folder)
        found = sea.ended_well(folder)
    assert [one["class"] for one in found] == ["preempted", "unknown", "complete"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.campaign] if one.campaign else []) for name, one in VOYAGES.items()],
)
def test_voyage(fleet: Fleet, name: str) -> None:
    fleet.end(name)
