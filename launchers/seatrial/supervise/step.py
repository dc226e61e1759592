"""The job step that starts the ranks: srun's words and the ranks' environment. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from seatrial.run.layout import Attempt
from seatrial.supervise import trackers

# Kept of the batch environment's own Slurm variables: what srun needs to find its job and cluster. Everything else
# (SLURM_CPU_BIND, SLURM_EXPORT_ENV, SLURM_NTASKS ...) would speak into options that are given outright.
_KEPT = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_JWT", "SLURM_JOB_UID")
_STALE = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH"})
_STALE_PREFIXES = ("SLURM_", "SUBMITIT_", "SBATCH_", "PMI_", "PMIX_", "OMPI_", "TORCHELASTIC_")


@dataclass(frozen=True)
class Allocation:
    """The nodes of this job that run ranks, in rank order, and where rank 0 listens."""

    job_id: str
    restart_count: int
    nodes: Sequence[str]
    master_addr: str
    master_port: int


def step_name(attempt: int) -> str:
    """Return the step's name, by which it is found among the job's steps."""
    return f"attempt-{attempt:03d}"


def srun_words(
    spec: Mapping[str, Any],
    allocation: Allocation,
    settings: Mapping[str, str],
    attempt: Attempt,
    command: Sequence[str],
) -> list[str]:
    """Return the whole srun command: one task a GPU, all GPUs of a node visible to each of its tasks.

    Counts and nodes are explicit: a spare node of the allocation gets no rank, and srun inherits no CPU count since
    Slurm 22.05. ``settings`` are the variables to set, whose names a container must not overrule. A failed rank does
    not end the others by itself (--kill-on-bad-exit=0): the supervisor does, at once, and knows why.
    """
    profile = spec["profile"]
    tasks = int(profile["gpus_per_node"])
    words = [
        "srun",
        f"--job-name={step_name(attempt.number)}",
        f"--nodes={len(allocation.nodes)}",
        f"--ntasks={len(allocation.nodes) * tasks}",
        f"--ntasks-per-node={tasks}",
        f"--nodelist={','.join(allocation.nodes)}",
        "--distribution=block",
        "--no-kill",
        # A step that has ended may hold its share a while longer, in the eyes of a controller that was away.
        "--overlap",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--unbuffered",
        "--export=ALL",
        "--open-mode=append",
        f"--output={str(attempt.path).replace('%', '%%')}/rank-%5t.log",
    ]
    if profile.get("cpus_per_task"):
        words.append(f"--cpus-per-task={profile['cpus_per_task']}")
    if profile.get("mpi"):
        words.append(f"--mpi={profile['mpi']}")
    return [*words, *_container(spec, allocation, settings), *_numa(profile, command)]


def beside_words(name: str, nodes: Sequence[str]) -> list[str]:
    """Return srun and its options for a step of one task on each of ``nodes``: on the host itself, beside whatever runs
    there, and not ended by what becomes of other nodes."""
    return [
        "srun", f"--job-name={name}", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1",
        f"--nodelist={','.join(nodes)}", "--cpus-per-task=1", "--overlap", "--no-kill", "--export=ALL",
    ]  # fmt: skip


def _container(spec: Mapping[str, Any], allocation: Allocation, settings: Mapping[str, str]) -> list[str]:
    """Return pyxis's options. One container a node for this allocation and restart count, reused by later attempts."""
    container = spec["profile"]["container"]
    if not container["image"]:
        return []
    run = f"{spec['profile']['paths']['runs']}/{spec['run_id']}"
    mounts = [*container["mounts"], f"{run}:{run}"]
    key = trackers.key_of(spec["profile"])
    names = sorted({*settings, *spec["profile"]["env"]["pass"], *([key] if key else []), "MASTER_ADDR", "MASTER_PORT"})
    return [
        f"--container-image={container['image']}",
        f"--container-name=seatrial-{allocation.job_id}-{allocation.restart_count}",
        f"--container-mounts={','.join(mounts)}",
        f"--container-workdir={run}",
        "--no-container-mount-home",
        "--container-writable",
        # Without this a variable that the image sets too would win over ours.
        f"--container-env={','.join(names)}",
    ]


def _numa(profile: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """Return the rank's command as a chain of execs, so that Slurm's step daemon is Python's own parent.

    GB200: two Grace sockets a node, half of the node's GPUs on each.
    """
    if not profile.get("numa_bind"):
        return list(command)
    node = f"$((SLURM_LOCALID/{max(1, int(profile['gpus_per_node']) // 2)}))"
    script = f"exec numactl --cpunodebind={node} --membind={node} {shlex.join(command)}"
    return ["/bin/sh", "-c", script]


def srun_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for srun: the job's, less what would mislead it."""
    return {
        name: value
        for name, value in inherited.items()
        if name in _KEPT or (name not in _STALE and not name.startswith(_STALE_PREFIXES))
    }


def step_environment(
    inherited: Mapping[str, str], settings: Mapping[str, str], allocation: Allocation
) -> dict[str, str]:
    """Return srun's environment, which the ranks get: the job's, less what would mislead, plus the recipe's."""
    return {
        **srun_environment(inherited),
        "PYTHONUNBUFFERED": "1",
        **settings,
        "MASTER_ADDR": allocation.master_addr,
        "MASTER_PORT": str(allocation.master_port),
    }


def jit_cache_root(node_local: str, run_id: str) -> str:
    """Return the folder of a run's compiled kernels on a node."""
    return f"{node_local}/seatrial-{run_id}"


def jit_caches(node_local: str, run_id: str) -> dict[str, str]:
    """Return where run-time compilers keep their kernels: on the node, for they race on shared folders."""
    root = jit_cache_root(node_local, run_id)
    return {
        "HYBRID_EP_CACHE_DIR": f"{root}/hybrid_ep",
        "TRITON_CACHE_DIR": f"{root}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{root}/inductor",
        "TORCH_EXTENSIONS_DIR": f"{root}/extensions",
        "CUDA_CACHE_PATH": f"{root}/cuda",
    }


def rank_of_message(line: str) -> Optional[tuple[str, str]]:
    """Return (task list, what srun says) of a line such as ``srun: error: n1: tasks 0-2,5: Killed``."""
    head, _, rest = line.partition("srun: error: ")
    if not rest or head.strip():
        return None
    parts = rest.strip().split(": ", 2)
    if len(parts) != 3 or parts[1].split(" ")[0] not in ("task", "tasks"):
        return None
    return parts[1].partition(" ")[2], parts[2]
