"""The sandbox is a real Slurm: jobs, GPUs, blocks, accounting, requeue, dead nodes, container options."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from seatrial.sandbox.cluster import Cluster
from tests.slurm.conftest import Factory
from tests.slurm.jobs import field, nodes, output, records, state, steps, submit, until, wait_for

SHOW = "echo $SLURMD_NODENAME $SLURM_PROCID $SLURM_LOCALID $CUDA_VISIBLE_DEVICES $SLURM_CPUS_PER_TASK"


def test_two_nodes_with_four_ranks_see_their_gpus(cluster: Cluster, tmp_path: Path) -> None:
    options = ["--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4", "--cpus-per-task=36", "--exclusive", "--mem=0"]
    job = submit(cluster, tmp_path, f"srun --cpus-per-task=36 bash -c '{SHOW}'", *options)
    assert wait_for(cluster, job, ["COMPLETED", "FAILED"]) == "COMPLETED"
    first, second = nodes(cluster, field(cluster, job, "NodeList"))
    expected = {f"{first if rank < 4 else second} {rank} {rank % 4} 0,1,2,3 36" for rank in range(8)}
    assert set(output(tmp_path, job).splitlines()) == expected
    accounted = until(lambda: records(cluster, job, "State,ExitCode,AllocTRES,Account"), "an accounting record")
    assert [accounted[0][0], accounted[0][1], accounted[0][3]] == ["COMPLETED", "0:0", "research"]
    assert "gres/gpu=8" in accounted[0][2]


def test_a_requeued_job_runs_again(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, "echo run ${SLURM_RESTART_COUNT:-0}; [ $SLURM_RESTART_COUNT ] || sleep 600")
    until(lambda: "run 0" in output(tmp_path, job), "the first run")
    assert cluster.run("scontrol", "requeue", job).returncode == 0
    until(lambda: "run 1" in output(tmp_path, job), "the second run")
    assert wait_for(cluster, job, ["COMPLETED"]) == "COMPLETED"
    until(lambda: records(cluster, job) == [["REQUEUED", "0"], ["COMPLETED", "1"]], "both records")


def test_a_dead_node_fails_a_job_or_shrinks_it(make_cluster: Factory, tmp_path: Path) -> None:
    own = make_cluster(nodes=4, topology="none", kill_wait_seconds=2)
    keeps = submit(own, tmp_path, "sleep 600", "--nodes=2", "--exclusive", "--no-kill", "--nodelist=gb200-[001-002]")
    fails = submit(own, tmp_path, "sleep 600", "--nodes=2", "--exclusive", "--no-requeue", "--nodelist=gb200-[003-004]")
    for job in (keeps, fails):
        wait_for(own, job, ["RUNNING"])
    own.kill_node("gb200-002")
    own.kill_node("gb200-004")
    assert wait_for(own, fails, ["NODE_FAIL", "COMPLETED", "FAILED"]) == "NODE_FAIL"
    until(lambda: own.status().nodes["gb200-002"].startswith("down"), "the controller sees the dead node")
    assert own.status().nodes["gb200-001"].startswith("alloc")
    assert state(own, keeps) == "RUNNING"
    shrunk = own.run("scontrol", "update", f"JobId={keeps}", "NodeList=gb200-001")
    assert shrunk.returncode == 0, shrunk.stderr
    assert field(own, keeps, "NodeList") == "gb200-001"
    assert own.run("scancel", keeps).returncode == 0
    own.start_slurmd("gb200-002")
    assert not own.status().nodes["gb200-002"].startswith("down")


def test_the_controller_and_the_accounting_may_be_away(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, "sleep 3; echo done")
    wait_for(cluster, job, ["RUNNING"])
    cluster.stop_dbd()
    assert cluster.run("sacct").returncode != 0
    cluster.stop_controller()
    assert "is DOWN" in cluster.run("scontrol", "ping").stdout
    assert {"slurmctld", "slurmdbd"} == set(cluster.status().missing)
    cluster.start_dbd()
    cluster.start_controller()
    assert wait_for(cluster, job, ["COMPLETED", "FAILED", "NODE_FAIL"]) == "COMPLETED"
    until(lambda: records(cluster, job, "State") == [["COMPLETED"]], "the accounting has caught up")


def test_a_job_of_sixteen_nodes_lies_in_one_block(make_cluster: Factory, tmp_path: Path) -> None:
    racks = make_cluster(nodes=36)
    wide = ["--exclusive", "--gpus-per-node=4", "--ntasks-per-node=4", "--nodes=16", "--segment=16"]
    submit(racks, tmp_path, "sleep 600", "--nodes=4", "--exclusive", "--nodelist=gb200-[001-004]")
    job = submit(racks, tmp_path, f"srun bash -c '{SHOW}'", *wide)
    assert wait_for(racks, job, ["COMPLETED", "FAILED"]) == "COMPLETED"
    placed = nodes(racks, field(racks, job, "NodeList"))
    assert len(placed) == 16
    assert min(placed) >= "gb200-019", "14 nodes are free in the first rack, 18 in the second"
    seen = [line.split() for line in output(tmp_path, job).splitlines()]
    assert sorted(int(words[1]) for words in seen) == list(range(64))
    assert Counter(words[0] for words in seen) == dict.fromkeys(placed, 4)
    assert {words[3] for words in seen} == {"0,1,2,3"}
    uneven = racks.run("sbatch", *wide[:-1], "--segment=5", "--wrap=true")
    assert "topology" in uneven.stderr
    assert uneven.returncode != 0


CONTAINER = [
    "--container-image=/images/nemo.sqsh",
    "--container-mounts=/data:/data:ro,/runs:/runs",
    "--container-name=ranks",
    "--container-env=NCCL_DEBUG,KEPT",
    "--no-container-mount-home",
    "--container-remap-root",
    "--container-writable",
    "--no-container-entrypoint",
]


def test_container_options_are_recorded(cluster: Cluster, tmp_path: Path) -> None:
    show = "echo $SLURM_PROCID $PYXIS_STAND_IN_CONTAINER_IMAGE $KEPT $LOST"
    environment = "export KEPT=ours LOST=ours PYXIS_STAND_IN_IMAGE_ENV='KEPT=image;LOST=image'"
    line = f"srun {' '.join(CONTAINER)} --container-workdir={tmp_path} bash -c '{show}; pwd'"
    job = submit(cluster, tmp_path, f"{environment}\n{line}", "--nodes=2", "--ntasks-per-node=2")
    assert wait_for(cluster, job, ["COMPLETED", "FAILED"]) == "COMPLETED", output(tmp_path, job)
    expected = {f"{rank} /images/nemo.sqsh ours image" for rank in range(4)} | {str(tmp_path)}
    assert set(output(tmp_path, job).splitlines()) == expected
    recorded = sorted(steps(cluster, job), key=lambda step: step["node_id"])
    assert [(step["step"], step["node_id"], step["tasks"], step["restart"]) for step in recorded] == [
        (0, 0, 2, 0),
        (0, 1, 2, 0),
    ]
    assert [step["node"] for step in recorded] == nodes(cluster, field(cluster, job, "NodeList"))
    assert recorded[0]["options"] == {
        "container-image": "/images/nemo.sqsh",
        "container-mounts": "/data:/data:ro,/runs:/runs",
        "container-workdir": str(tmp_path),
        "container-name": "ranks",
        "container-env": "NCCL_DEBUG,KEPT",
        "no-container-mount-home": True,
        "container-remap-root": True,
        "no-container-entrypoint": True,
        "container-writable": True,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--container-image=./nemo.sqsh"], "not an absolute path: ./nemo.sqsh"),
        (["--container-image=nemo.sqsh"], "not an absolute path: nemo.sqsh"),
        (["--container-image=registry.example#nemo:25.09", "--container-mounts=/a:/b,runs:/runs"], "runs:/runs"),
        (["--container-image=registry.example#nemo:25.09", "--container-mounts=/a:b"], "/a:b"),
        (["--container-image=/a.sqsh", "--container-workdir=work"], "not an absolute path: work"),
        (["--container-image=/images/does-not-exist.sqsh"], "failed to import"),
        (["--container-mounts=/a:/b"], "without --container-image"),
    ],
)
def test_container_options_that_pyxis_refuses(options: list[str], words: str, cluster: Cluster) -> None:
    done = cluster.run("srun", *options, "true")
    assert done.returncode != 0
    assert words in done.stderr


def test_a_value_with_quotes_is_recorded_as_it_is(cluster: Cluster) -> None:
    name = 'a "quoted\\ name\nwith a line, ünicode'
    assert cluster.run("srun", "--container-image=/x.sqsh", f"--container-name={name}", "true").returncode == 0
    recorded = [json.loads(line)["options"] for line in cluster.at.steps.read_text().splitlines()]
    assert recorded[-1]["container-name"] == name
