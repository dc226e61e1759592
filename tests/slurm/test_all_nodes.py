"""Gates side by side on the real Slurm: placement with ranks that only pretend to train, and one bad node of five."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from tests.slurm.test_submission import NANO, PAYLOAD, REPO

FIVE = "gb200-[001-005]"
NODES = [f"gb200-{number:03d}" for number in range(1, 6)]


def all_nodes(cluster: Cluster, root: Path, python: Path, *words: str, **settings: Any) -> tuple[int, str]:
    """Run the command to its end; return its exit code and what it said."""
    known = {
        "profile.paths.runs": str(root / "runs"), "profile.paths.node_local": str(root / "node"),
        "profile.rank_python": str(python), "profile.preflight.enabled": False, **settings,
    }  # fmt: skip
    pairs = [word for key, value in known.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    done = subprocess.run(
        [sys.executable, "-m", "seatrial", "gate", NANO, "--profile", "slurm-sandbox", "--allow-dirty", "--all-nodes",
         *pairs, *words],
        cwd=REPO, env=os.environ | cluster.environment(), capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def record_of(root: Path) -> dict[str, Any]:
    (path,) = (root / "runs" / ".seatrial").glob("all-nodes-*.json")
    return dict(records.read_json(path))


def nodes_of(root: Path, run: str) -> list[str]:
    return list(records.read_json(RunFolder(root / "runs" / run).attempt(0).record)["nodes"])


def test_each_gate_gets_its_nodes(cluster: Cluster, tmp_path: Path) -> None:
    code, said = all_nodes(
        cluster, tmp_path, PAYLOAD, "--nodes", FIVE, "--at-most", "2",
        **{"profile.env.set": {"FATE": "{}"}, "schedule.train_iters": 4, "checkpoint.save_interval": 4},
    )  # fmt: skip
    assert code == 3, said  # what only pretends to train never passes
    assert f"5 suspect: {', '.join(NODES)}" in said
    assert "look at the recipe and the image first" in said
    found = record_of(tmp_path)
    assert [gate["nodes"] for gate in found["gates"]] == [NODES[:2], NODES[2:4], NODES[3:5]]
    for gate in found["gates"]:
        assert nodes_of(tmp_path, gate["run"]) == gate["nodes"]
    assert set(found["blocks"].values()) == {"nvl72-01"}
    # The third gate waited for the first.
    last, first = found["gates"][2], found["gates"][0]
    assert first["job"] != last["job"]
    times = [records.read_objects(RunFolder(tmp_path / "runs" / gate["run"]).events) for gate in (first, last)]
    over = next(event["time"] for event in times[0] if event["event"] == "supervisor_ended")
    began = next(event["time"] for event in times[1] if event["event"] == "supervisor_started")
    assert began > over


@pytest.mark.campaign
@pytest.mark.train
def test_the_bad_node_is_named(cluster: Cluster, tmp_path: Path) -> None:
    bad = NODES[2]
    python = tmp_path / "python.sh"
    python.write_text(
        f'#!/bin/sh\nif [ "$SLURMD_NODENAME" = {bad} ]; then echo "RuntimeError: a bad node" >&2; exit 3; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    settings = {
        "profile.gpus_per_node": 1, "parallel.expert_model_parallel_size": 2, "schedule.train_iters": 16,
        "schedule.lr_warmup_iters": 0, "optimizer.lr": 0.01, "checkpoint.save_interval": 16,
    }  # fmt: skip
    code, said = all_nodes(cluster, tmp_path, python, "--nodes", FIVE, "--at-most", "2", **settings)
    assert code == 1, said
    assert "4 qualified" in said and f"1 failed: {bad}" in said, said
    found = record_of(tmp_path)
    first = [gate["nodes"] for gate in found["gates"] if gate["round"] == 1]
    second = {gate["of"]: gate["nodes"] for gate in found["gates"] if gate["round"] == 2}
    assert first == [NODES[:2], NODES[2:4], NODES[3:5]]
    assert set(second) == {bad, NODES[3]}
    assert all(set(nodes[1:]) <= {NODES[0], NODES[1], NODES[4]} for nodes in second.values())
    history = list(records.read_lines(tmp_path / "runs" / ".seatrial" / "nodes-slurm-sandbox.jsonl"))
    said_of = {line["node"]: line["what"] for line in history if line["what"].startswith("gate_")}
    assert said_of == {node: "gate_failed" if node == bad else "gate_passed" for node in NODES}
