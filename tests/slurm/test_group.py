"""Groups on the real Slurm: two rehearsed recipes, one crash and one time limit; all or none; gates that fail."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.judge.collect import read_steps
from seatrial.judge.merge import merge_steps
from seatrial.run import checkpoint, records
from seatrial.run.groups import find_group
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.admission import Admission
from seatrial.slurm.group import Member, submit_group
from seatrial.slurm.submit import prepare
from seatrial.spec.resolve import resolve
from tests.cli.verbs import COMMAND, REPO
from tests.slurm import jobs, voyages
from tests.slurm.test_submission import PAYLOAD, number, on_cluster

__all__ = ["on_cluster"]  # a fixture
NANO, QWEN = "nemotron_3_nano_gb200", "qwen35_9b_gb200"
CRASH = 11
BATCH = ("schedule.global_batch_size", "16")


def words_of(root: Path, *recipe_settings: tuple[str, str], profile: dict[str, Any], steps: int) -> list[str]:
    """Return the words of ``converge`` for both recipes."""
    settings = [*voyages.pairs(root, steps, None, 0.0, **profile), BATCH, *recipe_settings]
    given = [word for key, value in settings for word in ("--set", f"{key}={value}")]
    return ["converge", NANO, QWEN, "--profile", "slurm-sandbox", "--allow-dirty", "--name", "pair", *given]


def told(recipe: str, fault: dict[str, Any] | None, pace: float) -> tuple[str, str]:
    """Return the setting of one recipe's fault and pace."""
    ((_, value),) = [one for one in voyages.pairs(Path("/"), 1, fault, pace) if one[0] == "profile.env.set"]
    return f"{recipe}:profile.env.set", value


def converge(*words: str) -> subprocess.CompletedProcess[str]:
    """Follow it to the end."""
    command = [*COMMAND, *words]
    return subprocess.run(
        command, cwd=REPO, capture_output=True, text=True, timeout=voyages.PATIENCE, stdin=subprocess.DEVNULL
    )


def gap_free(folder: RunFolder, steps: int) -> None:
    """Every step is on record, the target is proven, and its checkpoint is whole."""
    merged = merge_steps(read_steps(folder.metrics))
    assert [step.step for step in merged.steps] == list(range(1, steps + 1))
    assert voyages.final(folder)["decision"] == "done"
    state = checkpoint.check(checkpoint.checkpoint_folder(folder.checkpoints, steps))
    assert (state.step, state.whole) == (steps, True), state.reason
    rules = {rule["rule"]: rule["verdict"] for rule in records.read_json(folder.verdict)["rules"]}
    assert (rules["target step"], rules["step set"]) == ("PASS", "PASS")


def sail(cluster: Cluster, root: Path, steps: int, *settings: tuple[str, str]) -> tuple[RunFolder, RunFolder]:
    """Follow both to the end, a rank of Nano's killed in a step; hold what every such group must come to."""
    fault = told(NANO, {"rank": 1, "step": CRASH, "how": "kill"}, 0.0)
    done = converge(
        *words_of(root, fault, *settings, profile={"slurm.signal_lead_seconds": 30}, steps=steps), "--no-gate", "a test"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    group = find_group("pair", [root / "runs"])
    assert group is not None
    assert f"group {group.id}: 2 runs: 2 done; {2 * steps} of {2 * steps} steps" in done.stdout
    nano, qwen = (RunFolder(run.folder) for run in group.runs)
    for folder in (nano, qwen):
        gap_free(folder, steps)
        assert records.read_json(folder.spec)["group"] == group.id
        voyages.nothing_left(cluster, folder)
    first, second = voyages.attempts(nano)
    assert (first["class"], first["first_failed_rank"], first["last_step"]) == ("unknown", 1, CRASH - 1)
    assert (second["class"], second["first_step"]) == ("complete", first["newest_checkpoint"] + 1)
    return nano, qwen


@pytest.mark.train
@pytest.mark.campaign
def test_a_crash_in_one_leaves_two_whole_curves(on_cluster: Cluster, tmp_path: Path) -> None:
    _, qwen = sail(on_cluster, tmp_path, 16)
    assert [one["class"] for one in voyages.attempts(qwen)] == ["complete"]


@pytest.mark.train
@pytest.mark.campaign
def test_a_crash_in_one_and_a_time_limit_in_the_other(on_cluster: Cluster, tmp_path: Path) -> None:
    short = (f"{QWEN}:profile.time_limit_minutes", "1")
    _, qwen = sail(on_cluster, tmp_path, 40, told(QWEN, None, 0.7), short)
    *slots, last = voyages.attempts(qwen)
    assert slots and {one["class"] for one in slots} == {"time_limit"}
    assert (last["class"], last["first_step"]) == ("complete", slots[-1]["last_step"] + 1)
    states = [state for state, _ in jobs.records(on_cluster, voyages.job(qwen))]
    assert states == ["REQUEUED"] * len(slots) + ["COMPLETED"]


def test_where_slurm_refuses_one_no_job_is_left(on_cluster: Cluster, tmp_path: Path) -> None:
    runs = ("profile.paths.runs", json.dumps(str(tmp_path / "runs")))
    specs = [
        resolve(NANO, "slurm-sandbox", "convergence", [runs, BATCH]),
        resolve(QWEN, "slurm-sandbox", "convergence", [runs, BATCH, ("profile.partition", "nowhere")]),
    ]
    prepare(specs[0])
    with pytest.raises(SeatrialError, match="invalid partition") as caught:
        submit_group([Member(spec, Admission.without_gate("a test")) for spec in specs], "pair", allow_dirty=True)
    assert f"{QWEN}: " in str(caught.value) and "nothing of the group was submitted" in str(caught.value)
    assert list((tmp_path / "runs").iterdir()) == []
    queue = ("squeue", "--noheader", "--format=%j")
    jobs.until(lambda: NANO not in on_cluster.run(*queue).stdout, "no job of it in the queue")


def test_gates_that_fail_keep_both_runs_from_starting(on_cluster: Cluster, tmp_path: Path) -> None:
    words = words_of(tmp_path, steps=16, profile={"rank_python": str(PAYLOAD), "env.set": {"FATE": "{}"}})
    done = converge(*words, "--after-gate")
    assert done.returncode == 1, done.stdout + done.stderr
    group = find_group("pair", [tmp_path / "runs"])
    assert group is not None
    for run in group.runs:
        folder = RunFolder(run.folder)
        assert f"{run.recipe} gate: step 100/100" in done.stdout
        assert (voyages.final(folder)["class"], folder.attempts()) == ("dependency_failed", [])
        jobs.wait_for(on_cluster, number(folder), ["CANCELLED"])
        gate = RunFolder(Path(records.read_json(folder.spec)["admission"]["folder"]))
        assert records.read_json(gate.verdict)["verdict"] == "FAIL"
    assert f"group {group.id}: 2 runs: 2 stopped" in done.stdout
