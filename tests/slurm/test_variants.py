"""Clusters of other settings: no accounting, each way of preemption, an older Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.conftest import Factory
from tests.slurm.jobs import field, output, records, submit, until, wait_for

SMALL = {"nodes": 2, "topology": "none", "kill_wait_seconds": 2}


def test_without_accounting_jobs_run_and_sacct_says_so(make_cluster: Factory, tmp_path: Path) -> None:
    cluster = make_cluster(**SMALL, accounting=False)
    job = submit(cluster, tmp_path, "srun hostname", "--nodes=2")
    assert wait_for(cluster, job, ["COMPLETED", "FAILED"]) == "COMPLETED"
    done = cluster.run("sacct")
    assert (done.returncode, "accounting storage is disabled" in done.stderr) == (1, True)


# The way, whether the job's own signal is sent, the record of the first run, whether it runs again.
WAYS = [
    ("REQUEUE", False, "PREEMPTED", True),
    ("REQUEUE", True, "PREEMPTED", True),
    ("CANCEL", False, "PREEMPTED", False),
    ("CANCEL", True, "PREEMPTED", False),
]


@pytest.mark.parametrize(("mode", "signal", "record", "again"), WAYS)
def test_a_job_gives_way(
    mode: str, signal: bool, record: str, again: bool, make_cluster: Factory, tmp_path: Path
) -> None:
    cluster = make_cluster(**SMALL, preempt_mode=mode, send_user_signal=signal, grace_seconds=5 if signal else 0)
    script = """echo run ${SLURM_RESTART_COUNT:-0}
        trap 'echo warned; exit 0' USR2
        [ $SLURM_RESTART_COUNT ] && exit 0
        for i in $(seq 3000); do sleep 0.2; done"""
    low = submit(cluster, tmp_path, script, "--nodes=2", "--exclusive", "--signal=B:USR2@60")
    until(lambda: "run 0" in output(tmp_path, low), "the job runs")
    high = submit(cluster, tmp_path, "true", "--nodes=2", "--exclusive", "--partition=urgent")
    assert wait_for(cluster, high, ["COMPLETED", "FAILED"]) == "COMPLETED"
    assert ("warned" in output(tmp_path, low)) == signal
    if again:
        until(lambda: "run 1" in output(tmp_path, low), "the job runs again")
        wait_for(cluster, low, ["COMPLETED"])
    until(lambda: records(cluster, low, "State")[:1] == [[record]], "the record of the first run")
    # 24.11 may requeue a job once more that had a grace time, after it completed: at least two runs then.
    assert (len(records(cluster, low)) > 1) == again


def test_slurm_22_05(make_cluster: Factory, tmp_path: Path) -> None:
    cluster = make_cluster(version="22.05", nodes=2, topology="none")
    assert "22.05" in cluster.run("sinfo", "--version").stdout
    container = "--container-image=/images/nemo.sqsh"
    options = ["--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4", "--exclusive"]
    job = submit(cluster, tmp_path, f"srun {container} bash -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'", *options)
    assert wait_for(cluster, job, ["COMPLETED", "FAILED"]) == "COMPLETED"
    assert set(output(tmp_path, job).splitlines()) == {f"{rank} 0,1,2,3" for rank in range(8)}
    until(lambda: records(cluster, job, "State") == [["COMPLETED"]], "the record")
    assert "unrecognized option" in cluster.run("sbatch", "--segment=2", "--wrap=true").stderr
    assert field(cluster, job, "Account") == "research"
