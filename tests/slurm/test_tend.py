"""Runs on the real Slurm whose jobs end without a decision, and `seatrial tend` that brings them back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.client import Slurm
from seatrial.slurm.submit import prepare, submit
from seatrial.slurm.tend import Outcome, Patience, tend
from seatrial.spec.resolve import resolve
from tests.cli.test_tend import AT_ONCE
from tests.cli.verbs import verb
from tests.slurm import jobs, voyages
from tests.slurm.conftest import Factory
from tests.slurm.fleet import Sea
from tests.slurm.test_submission import ENDED, NANO, REPO, number, on_cluster, start
from tests.slurm.test_verbs import settings
from tests.slurm.voyages import events

__all__ = ["on_cluster"]  # a fixture
AT_HAND = Patience(fresh=5, grace=0, silence=0, still=0)  # what Slurm does by itself it has done by then


def one(folder: RunFolder, cluster: Cluster, **options: Any) -> Outcome:
    slurm = Slurm(environment=os.environ | cluster.environment())
    (outcome,) = tend([folder], slurm, patience=AT_HAND, **options)
    return outcome


def two_at_once(folder: RunFolder, cluster: Cluster) -> list[str]:
    """Tend the run from two processes at the same time; return what each says."""
    words = [sys.executable, "-c", AT_ONCE, str(folder.path)]
    environment = os.environ | cluster.environment()
    both = [subprocess.Popen(words, cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return [process.communicate(timeout=600)[0].strip() for process in both]


def numbers(cluster: Cluster, folder: RunFolder) -> list[str]:
    """All jobs that the run ever had, by accounting."""
    said = cluster.run("sacct", "-n", "-X", f"--name={folder.path.name}", "--format=JobIDRaw").stdout
    return sorted(said.split(), key=int)


def is_down(cluster: Cluster, node: str) -> bool:
    shown = cluster.run("scontrol", "show", "node", node).stdout
    return "State=DOWN" in shown and "NOT_RESPONDING" in shown


def supervisor(folder: RunFolder) -> int:
    return int(events(folder, "supervisor_started")[-1]["pid"])


def test_a_killed_supervisor_s_run_comes_back_once_and_a_cancelled_one_does_not(
    on_cluster: Cluster, tmp_path: Path
) -> None:
    held = resolve(NANO, "slurm-sandbox", "convergence", settings(tmp_path, 4))
    prepare(held)
    folder = start(tmp_path, {"all": {"steps": 4, "pace": 5}}, kind="convergence")
    cancelled = submit(held, allow_dirty=True, hold=True).folder
    assert one(cancelled, on_cluster).action == "wait", "held, and new"
    on_cluster.run("scancel", number(cancelled))
    first = number(folder)
    jobs.until(lambda: events(folder, "ranks_started"), "its ranks")
    assert one(folder, on_cluster).words == "its job is RUNNING"
    os.kill(supervisor(folder), signal.SIGKILL)
    jobs.wait_for(on_cluster, first, ["FAILED"])
    waits = verb("tend", str(folder.path))
    assert (waits.returncode, "just now" in waits.stdout) == (0, True), waits.stdout
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    assert one(folder, on_cluster, dry_run=True).action == "submit"
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before
    said = two_at_once(folder, on_cluster)
    assert sum(words.startswith("True False submitted as job") for words in said) == 1, said
    assert sum(words.startswith("False False") for words in said) == 1, said
    sent = events(folder, "submitted")
    assert [(event.get("by"), event.get("replaces")) for event in sent] == [(None, None), ("tend", first)]
    assert (len(events(folder, "tended")), len(events(folder, "requeue_requested"))) == (1, 0)
    left = one(cancelled, on_cluster)
    assert (left.state, left.action, left.needs_person) == ("CANCELLED", "nothing", False)
    assert len(events(cancelled, "submitted")) == 1
    jobs.until(lambda: len(events(folder, "supervisor_started")) == 2, "the supervisor that takes it up")
    jobs.until(lambda: events(folder, "decision"), "its decision on the attempt that was lost")
    assert records.read_json(folder.attempt(0).record)["class"] == "unknown"
    on_cluster.run("scancel", number(folder))
    assert numbers(on_cluster, folder) == [first, number(folder)]
    jobs.wait_for(on_cluster, number(folder), ENDED)


def test_a_run_that_no_supervisor_takes_up_is_left_to_a_person(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = start(tmp_path, kind="convergence", host_python="/bin/false")
    for count in range(1, 3):
        jobs.wait_for(on_cluster, number(folder), ["FAILED"])
        assert one(folder, on_cluster).done
        assert len(events(folder, "submitted")) == count + 1
    jobs.wait_for(on_cluster, number(folder), ["FAILED"])
    found = one(folder, on_cluster)
    assert (found.action, found.needs_person, found.done) == ("person", True, False)
    assert "of 2 submissions in a row none came to start" in found.words
    assert len(numbers(on_cluster, folder)) == 3
    assert not events(folder, "supervisor_started")


@pytest.mark.train
@pytest.mark.campaign
def test_preempted_for_good_with_its_supervisor(make_cluster: Factory, tmp_path: Path, calm: RunFolder) -> None:
    cluster = make_cluster(preempt_mode="CANCEL", kill_wait_seconds=10)
    folder = voyages.embark(cluster, tmp_path, pace=1, partition="batch", **{"slurm.preempt_mode": "CANCEL"})
    first = voyages.job(folder)
    voyages.reach(folder, 20)
    voyages.preempt(cluster, tmp_path)
    jobs.wait_for(cluster, first, ["PREEMPTED", "COMPLETING"])
    os.kill(supervisor(folder), signal.SIGKILL)  # its ranks still save: it has not submitted the run again itself
    jobs.wait_for(cluster, first, ["PREEMPTED"])
    assert len(events(folder, "submitted")) == 1
    jobs.until(lambda: one(folder, cluster, dry_run=True).state == "PREEMPTED", "the end of the job")
    said = two_at_once(folder, cluster)
    assert sum(words.startswith("True False submitted as job") for words in said) == 1, said
    lost, last = Sea(cluster, tmp_path, calm).ended_well(folder)
    assert (lost["class"], lost["decision"]["action"]) == ("preempted", "requeue")
    assert "failure" not in lost["decision"]["reason"], "it used a budget"
    assert (last["class"], last["why"]) == ("complete", "requeued after preempted")
    assert [lost["job"]["id"], last["job"]["id"]] == numbers(cluster, folder) == [first, voyages.job(folder)]
    assert events(folder, "submitted")[-1]["replaces"] == first
    assert not events(folder, "requeue_requested")


@pytest.mark.train
@pytest.mark.campaign
def test_a_running_job_that_has_lost_its_batch_host(make_cluster: Factory, tmp_path: Path, calm: RunFolder) -> None:
    """With a spare node Slurm leaves it running; who kept watch from another node is dead, too."""
    cluster = make_cluster(slurmd_timeout_seconds=10)
    folder = voyages.embark(cluster, tmp_path, pace=0.5, spare_nodes=1, segment=3)
    only = voyages.job(folder)
    voyages.reach(folder, 12)
    host = jobs.field(cluster, only, "BatchHost")
    os.kill(supervisor(folder), signal.SIGSTOP)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if b"watchman.py" in words and os.fsencode(folder.path) in words:
            os.kill(int(path.name), signal.SIGKILL)
    assert one(folder, cluster).words == "its job is RUNNING"
    cluster.kill_node(host)
    jobs.until(lambda: is_down(cluster, host), f"{host} is down", 120)
    assert jobs.state(cluster, only) == "RUNNING", "Slurm requeues it by itself"
    before = folder.events.read_bytes()
    assert one(folder, cluster, dry_run=True).action == "requeue"
    assert folder.events.read_bytes() == before
    found = one(folder, cluster)
    assert (found.action, found.done) == ("requeue", True), found
    assert not one(folder, cluster).done, "it was requeued already"
    lost, *_, last = Sea(cluster, tmp_path, calm).ended_well(folder)
    assert (lost["class"], lost["failed_node"]) == ("node_failure", host)
    assert (last["class"], last["job"]["id"], host in last["nodes"]) == ("complete", only, False)
    assert [event["action"] for event in events(folder, "tended")] == ["requeue"]
