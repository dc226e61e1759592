"""What Slurm's commands inherit, and what is never shown."""

from __future__ import annotations

import pytest

from seatrial.slurm.environment import for_questions, redacted, scrubbed

GONE = [
    "SLURM_JOB_ID", "SLURM_CPU_BIND", "SLURM_NTASKS", "SLURM_EXIT_ERROR", "SLURM_TIME_FORMAT", "SBATCH_PARTITION",
    "SBATCH_REQUEUE", "SRUN_CPUS_PER_TASK", "SALLOC_ACCOUNT", "SQUEUE_STATES", "SACCT_FEDERATION", "SCANCEL_STATE",
    "SINFO_FORMAT", "SCONTROL_ALL", "_SLURM_SPANK_OPTION_pyxis_container_image", "SLURMD_NODENAME", "SPANK_X",
    "PMI_RANK", "PMIX_RANK", "CUDA_VISIBLE_DEVICES",
]  # fmt: skip
KEPT = [
    "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_SOCKET", "PATH", "HOME", "LANG",
    "MUNGE_SOCKET", "HF_TOKEN", "MODULEPATH",
]  # fmt: skip


@pytest.mark.parametrize("name", GONE)
def test_dropped_inside_an_allocation(name: str) -> None:
    assert name not in scrubbed({"SLURM_JOB_ID": "1", name: "x"})


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    assert scrubbed({"SLURM_JOB_ID": "1", name: "x"})[name] == "x"


def test_outside_an_allocation_the_users_own_devices_stay() -> None:
    assert scrubbed({"CUDA_VISIBLE_DEVICES": "1"}) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_questions_print_seconds() -> None:
    assert for_questions({"SLURM_TIME_FORMAT": "relative"}) == {"SLURM_TIME_FORMAT": "%s"}


def test_secrets_are_shown_by_name() -> None:
    environment = {
        "HF_TOKEN": "hf_abcdefgh",
        "WANDB_API_KEY": "hf_abcdefgh_longer",
        "SSH_KEY": "/a/path/key",
        "A": "hf",
    }
    text = "--export=HF_TOKEN=hf_abcdefgh,W=hf_abcdefgh_longer,/a/path/key"
    assert redacted(text, environment) == "--export=HF_TOKEN=<HF_TOKEN>,W=<WANDB_API_KEY>,/a/path/key"
