"""The environment of Slurm's commands, and what of it must never be shown. Pure.

Submitting from inside an allocation must give the same job as from a login node, and what is submitted must be what was
rendered. So Slurm's variables go, with these reasons:

* ``SLURM_*``: an allocation's own (SLURM_CPU_BIND, SLURM_NTASKS, ...) leak into the new job through ``--export=ALL``
  and bend its steps; some are options (SLURM_EXIT_ERROR changes exit codes, SLURM_TIME_FORMAT the times).
* ``SBATCH_*``, ``SRUN_*``, ``SALLOC_*``: options that silently win over the ``#SBATCH`` lines, or over the job's steps.
* ``SQUEUE_*``, ``SACCT_*``, ``SCANCEL_*``, ``SINFO_*``, ``SCONTROL_*``: filters and formats that hide jobs.
* ``_SLURM_*``, ``SLURMD_*``, ``SPANK_*``, ``PMI_*``, ``PMIX_*``: a step's own, such as the outer container's options.

What finds the cluster or proves who asks stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from seatrial.run.secret_names import is_secret

_DROPPED = (
    "SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_",
    "_SLURM_", "SLURMD_", "SPANK_", "PMI_", "PMIX_",
)  # fmt: skip
_KEPT = frozenset({
    "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS",  # which cluster
    "SLURM_JWT", "SLURM_SACK_KEY", "SLURM_SACK_JWKS", "SLURM_SACK_SOCKET",  # who asks
})  # fmt: skip
# Set by Slurm for the outer allocation's GPUs; the new job gets its own, or none.
_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"})


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what Slurm's commands (and through sbatch the job) may inherit of ``environment``."""
    inside = "SLURM_JOB_ID" in environment
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not (name.startswith(_DROPPED) or (inside and name in _DEVICES))
    }


def for_questions(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``scrubbed`` for commands that print: times as seconds since 1970, free of time zones and of DST."""
    return scrubbed(environment) | {"SLURM_TIME_FORMAT": "%s"}


def secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return name -> value of the variables whose names say that they are secret; short values are none."""
    return {name: value for name, value in environment.items() if is_secret(name, value)}


def redacted(text: str, environment: Mapping[str, str]) -> str:
    """Return ``text`` with every secret of ``environment`` replaced by its name."""
    for name, value in sorted(secrets(environment).items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{name}>")
    return text
