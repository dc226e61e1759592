"""srun's words and the ranks' environment, as a pure function of spec and allocation; and what srun says of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.run.layout import Attempt
from seatrial.supervise.srun import _ranks, _status
from seatrial.supervise.step import Allocation, jit_caches, rank_of_message, srun_words, step_environment

PLACE = Allocation("77", 2, ("n1", "n2"), "10.0.0.1", 25000)


def words(**profile: Any) -> list[str]:
    spec = {
        "run_id": "r-1",
        "environment": {"USE_MNNVL": "1"},
        "profile": {
            "gpus_per_node": 4, "cpus_per_task": 36, "mpi": None, "numa_bind": False,
            "env": {"pass": ["HF_TOKEN"], "set": {}},
            "container": {"image": None, "mounts": [], "python": "python3"}, "paths": {"runs": "/runs"}, **profile,
        },
    }  # fmt: skip
    attempt = Attempt(Path("/runs/r-1/attempts/003"), 3)
    return srun_words(spec, PLACE, {"USE_MNNVL": "1"}, attempt, ["python3", "/runs/r-1/code/rank.py", "/p lan.json"])


def test_counts_are_explicit() -> None:
    found = words()
    assert found[0] == "srun"
    for word in (
        "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--nodelist=n1,n2", "--cpus-per-task=36", "--no-kill",
        "--overlap", "--job-name=attempt-003", "--output=/runs/r-1/attempts/003/rank-%5t.log", "--open-mode=append",
    ):  # fmt: skip
        assert word in found
    assert not any("gpus-per-task" in word or "torchrun" in word for word in found)
    assert found[-3:] == ["python3", "/runs/r-1/code/rank.py", "/p lan.json"]


def test_mpi_as_the_profile_says() -> None:
    assert "--mpi=pmix" in words(mpi="pmix")
    assert not any(word.startswith("--mpi") for word in words())


def test_numa_is_a_chain_of_execs() -> None:
    shell, flag, line = words(numa_bind=True)[-3:]
    assert (shell, flag) == ("/bin/sh", "-c")
    node = "$((SLURM_LOCALID/2))"
    assert line == f"exec numactl --cpunodebind={node} --membind={node} python3 /runs/r-1/code/rank.py '/p lan.json'"


def test_container_options() -> None:
    found = words(container={"image": "/images/nemo.sqsh", "mounts": ["/data:/data:ro"], "python": "python3"})
    for word in (
        "--container-image=/images/nemo.sqsh", "--container-name=seatrial-77-2", "--no-container-mount-home",
        "--container-mounts=/data:/data:ro,/runs/r-1:/runs/r-1", "--container-workdir=/runs/r-1",
        "--container-env=HF_TOKEN,MASTER_ADDR,MASTER_PORT,USE_MNNVL",
    ):  # fmt: skip
        assert word in found
    wandb = {"enabled": True, "mode": "online", "key": "TEAM_KEY"}
    found = words(container={"image": "/images/nemo.sqsh", "mounts": [], "python": "python3"}, wandb=wandb)
    assert "--container-env=HF_TOKEN,MASTER_ADDR,MASTER_PORT,TEAM_KEY,USE_MNNVL" in found


def test_environment() -> None:
    inherited = {
        "PATH": "/bin", "HF_TOKEN": "x", "SLURM_CONF": "/c", "SLURM_JOB_ID": "77", "SLURM_CPU_BIND": "none",
        "RANK": "5", "SLURM_EXPORT_ENV": "NONE", "SUBMITIT_FOLDER": "/f", "PYTHONPATH": "/host", "SLURM_NTASKS": "1",
    }  # fmt: skip
    found = step_environment(inherited, {"USE_MNNVL": "1", "PATH": "/mine"}, PLACE)
    assert found == {
        "PATH": "/mine", "HF_TOKEN": "x", "SLURM_CONF": "/c", "SLURM_JOB_ID": "77", "PYTHONUNBUFFERED": "1",
        "USE_MNNVL": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "25000",
    }  # fmt: skip


def test_jit_caches_lie_on_the_node() -> None:
    assert jit_caches("/tmp", "r-1")["HYBRID_EP_CACHE_DIR"] == "/tmp/seatrial-r-1/hybrid_ep"


@pytest.mark.parametrize(
    ("line", "ranks", "status"),
    [
        ("srun: error: n1: task 3: Exited with exit code 42", [3], 42),
        ("srun: error: gb200-001: tasks 0-2,5: Exited with exit code 1", [0, 1, 2, 5], 1),
        ("srun: error: n1: task 7: Killed", [7], -9),
        ("srun: error: n1: task 7: Terminated", [7], -15),
        ("srun: error: n1: task 0: Segmentation fault (core dumped)", [0], -11),
        ("srun: error: n1: task 0: Aborted (core dumped)", [0], -6),
        ("srun: error: n1: task 0: Something new", [0], 1),
    ],
)
def test_what_srun_says_of_a_rank(line: str, ranks: list[int], status: int) -> None:
    message = rank_of_message(line)
    assert message
    assert (_ranks(message[0]), _status(message[1])) == (ranks, status)


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: Node failure on n1",
        "srun: Job step aborted: Waiting up to 12 seconds for job step to finish.",
        "srun: error: Unable to create step for job 7: More processors requested than permitted",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED ***",
        "my own text srun: error: n1: task 3: Killed",
        "",
    ],
)
def test_other_lines_say_nothing_of_a_rank(line: str) -> None:
    assert rank_of_message(line) is None
