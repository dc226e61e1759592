"""NeMo-Run experiments with our executor and task on the real Slurm: from here, and through a real sshd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from tests.environments.build import build
from tests.interop import sshd
from tests.slurm import jobs
from tests.slurm.test_gate import EP8, judged

REPO = Path(__file__).resolve().parents[2]
PAYLOAD = Path(__file__).with_name("payload.py")

pytestmark = pytest.mark.campaign


@pytest.fixture
def server(tmp_path: Path) -> Iterator[sshd.Server]:
    missing = sshd.missing()
    assert not (missing and os.environ.get("CI")), missing
    if missing:
        pytest.skip(f"apt-get install openssh-server rsync ({', '.join(missing)})")
    folder = tmp_path / "sshd"
    folder.mkdir()
    with sshd.server(folder) as running:
        yield running


def settings(root: Path, *more: str) -> list[list[str]]:
    """Return the settings of a run that lies below ``root``, the cluster's side."""
    own = [f"profile.paths.runs={root}/runs", f"profile.paths.node_local={root}"]
    return [setting.split("=", 1) for setting in (*own, *more)]


def start(cluster: Cluster, laptop: Path, case: dict[str, Any], **variables: str) -> subprocess.Popen[str]:
    """Start an experiment whose own files lie in ``laptop``."""
    environment = os.environ | cluster.environment() | {"NEMORUN_HOME": str(laptop)} | variables
    words = [str(build("nemo-run")), "-m", "tests.interop.experiment", json.dumps(case)]
    return subprocess.Popen(
        words, cwd=REPO, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def end(process: subprocess.Popen[str]) -> tuple[RunFolder, dict[str, str], str]:
    """Wait for an experiment; return the run folder, what NeMo-Run says of its task, and all that it printed."""
    said, _ = process.communicate(timeout=900)
    answers = [line for line in said.splitlines() if line.startswith("SAID ")]
    assert process.returncode == 0 and answers, said
    answer = json.loads(answers[-1].removeprefix("SAID "))
    return RunFolder(Path(answer["folder"])), answer, said


def verbs_know(cluster: Cluster, folder: RunFolder, job: str) -> None:
    """The run is one like any other to our commands."""
    environment = os.environ | cluster.environment()
    for words, expected in (
        (["status", "--json"], job),
        (["logs"], "job exited with code 0"),
        (["explain"], "goodput"),
        (["report"], "report.html"),
    ):
        command = [sys.executable, "-m", "seatrial", words[0], str(folder.path), *words[1:]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and expected in done.stdout, done.stdout + done.stderr


def named_after_its_run(cluster: Cluster, folder: RunFolder, job: str, requeue: str) -> None:
    run_id = folder.path.name
    assert [jobs.field(cluster, job, name) for name in ("JobName", "Comment", "Requeue")] == [run_id, run_id, requeue]


def test_a_gate_from_here(cluster: Cluster, tmp_path: Path) -> None:
    given = settings(tmp_path, f"profile.rank_python={sys.executable}", EP8)
    case = {"recipe": "nemotron_3_nano_gb200", "kind": "gate", "settings": given, "tail_logs": True}
    folder, answer, said = end(start(cluster, tmp_path / "nemo", case))
    assert answer["status"] == "SUCCEEDED"
    assert "gate/0 [seatrial" in said, "NeMo-Run does not show what the supervisor says"
    judged(folder)
    named_after_its_run(cluster, folder, answer["job"], "0")
    verbs_know(cluster, folder, answer["job"])
    steps = cluster.run("sacct", "--noheader", "--parsable2", f"--jobs={answer['job']}", "--format=JobName").stdout
    assert "attempt-000" in steps and "bash" not in steps, "the supervisor was a job step"


def test_a_gate_through_ssh(cluster: Cluster, tmp_path: Path, server: sshd.Server, own_home: Path) -> None:
    laptop, far = tmp_path / "laptop", tmp_path / "cluster"
    far.mkdir()
    there = cluster.environment() | {"HOME": str(own_home)}
    tunnel = {
        "host": "127.0.0.1", "port": server.port, "user": server.user, "identity": str(server.identity),
        "job_dir": str(far / "jobs"),
        "pre_command": " && ".join(f"export {name}='{value}'" for name, value in there.items()),
    }  # fmt: skip
    given = settings(far, f"profile.rank_python={sys.executable}", EP8)
    case = {"recipe": "nemotron_3_nano_gb200", "kind": "gate", "settings": given, "tunnel": tunnel}
    # The laptop has no Slurm: every command goes through the tunnel.
    process = start(
        cluster, laptop, case, PATH=f"{server.programs}:/usr/local/bin:/usr/bin:/bin", SLURM_CONF="/nonexistent"
    )
    folder, answer, _ = end(process)
    assert answer["status"] == "SUCCEEDED"
    judged(folder)
    named_after_its_run(cluster, folder, answer["job"], "0")
    verbs_know(cluster, folder, answer["job"])
    assert list(far.glob("jobs/voyage/*/gate/sbatch_seatrial.gate_*.out")), "it did not run from the tunnel's folder"
    assert str(laptop) not in "".join(p.read_text() for p in (folder.spec, folder.path / "batch.sh", folder.events))
    log = (tmp_path / "sshd" / "sshd.log").read_text()
    assert f"Accepted publickey for {server.user}" in log


def job_of(folder: RunFolder) -> str:
    (job,) = [event["job_id"] for event in records.read_lines(folder.events) if event["event"] == "submitted"]
    return str(job)


def payload(root: Path, pace: float) -> dict[str, Any]:
    """Return the case of a convergence run whose ranks only print, and save nothing."""
    environment = json.dumps({"set": {"FATE": json.dumps({"all": {"steps": 4, "pace": pace}})}})
    given = settings(
        root, f"profile.rank_python={PAYLOAD}", f"profile.env={environment}", "schedule.train_iters=4",
        "checkpoint.save_interval=4", "profile.recovery.failures_without_progress=1",
    )  # fmt: skip
    return {"recipe": "nemotron_3_nano_gb200", "kind": "convergence", "settings": given, "no_gate": "a test"}


def begun(runs: Path) -> RunFolder:
    """Wait for the one run below ``runs``, and for its ranks."""
    (folder,) = jobs.until(lambda: [RunFolder(p.parent) for p in runs.glob("[!.]*/job_id")], "the run folder")
    jobs.until(lambda: list(folder.attempt(0).path.glob("seen-*.json")), "the first attempt")
    return folder


def test_a_requeued_job_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    process = start(cluster, tmp_path / "nemo", payload(tmp_path, pace=2))
    folder = begun(tmp_path / "runs")
    job = job_of(folder)
    named_after_its_run(cluster, folder, job, "1")
    assert cluster.run("scontrol", "requeue", job).returncode == 0
    jobs.until(lambda: list(folder.attempt(1).path.glob("seen-*.json")), "the second attempt")
    process.communicate(timeout=300)
    jobs.wait_for(cluster, job, ("FAILED", "COMPLETED", "CANCELLED"))
    events = list(records.read_lines(folder.events))
    assert [event["restart_count"] for event in events if event["event"] == "supervisor_started"] == [0, 1]
    assert job_of(folder) == job
    first, second = (records.read_json(folder.attempt(number).record) for number in (0, 1))
    assert first["class"] == "preempted", first
    assert "DUE TO JOB REQUEUE" in (folder.path / f"batch-{job}.log").read_text()
    # The payload saves nothing: the run's end is a failure, and its code the job's.
    code = [event["exit_code"] for event in events if event["event"] == "supervisor_ended"][-1]
    assert second["decision"] and code != 0
    assert jobs.field(cluster, job, "ExitCode") == f"{code}:0"
    assert not list((tmp_path / "runs").glob(".*")), "something is left of making the folder"


def test_signals_reach_the_supervisor_and_a_second_job_stays_away(cluster: Cluster, tmp_path: Path) -> None:
    process = start(cluster, tmp_path / "nemo", payload(tmp_path, pace=15))
    folder = begun(tmp_path / "runs")
    job = job_of(folder)
    # The experiment's script once more, as NeMo-Run submits it.
    (script,) = (tmp_path / "nemo").glob("experiments/voyage/*/gate_sbatch.sh")
    second = cluster.run("sbatch", "--requeue", "--parsable", str(script)).stdout.strip()
    assert jobs.wait_for(cluster, second, ("FAILED", "COMPLETED", "CANCELLED")) == "FAILED"
    assert jobs.field(cluster, second, "ExitCode") == "86:0"
    assert job_of(folder) == job
    # What Slurm does ahead of the time limit. Of this signal itself a rank of this kind would die.
    assert cluster.run("scancel", "--batch", "--signal=USR2", job).returncode == 0
    jobs.until(folder.attempt(0).stop_file.exists, "the stop file")
    process.communicate(timeout=300)
    jobs.wait_for(cluster, job, ("FAILED", "COMPLETED", "CANCELLED"))
    events = list(records.read_lines(folder.events))
    assert [event["by"] for event in events if event["event"] == "stop_requested"] == ["SIGUSR2"]
    assert [rank["code"] for rank in records.read_json(folder.attempt(0).record)["ranks"]] == [0] * 8
    code = [event["exit_code"] for event in events if event["event"] == "supervisor_ended"][-1]
    assert jobs.field(cluster, job, "ExitCode") == f"{code}:0"
    third = cluster.run("sbatch", "--requeue", "--parsable", str(script)).stdout.strip()
    jobs.wait_for(cluster, third, ("FAILED", "COMPLETED", "CANCELLED"))
    newest = [event for event in records.read_lines(folder.events) if event["event"] == "submitted"][-1]
    assert (newest["job_id"], newest["replaces"]) == (third, job), "a job whose run has no job is the run's"
    # And without NeMo-Run: the run's own script, as a job of its name.
    command = [sys.executable, "-m", "seatrial", "requeue", str(folder.path)]
    done = subprocess.run(command, env=os.environ | cluster.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    fourth = [event["job_id"] for event in records.read_lines(folder.events) if event["event"] == "submitted"][-1]
    assert fourth not in (job, third)
    named_after_its_run(cluster, folder, fourth, "1")
    jobs.until(lambda: list(folder.attempt(1).path.glob("seen-*.json")), "the next attempt")
    cluster.run("scancel", fourth)
    jobs.wait_for(cluster, fourth, ("FAILED", "COMPLETED", "CANCELLED"))
