"""Questions to Slurm from the batch host. No answer is no news: it is never taken for one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

_OF_THIS_JOB = ("SLURM_", "SBATCH_", "SRUN_", "SUBMITIT_")
_OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTER_NAME")


@dataclass(frozen=True)
class Answer:
    """``output``: what a command printed; None where it failed, or did not answer. ``problem``: then, what it said."""

    output: Optional[str]
    problem: str = ""
    answered: bool = True


def run(words: Sequence[str], environment: Optional[Mapping[str, str]] = None, seconds: float = 60.0) -> Answer:
    """Run a command, for ``seconds`` at most. Never raises."""
    try:
        done = subprocess.run(
            list(words), env=None if environment is None else dict(environment), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=seconds, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Answer(None, str(error), answered=False)
    if done.returncode == 0:
        return Answer(done.stdout)
    return Answer(None, (done.stderr + done.stdout).strip() or f"exit code {done.returncode}")


def ask(words: Sequence[str], environment: Optional[Mapping[str, str]] = None, seconds: float = 30.0) -> Optional[str]:
    """Return what a command printed; None where it failed, or did not answer within ``seconds``."""
    return run(words, environment, seconds).output


def step_id(name: str, environment: Mapping[str, str], seconds: float) -> Optional[str]:
    """Return the id (``123.4``) of this job's step of that name; None where Slurm does not tell."""
    words = ["squeue", "--noheader", "--steps", f"--jobs={environment.get('SLURM_JOB_ID', '')}", "--format=%i|%j"]
    lines = [line.strip().split("|", 1) for line in (ask(words, environment, seconds) or "").splitlines()]
    return next((line[0] for line in lines if line[1:] == [name]), None)


def outside_of_this_job(environment: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """Return an environment for submitting from here: a job's own variables would speak into the new job's options."""
    return {
        name: value
        for name, value in (os.environ if environment is None else environment).items()
        if name in _OF_THE_CLUSTER or not name.startswith(_OF_THIS_JOB)
    }
