"""The rehearsed gate on the real Slurm: 2 nodes of 4 CPU ranks, submitted and followed by the command, judged PASS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster

REPO = Path(__file__).resolve().parents[2]
EP8 = "parallel.expert_model_parallel_size=8"


def gate(cluster: Cluster, runs: Path, recipe: str, *settings: str) -> RunFolder:
    words = [
        w
        for setting in (f"profile.paths.runs={runs}", f"profile.paths.node_local={runs.parent}", *settings)
        for w in ("--set", setting)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "seatrial", "gate", recipe, "--profile", "slurm-sandbox", "--allow-dirty", *words],
        cwd=REPO, env=os.environ | cluster.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 100/100" in done.stdout
    return RunFolder(next(runs.iterdir()))


def judged(folder: RunFolder) -> None:
    verdict = records.read_json(folder.verdict)
    assert verdict["verdict"] == "PASS"
    assert verdict["rehearsal"] is True
    record = records.read_json(folder.attempt(0).record)
    assert len(record["nodes"]) == 2
    assert len(record["ranks"]) == 8
    again = subprocess.run([sys.executable, "-m", "seatrial", "verdict", str(folder.path)], capture_output=True)
    assert again.returncode == 0, "the records alone must be enough"


def test_nano_with_ep8(cluster: Cluster, tmp_path: Path) -> None:
    judged(gate(cluster, tmp_path / "runs", "nemotron_3_nano_gb200", EP8))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("qwen35_35b_a3b_gb200", [EP8, "schedule.micro_batch_size=1"]),
        ("qwen35_9b_gb200", ["schedule.micro_batch_size=1"]),
    ],
)
def test_qwen(cluster: Cluster, tmp_path: Path, recipe: str, settings: list[str]) -> None:
    judged(gate(cluster, tmp_path / "runs", recipe, *settings))
