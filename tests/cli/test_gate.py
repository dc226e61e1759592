"""The main job, end to end: every recipe's gate, rehearsed through the command that a user types."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.cli.test_cli import NANO, REPO, seatrial

pytestmark = pytest.mark.train


def gate(recipe: str, runs: Path, *settings: str) -> tuple[dict[str, Any], RunFolder]:
    """Run a gate that must PASS; return its verdict and run folder."""
    words = [word for setting in (f"profile.paths.runs={runs}", *settings) for word in ("--set", setting)]
    done = seatrial("gate", recipe, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = RunFolder(next(runs.iterdir()))
    assert str(folder.path) in done.stdout
    return dict(records.read_json(folder.verdict)), folder


def evidence(folder: RunFolder) -> dict[str, Any]:
    return [e for e in records.read_lines(folder.events) if e["event"] == "evidence"][-1]


@pytest.mark.parametrize(
    ("recipe", "moe", "losses"),
    [
        # `make gate`, which a test of the docs runs, is this one with a resume check.
        pytest.param(NANO, True, {"lm loss", "seq_load_balancing_loss"}, marks=pytest.mark.campaign),
        ("qwen35_35b_a3b_gb200", True, {"lm loss", "mtp_1 loss", "global_load_balancing_loss"}),
        pytest.param("qwen35_9b_gb200", False, {"lm loss", "mtp_1 loss"}, marks=pytest.mark.campaign),
    ],
)
def test_every_recipe_passes_its_rehearsed_gate(recipe: str, moe: bool, losses: set[str], tmp_path: Path) -> None:
    verdict, folder = gate(recipe, tmp_path / "runs")
    assert verdict["verdict"] == "PASS"
    assert verdict["rehearsal"] is True
    steps = list(records.read_lines(folder.metrics))
    assert [s["step"] for s in steps] == list(range(1, 101))
    assert losses <= set(steps[0]["losses"])
    seen = evidence(folder)
    assert (seen["dispatch_calls"] > 0) is moe
    assert seen["cuda_graphs_captured"] == 0
    again = seatrial("verdict", str(folder.path), "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["rules"] == verdict["rules"]


def test_ctrl_c_stops_following_and_not_the_run(tmp_path: Path) -> None:
    words = [f"profile.paths.runs={tmp_path}", "schedule.train_iters=4", "checkpoint.save_interval=4"]
    command = [sys.executable, "-m", "seatrial", "gate", NANO, *(w for s in words for w in ("--set", s))]
    following = subprocess.Popen(
        command,
        cwd=REPO,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob("*/attempts/000/plan.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(following.pid, signal.SIGINT)
    said, _ = following.communicate(timeout=600)
    assert following.returncode == 130, said
    assert "the run goes on" in said
    folder = RunFolder(next(tmp_path.iterdir()))
    while not folder.verdict.is_file():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    record = records.read_json(folder.attempt(0).record)
    assert (record["stop"], record["last_step"]) == (None, 4)


@pytest.mark.campaign  # on the real Slurm it runs each time
def test_nano_at_eight_ranks_with_ep8(tmp_path: Path) -> None:
    verdict, folder = gate(NANO, tmp_path / "runs", "profile.gpus_per_node=8", "parallel.expert_model_parallel_size=8")
    assert verdict["verdict"] == "PASS"
    assert evidence(folder)["world_size"] == 8
    assert len(records.read_json(folder.attempt(0).record)["ranks"]) == 8
