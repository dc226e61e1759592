"""Every drill on the real Slurm with real training: two nodes of one rank, submitted by the command, judged PASS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from tests.cli.test_drill import SHORT, passed, words
from tests.slurm import jobs, voyages
from tests.slurm.voyages import NANO

REPO = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.train, pytest.mark.campaign]

PLACE = {
    "profile.nodes": 2, "profile.gpus_per_node": 1, "profile.cpus_per_task": 1, "profile.segment": 2,
    "profile.time_limit_minutes": 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of them run: the first has the undisturbed gate submitted with it, the others find that one."""
    return tmp_path_factory.mktemp("drills")


def drill(cluster: Cluster, root: Path, text: str, **profile: Any) -> RunFolder:
    """Submit a drill and follow it; it must pass every rule. Returns its folder."""
    given = SHORT | PLACE | {f"profile.{key.replace('__', '.')}": value for key, value in profile.items()}
    given |= {f"profile.paths.{name}": root / name for name in ("runs", "data", "node_local")}
    command = [sys.executable, "-m", "seatrial", "gate", NANO, "--profile", "slurm-sandbox", "--allow-dirty"]
    done = subprocess.run(
        [*command, "--drill", text, *words(given)], cwd=REPO, env=os.environ | cluster.environment(),
        capture_output=True, text=True,
    )  # fmt: skip
    named = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("run folder: ")]
    assert named, done.stdout + done.stderr
    folder = RunFolder(Path(named[-1]))
    passed(done.returncode, dict(records.read_json(folder.verdict)), done.stdout + done.stderr)
    return folder


@pytest.mark.parametrize(
    ("text", "profile", "name"),
    [
        ("kill-rank@6", {}, {"unknown", "network"}),
        ("hang@9", {"hang__step_minimum_seconds": 10}, {"hang"}),
        ("kill-node@6", {"spare_nodes": 1}, {"node_failure"}),
        ("stop-signal@4", {}, {"cancelled"}),
        ("truncate-checkpoint@6", {}, {"unknown", "network"}),
    ],
)
def test_a_drill(cluster: Cluster, root: Path, text: str, profile: dict[str, Any], name: set[str]) -> None:
    folder = drill(cluster, root, text, **profile)
    first, second = voyages.attempts(folder)
    assert first["class"] in name
    assert first["job"] == second["job"], "in the allocation that it had"
    if text.startswith("kill-node"):
        (lost,) = {event["node"] for event in voyages.events(folder, "drill_injected")}
        assert first["decision"]["action"] == "restart_on_spare"
        assert lost == first["nodes"][-1] and lost not in second["nodes"]
    kept = (root / "runs" / ".seatrial").glob("*-slurm-sandbox.jsonl")
    assert [line for file in kept for line in records.read_lines(file)] == [], "a drill blames no node"
    jobs.until(lambda: not voyages.processes(folder), "no process of it is left", 60)


def test_only_the_first_needed_an_undisturbed_gate(root: Path) -> None:
    """All of them were held against one and the same run, of which the first waited for the PASS."""
    documents = [records.read_json(path) for path in sorted((root / "runs").glob("*/spec.json"))]
    calm = [one["run_id"] for one in documents if not one["drill"]]
    if len(documents) < 6:
        pytest.skip("not all of them have run")
    assert len(calm) == 1
    assert {Path(one["drill"]["reference"]).name for one in documents if one["drill"]} == set(calm)
    waited = [one for one in documents if one["admission"]]
    assert [(one["drill"]["fault"], one["admission"]["how"]) for one in waited] == [("kill-rank", "after-gate")]
