"""A gate and the run that waits for it on the real Slurm; the ranks only pretend to train, so the gate fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.converge import follow_run
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.after_gate import Pair, submit_after_gate
from seatrial.slurm.submit import prepare
from seatrial.spec.resolve import resolve
from tests.cli.verbs import verb
from tests.slurm import jobs
from tests.slurm.test_submission import ENDED, NANO, PAYLOAD, REPO, number, on_cluster

__all__ = ["on_cluster"]  # a fixture


def both(root: Path) -> Pair:
    settings: dict[str, Any] = {
        "paths.runs": str(root / "runs"), "paths.node_local": str(root / "node"), "rank_python": str(PAYLOAD),
        "env.set": {"FATE": "{}"},
    }  # fmt: skip
    pairs = [(f"profile.{key}", json.dumps(value)) for key, value in settings.items()]
    pairs += [("schedule.train_iters", "4"), ("checkpoint.save_interval", "4")]
    gate, run = (resolve(NANO, "slurm-sandbox", kind, pairs) for kind in ("gate", "convergence"))
    prepare(gate)
    return submit_after_gate(gate, run, allow_dirty=True)


def dependency_failed(folder: RunFolder) -> list[dict[str, Any]]:
    return [e for e in records.read_lines(folder.events) if e.get("class") == "dependency_failed"]


def test_a_gate_that_fails_cancels_the_run(on_cluster: Cluster, tmp_path: Path) -> None:
    pair = both(tmp_path)
    gate, run = number(pair.gate.folder), number(pair.run.folder)
    assert f"afterok:{gate}" in jobs.field(on_cluster, run, "Dependency") or jobs.state(on_cluster, gate) in ENDED
    jobs.wait_for(on_cluster, gate, ENDED)
    assert records.read_json(pair.gate.folder.verdict)["verdict"] == "FAIL"
    assert follow_run(pair.run.folder, 4) == 1
    jobs.wait_for(on_cluster, run, ["CANCELLED"])
    (decision, *_) = dependency_failed(pair.run.folder)
    assert decision["decision"] == "stop"
    assert not pair.run.folder.attempts(), "the run has started"


def test_a_run_whose_gate_is_gone_is_reported_and_cancelled(on_cluster: Cluster, tmp_path: Path) -> None:
    on_cluster.run("scontrol", "update", "PartitionName=batch", "State=DOWN")
    try:
        pair = both(tmp_path)
        run = number(pair.run.folder)
        assert on_cluster.run("scancel", number(pair.gate.folder)).returncode == 0
        never = "DependencyNeverSatisfied"
        jobs.until(lambda: jobs.field(on_cluster, run, "Reason") == never, never)
    finally:
        on_cluster.run("scontrol", "update", "PartitionName=batch", "State=UP")
    (row,) = json.loads(verb("status", "--json", str(pair.run.folder.path)).stdout)["runs"]
    assert row["state"] == "PENDING"
    assert row["needs_action"].startswith("dependency_failed")
    assert follow_run(pair.run.folder, 4) == 1
    jobs.wait_for(on_cluster, run, ["CANCELLED"])
    assert len(dependency_failed(pair.run.folder)) == 1
    (row,) = json.loads(verb("status", "--json", str(pair.run.folder.path)).stdout)["runs"]
    assert "the gate it waited for did not pass" in row["decision_reason"]


@pytest.mark.campaign
def test_a_gate_that_passes_lets_the_run_start(cluster: Cluster, tmp_path: Path) -> None:
    settings = {
        "profile.paths.runs": str(tmp_path / "runs"), "profile.paths.node_local": str(tmp_path),
        "parallel.expert_model_parallel_size": "8", "schedule.train_iters": "6", "checkpoint.save_interval": "6",
    }  # fmt: skip
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "seatrial", "converge", NANO, "--profile", "slurm-sandbox", "--after-gate",
         "--allow-dirty", *words],
        cwd=REPO, env=os.environ | cluster.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 100/100" in done.stdout
    assert "step 6/6" in done.stdout
