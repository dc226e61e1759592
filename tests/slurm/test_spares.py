"""Bad nodes on the real Slurm, with and without a spare in the allocation."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge import exclusions
from seatrial.run import node_history, records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from tests.slurm import jobs, voyages
from tests.slurm.fleet import Sea
from tests.slurm.voyages import SAVES, STEPS

pytestmark = pytest.mark.train

SPARE = {"spare_nodes": 1}


@contextlib.contextmanager
def lost(cluster: Cluster, node: str) -> Iterator[None]:
    """Let a node die: daemon, step daemons and tasks; bring it back in the end."""
    cluster.kill_node(node)
    try:
        yield
    finally:
        cluster.start_slurmd(node)
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


def nodes_of(folder: RunFolder) -> list[str]:
    jobs.until(lambda: voyages.events(folder, "ranks_started"), "the ranks' start", 120)
    return list(voyages.events(folder, "ranks_started")[-1]["nodes"])


def unfit(folder: Path, node: str, how: str) -> dict[str, Any]:
    """A site's own check that fails on one node: it says so, or takes the whole preflight down with it."""
    script = folder / f"check-{how}"
    end = "echo it is broken; exit 1" if how == "says so" else "kill -9 $PPID; sleep 5"
    script.write_text(f'#!/bin/bash\nif [ "$SLURMD_NODENAME" = {node} ]; then {end}; fi\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"preflight.commands": {"site": [str(script)]}, "preflight.seconds": 10}


def test_a_spare_takes_the_place_of_a_node_that_dies(cluster: Cluster, tmp_path: Path, calm: RunFolder) -> None:
    folder = voyages.embark(cluster, tmp_path, pace=0.3, segment=2, **SPARE)
    voyages.reach(folder, SAVES + 2)
    first, second = nodes_of(folder)
    with lost(cluster, second):
        before, after = Sea(cluster, tmp_path, calm).ended_well(folder)
    assert (before["class"], before["failed_node"]) == ("node_failure", second)
    assert before["decision"]["action"] == "restart_on_spare"
    assert second not in after["nodes"] and first in after["nodes"]
    assert (after["job"], after["resume_step"]) == (before["job"], before["newest_checkpoint"]), "no requeue"
    assert after["last_step"] == STEPS


@pytest.mark.campaign
def test_without_a_spare_the_job_is_requeued_without_the_node(
    cluster: Cluster, tmp_path: Path, calm: RunFolder
) -> None:
    folder = voyages.embark(cluster, tmp_path, pace=0.3)
    voyages.reach(folder, SAVES + 2)
    _, second = nodes_of(folder)
    with lost(cluster, second):
        before, after = Sea(cluster, tmp_path, calm).ended_well(folder)
    assert before["class"] == "node_failure"
    assert second not in after["nodes"]
    assert after["job"] == {**before["job"], "restart": 1, "host": after["job"]["host"]}


@pytest.mark.campaign
def test_the_batch_host_dies_and_the_watch_on_another_node_brings_the_job_back(
    cluster: Cluster, tmp_path: Path, calm: RunFolder
) -> None:
    folder = voyages.embark(cluster, tmp_path, pace=0.5, segment=2, **SPARE)
    voyages.reach(folder, SAVES + 2)
    host = voyages.events(folder, "ranks_started")[-1]["nodes"][0]
    with lost(cluster, host):
        before, after = Sea(cluster, tmp_path, calm).ended_well(folder)
    assert [event["host"] for event in voyages.events(folder, "batch_host_lost")] == [host]
    assert (before["class"], after["job"]["restart"]) == ("node_failure", 1)
    assert host not in after["nodes"]


@pytest.mark.campaign
@pytest.mark.parametrize("how", ["gives no answer", "says so"])
def test_a_node_that_fails_its_preflight_costs_no_attempt(
    cluster: Cluster, tmp_path: Path, calm: RunFolder, how: str
) -> None:
    folder = voyages.embark(cluster, tmp_path, hold=True, segment=2, **SPARE, **unfit(tmp_path, "gb200-001", how))
    job = voyages.job(folder)
    cluster.run("scontrol", "update", f"JobId={job}", "ReqNodeList=gb200-001")
    cluster.run("scontrol", "release", job)
    (only,) = Sea(cluster, tmp_path, calm).ended_well(folder)
    (event,) = voyages.events(folder, "preflight")
    assert (list(event["failed"]), event["tries"], len(event["nodes"])) == (["gb200-001"], 3, 3)
    assert "gb200-001" not in only["nodes"]
    runs = folder.path.parent
    history = node_history.summary(records.read_lines(node_history.path_for(runs, "slurm-sandbox")))
    assert (history["gb200-001"].failures, history["gb200-001"].last_what) == (1, "preflight")


@pytest.mark.campaign
def test_without_a_spare_it_is_excluded_and_the_next_start_lacks_it(
    cluster: Cluster, tmp_path: Path, calm: RunFolder
) -> None:
    folder = voyages.embark(cluster, tmp_path, hold=True, **unfit(tmp_path, "gb200-001", "gives no answer"))
    job = voyages.job(folder)
    cluster.run("scontrol", "update", f"JobId={job}", "ReqNodeList=gb200-001")
    cluster.run("scontrol", "release", job)
    jobs.until(lambda: voyages.events(folder, "returned"), "the way back to the queue", 120)
    # A job that runs takes no such change.
    free = ("scontrol", "update", f"JobId={job}", "ReqNodeList=")
    jobs.until(lambda: cluster.run(*free).returncode == 0, "the job free to take any node", 60)
    (only,) = Sea(cluster, tmp_path, calm).ended_well(folder)
    (decision, _) = voyages.events(folder, "decision")
    assert (decision["action"], decision["exclude"], decision["attempt"]) == ("requeue_excluding", ["gb200-001"], None)
    assert (only["job"]["restart"], only["attempt"]) == (1, 0)
    (verified,) = voyages.events(folder, "exclusion_verified")
    assert verified["present"] == [] and "gb200-001" not in only["nodes"]
    listed = exclusions.active(records.read_lines(exclusions.path_for(folder.path.parent, "slurm-sandbox")), 0.0)
    assert [one.node for one in listed] == ["gb200-001"]
