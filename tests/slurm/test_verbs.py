"""The verbs on real Slurm jobs."""

from __future__ import annotations

import json
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
from seatrial.slurm.submit import prepare, submit
from seatrial.spec.profile import load_profile
from seatrial.spec.resolve import resolve
from tests.cli.verbs import COMMAND, verb
from tests.slurm import jobs
from tests.slurm.test_submission import NANO, PAYLOAD, number, on_cluster

__all__ = ["on_cluster"]  # a fixture


def settings(root: Path, steps: int, **profile: Any) -> list[tuple[str, str]]:
    """Return settings for a run whose ranks only pretend to train, half a second a step."""
    fate = {"all": {"pace": 0.5}}
    chosen = {
        "paths.runs": str(root / "runs"), "rank_python": str(PAYLOAD), "nodes": 2, "segment": 2,
        "env.set": {"FATE": json.dumps(fate)}, **profile,
    }  # fmt: skip
    pairs = [(f"profile.{key}", json.dumps(value)) for key, value in chosen.items()]
    return [*pairs, ("schedule.train_iters", str(steps)), ("checkpoint.save_interval", str(steps))]


def start(root: Path, steps: int = 400, **profile: Any) -> RunFolder:
    """Submit such a run; return once its first step is on record."""
    spec = resolve(NANO, "slurm-sandbox", "gate", settings(root, steps, **profile))
    prepare(spec)
    folder = submit(spec, allow_dirty=True).folder
    jobs.until(lambda: list(records.read_lines(folder.metrics)), "the first step")
    return folder


def row(folder: RunFolder) -> dict[str, Any]:
    done = verb("status", "--json", str(folder.path))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["runs"][0])


