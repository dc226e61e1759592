"""A run on the real Slurm that a person brings back, with a light payload in the ranks' place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.submit import prepare
from seatrial.spec.runspec import RunSpec
from tests.run.test_checkpoint import make, torchs_names
from tests.slurm import jobs
from tests.slurm.test_submission import ENDED, PAYLOAD, REPO, finish, number, on_cluster, seen, start

__all__ = ["on_cluster", "torchs_names"]  # fixtures
COMMAND = [sys.executable, "-m", "seatrial", "requeue"]
FAILS = {"0": {"steps": 1, "exit": 7}, "all": {"steps": 1, "exit": "hang"}}
ONE_TRY = {"failures_without_progress": 1, "backoff_seconds": 1}


def failed(cluster: Cluster, root: Path, saved: tuple[int, ...] = ()) -> RunFolder:
    """Return a run that has given up, with whole checkpoints of ``saved``.

    The payload neither saves nor loads any, so an attempt from one of them is ended at its first step: it is step 1.
    """
    folder = start(root, FAILS, kind="convergence", recovery=ONE_TRY)
    assert finish(cluster, folder)[0] == "FAILED"
    for step in saved:
        make(folder.checkpoints, step)
    return folder


def requeue(folder: RunFolder, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, str(folder.path), *words], cwd=REPO, capture_output=True, text=True, timeout=600)


def events(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return [event for event in records.read_lines(folder.events) if event["event"] == name]


def test_it_comes_back_from_the_step_and_without_the_node(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = failed(on_cluster, tmp_path, (1, 2))
    first = number(folder)
    attempts = len(folder.attempts())
    bad = str(records.read_json(folder.attempt(0).record)["nodes"][0])
    stem, digits = bad.rsplit("-", 1)
    done = requeue(folder, "--from-step", "1", "--exclude", f"{stem}-[{digits}]", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["replaces"], answer["exclude"], answer["job_id"]) == (first, [bad], number(folder))
    assert number(folder) != first
    finish(on_cluster, folder)
    record = records.read_json(folder.attempt(attempts).record)
    assert record["why"] == "requeued by hand"
    assert record["resume_step"] == 1
    assert record["job"]["id"] == number(folder)
    assert bad not in record["nodes"] and len(record["nodes"]) == 2
    plan = records.read_json(folder.attempt(attempts).plan)["arguments"]
    assert plan[plan.index("--ckpt-step") + 1] == "1"
    assert "iter_0000002" in record["passed_over"][0]
    shown = on_cluster.run("sacct", "-n", "-X", f"--name={folder.path.name}", "--format=JobIDRaw").stdout.split()
    assert sorted(shown) == sorted([first, number(folder)]), "one job more, no other"


def test_two_at_once_give_one_job(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = failed(on_cluster, tmp_path)
    first = number(folder)
    on_cluster.run("scontrol", "update", "PartitionName=batch", "State=DOWN")
    try:
        both = [
            subprocess.Popen([*COMMAND, str(folder.path)], cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for _ in range(2)
        ]
        said = [process.communicate(timeout=600)[0].decode() for process in both]
        queued = on_cluster.run("squeue", "--noheader", f"--name={folder.path.name}", "--format=%A").stdout.split()
        assert queued == [number(folder)], said
        assert len(events(folder, "submitted")) == 2
        assert len(events(folder, "requeue_requested")) == 1
        assert sum("submitted as job" in words for words in said) == 1
        assert any("another seatrial requeue" in w or "waits in the queue already" in w for w in said), said
        excluded = requeue(folder, "--exclude", "gb200-003")
        assert excluded.returncode == 0, excluded.stderr
        assert jobs.field(on_cluster, number(folder), "ExcNodeList") == "gb200-003"
    finally:
        on_cluster.run("scancel", number(folder))
        on_cluster.run("scontrol", "update", "PartitionName=batch", "State=UP")
    jobs.wait_for(on_cluster, number(folder), ENDED)
    assert number(folder) != first


def test_a_job_that_slurm_holds_is_released(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = start(tmp_path, {"all": {"steps": 4, "pace": 5}}, kind="convergence", recovery=ONE_TRY)
    only = number(folder)
    jobs.until(lambda: seen(folder), "its ranks")
    refused = requeue(folder)
    assert refused.returncode == 2
    assert f"its job {only} runs" in refused.stderr
    bad = jobs.nodes(on_cluster, jobs.field(on_cluster, only, "NodeList"))[0]
    assert on_cluster.run("scontrol", "requeuehold", only).returncode == 0
    jobs.until(lambda: "held" in jobs.field(on_cluster, only, "Reason").lower(), "it is held")
    jobs.until(lambda: folder.attempt(0).record.is_file(), "the record of its first attempt")
    jobs.until(lambda: jobs.state(on_cluster, only) == "PENDING", "it has left its nodes")
    done = requeue(folder, "--exclude", bad)
    assert done.returncode == 0, done.stderr
    assert f"released job {only}" in done.stdout
    jobs.until(lambda: seen(folder, 1), "the second attempt")
    assert bad not in {rank["SLURMD_NODENAME"] for rank in seen(folder, 1)}
    assert (number(folder), len(events(folder, "submitted"))) == (only, 1)
    assert events(folder, "attempt_started")[1]["why"] == "requeued by hand"
    on_cluster.run("scancel", "--signal=KILL", "--full", only)
    on_cluster.run("scancel", only)
    jobs.wait_for(on_cluster, only, ENDED)


def test_it_goes_on_with_another_profile(on_cluster: Cluster, tmp_path: Path) -> None:
    """One node for two, and another time limit: what Slurm says of it counts, and the arguments stay."""
    folder = failed(on_cluster, tmp_path)
    prepare(RunSpec.from_json(records.read_json(folder.spec)))
    attempts, before = len(folder.attempts()), records.read_json(folder.spec)
    profile = yaml.safe_load((REPO / "cluster_profiles" / "slurm-sandbox.yaml").read_text())
    profile |= {
        "nodes": 1, "segment": 1, "time_limit_minutes": 7, "rank_python": str(PAYLOAD),
        "paths": {"node_local": str(tmp_path / "node")}, "env": {"set": {"FATE": "{}"}},
    }  # fmt: skip
    path = tmp_path / "smaller.yaml"
    path.write_text(yaml.safe_dump(profile | {"partition": "none"}))
    refused = requeue(folder, "--profile", str(path))
    assert refused.returncode == 2
    assert "this Slurm has no such partition" in refused.stderr
    assert records.read_json(folder.spec) == before
    path.write_text(yaml.safe_dump(profile))
    done = requeue(folder, "--profile", str(path))
    assert done.returncode == 0, done.stderr
    jobs.until(lambda: len(seen(folder, attempts)) == 4, "its four ranks")
    finish(on_cluster, folder)
    assert jobs.field(on_cluster, number(folder), "TimeLimit") == "00:07:00"
    record = records.read_json(folder.attempt(attempts).record)
    assert (len(record["nodes"]), len(record["ranks"])) == (1, 4)
    after = records.read_json(folder.spec)
    assert (after["arguments"], after["same"]) == (before["arguments"], before["same"])
    assert records.read_json(folder.path / "spec-000.json") == before
