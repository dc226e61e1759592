"""What Weights & Biases needs of the submitting shell. Without it a run goes on, and logs offline or not at all."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping

from seatrial.check.blame import Finding, profile
from seatrial.slurm.environment import scrubbed, secrets
from seatrial.spec.runspec import RunSpec
from seatrial.supervise.trackers import key_of

_LONG = "x" * 40


def check_trackers(spec: RunSpec, shell: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the names in ``shell`` (the submitting environment); shows no value of it."""
    wanted = spec.profile["wandb"]
    if not wanted["enabled"]:
        return
    if spec.profile["executor"] == "local" and not spec.profile["rank_python"] and not _installed():
        fix = "pip install 'seatrial[wandb]', or --set profile.wandb.enabled=false"
        yield profile(spec, "wandb.enabled", "wandb is not installed here, where the ranks run", fix, value=True)
    name = key_of(spec.profile)
    if name is None:
        return
    if not secrets({name: _LONG}):
        rule = "a name that tells of a secret (…_KEY, …TOKEN…, …SECRET…): by it the value is kept out of what is shown"
        yield profile(spec, "wandb.key", rule, "export it as WANDB_API_KEY", value=name)
    elif name not in scrubbed(shell):
        lost = "Slurm's own variables of this shell are kept from the job"
        rule = lost if name in shell else "unset in this shell, so the run would log offline"
        fix = f"export {name}, or --set profile.wandb.mode=offline"
        yield profile(spec, "wandb.key", rule, fix, severity="warning", value=name)


def _installed() -> bool:
    return importlib.util.find_spec("wandb") is not None