def test_follow_and_cancel(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = start(tmp_path)
    seen = row(folder)
    assert (seen["state"], seen["source"], seen["job_id"]) == ("RUNNING", "squeue", number(folder))
    assert seen["nodes"].startswith("gb200-")
    assert seen["step"] >= 1
    assert seen["needs_action"] is None
    assert folder.path.name in verb("list", "--runs", str(tmp_path / "runs")).stdout
    assert "iteration" in verb("logs", str(folder.path), "--rank", "last").stdout
    assert "8 ranks started" in verb("logs", str(folder.path)).stdout
    with subprocess.Popen([*COMMAND, "watch", str(folder.path)], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert any("RUNNING on gb200-" in line for line in watching.stdout)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130
    assert row(folder)["state"] == "RUNNING"
    with subprocess.Popen([*COMMAND, "watch", str(folder.path)], stdout=subprocess.PIPE, text=True) as watching:
        done = verb("cancel", str(folder.path))
        assert (done.returncode, done.stdout) == (0, "cancelled\n"), done.stderr
        jobs.wait_for(on_cluster, number(folder), ["CANCELLED"])
        assert watching.wait(60) in (1, 3), "it ends with the run"
    assert row(folder)["state"] == "CANCELLED"
    assert "ended already" in verb("stop", str(folder.path)).stdout


def test_a_waiting_run_is_shown_and_stopped(on_cluster: Cluster, tmp_path: Path) -> None:
    on_cluster.run("scontrol", "update", "PartitionName=batch", "State=DOWN")
    try:
        spec = resolve(NANO, "slurm-sandbox", "gate", settings(tmp_path, 4))
        folder = submit(spec, allow_dirty=True).folder
        seen = jobs.until(lambda: (now := row(folder))["state"] == "PENDING" and now, "it waits")
        assert (seen["step"], seen["total"], seen["attempt"]) == (0, 4, None)
        done = verb("stop", str(folder.path))
        assert done.returncode == 0, done.stderr
        assert "nothing to save" in done.stdout
        jobs.wait_for(on_cluster, number(folder), ["CANCELLED"])
        assert not folder.attempts()
    finally:
        on_cluster.run("scontrol", "update", "PartitionName=batch", "State=UP")


@pytest.mark.train
def test_stop_saves_what_was_trained(on_cluster: Cluster, tmp_path: Path) -> None:
    real = {"rank_python": sys.executable, "nodes": 1, "segment": 1, "gpus_per_node": 2, "cpus_per_task": 1}
    folder = start(tmp_path, **real)
    done = verb("stop", str(folder.path))
    assert done.returncode == 0, done.stdout + done.stderr
    last = records.read_json(folder.attempt(0).record)["last_step"]
    assert 1 <= last < 400
    assert f"checkpoint {last} is saved" in done.stdout
    assert (folder.checkpoints / f"iter_{last:07d}").is_dir()
    jobs.until(lambda: row(folder)["final"], "Slurm's end of it")
    assert row(folder)["decision"] == "stop"


def here(folder: Path, steps: int) -> list[str]:
    """Return the words of a gate in an allocation of its own."""
    pairs = [word for key, value in settings(folder, steps) for word in ("--set", f"{key}={value}")]
    gate = [*COMMAND, "gate", NANO, "--profile", "slurm-sandbox", "--here", "--allow-dirty", *pairs]
    return ["salloc", "--quiet", "--partition=batch", "--account=research", "--nodes=2", "--ntasks-per-node=4",
            "--cpus-per-task=36", "--mem=0", "--job-name=by-hand", *gate]  # fmt: skip


def test_a_gate_here(on_cluster: Cluster, tmp_path: Path) -> None:
    done = subprocess.run(here(tmp_path, 4), capture_output=True, text=True, timeout=600)
    (folder,) = map(RunFolder, (tmp_path / "runs").iterdir())
    assert done.returncode in (1, 3), done.stdout + done.stderr
    assert "step 4/4" in done.stdout
    record = records.read_json(folder.attempt(0).record)
    assert len(record["nodes"]) == 2
    assert len(record["ranks"]) == 8
    # What ran is the snapshot, as in a job of its own.
    assert f"{folder.path}/code/" in json.dumps(records.read_json(folder.attempt(0).path / "seen-0.json")["argv"])
    seen = row(folder)
    assert (seen["final"], seen["decision"], seen["source"]) == (True, "stop", "run folder")
    assert "8 ranks started" in verb("logs", str(folder.path)).stdout


def test_ctrl_c_saves_a_gate_here(on_cluster: Cluster, tmp_path: Path) -> None:
    with subprocess.Popen(here(tmp_path, 400), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        (folder,) = jobs.until(lambda: list((tmp_path / "runs").glob("*")), "the run folder")
        run = RunFolder(folder)
        jobs.until(lambda: list(records.read_lines(run.metrics)), "the first step")
        assert row(run)["state"] == "RUNNING"
        sent = next(e for e in records.read_lines(run.events) if e["event"] == "submitted")
        parent = int(Path(f"/proc/{sent['pid']}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(parent, signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert "asked to save and end" in err, out + err
    record = records.read_json(run.attempt(0).record)
    assert record["stop"] == "SIGINT"
    assert all(rank["record"] for rank in record["ranks"]), "the ranks ended by themselves"


def test_here_says_where_it_is_not(on_cluster: Cluster, tmp_path: Path) -> None:
    pairs = [word for key, value in settings(tmp_path, 4) for word in ("--set", f"{key}={value}")]
    done = verb("gate", NANO, "--profile", "slurm-sandbox", "--here", "--allow-dirty", *pairs)
    assert done.returncode == 2
    assert "not inside an allocation" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_init_drafts_a_site_file_that_loads(on_cluster: Cluster, own_home: Path) -> None:
    printed = verb("init")
    assert printed.returncode == 0, printed.stderr
    path = own_home / ".config" / "seatrial" / "site.yaml"
    assert not path.exists()
    assert verb("init", "--write").returncode == 0
    assert path.read_text() == printed.stdout
    profile = load_profile("gb200-8gpu").data
    assert (profile["account"], profile["partition"]) == ("research", "batch")
    assert profile["slurm"]["preempt_mode"] == "OFF"
    assert {"segment", "gpus-per-node", "gres"} <= set(profile["slurm"]["capabilities"])
    again = verb("init", "--write")
    assert again.returncode == 2
    assert "never overwrites" in again.stderr
