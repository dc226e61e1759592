"""What the site must say, and what the run must be called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.check.blame import Finding, profile, profile_source
from seatrial.spec.runspec import RunSpec

NEEDED = ("account", "partition", "container.image")
_OF_HARDWARE = "container.image"  # a rehearsal's ranks run on the host


def check_site_values(spec: RunSpec) -> Iterator[Finding]:
    """One error lists all that a Slurm job needs and nobody has said."""
    if spec.profile["executor"] != "slurm":
        return
    needed = [key for key in NEEDED if key != _OF_HARDWARE or not spec.rehearsal]
    unset = [key for key in needed if not _value(spec.profile, key)]
    if unset:
        fix = " ".join(f"--set profile.{key}=…" for key in unset)
        fix += ", or write them to ~/.config/seatrial/site.yaml"
        rule = "unset, and a Slurm job needs " + ("it" if len(unset) == 1 else "them")
        file = profile_source(spec, unset[0])
        yield Finding("error", ", ".join(f"profile.{key}" for key in unset), None, rule, file, fix)


def check_notify(spec: RunSpec) -> Iterator[Finding]:
    """The webhook's address is a secret: it is neither on record nor known to the ranks."""
    name = (spec.profile.get("notify") or {}).get("webhook")
    if not name:
        return
    fix = "leave it out there: the supervisor gets it from the submitting shell, and nobody else does"
    if name in spec.environment:
        yield profile(spec, "notify.webhook", "its value would be written down, as profile.env.set or the recipe's env "
                      "does", fix, value=name)  # fmt: skip
    if name in spec.profile["env"]["pass"]:
        yield profile(spec, "notify.webhook", "profile.env.pass gives it to the ranks, which must not know it", fix,
                      value=name)  # fmt: skip


def check_wandb(spec: RunSpec) -> Iterator[Finding]:
    """The key of W&B is a secret: it is named, and never on record."""
    wanted = spec.profile.get("wandb") or {}
    name = wanted.get("key")
    if wanted.get("enabled") and name in spec.environment:
        yield profile(spec, "wandb.key", "its value would be written down, as profile.env.set or the recipe's env does",
                      "leave it out there: the ranks get it from the submitting shell", value=name)  # fmt: skip


def note_rehearsal(spec: RunSpec) -> Iterator[Finding]:
    """Say that a rehearsal is one."""
    if spec.rehearsal:
        rule = "a rehearsal on CPU ranks, with the recipe's shrunk sizes: it proves the path, not the hardware"
        yield profile(spec, "device", rule, severity="note")


def _value(data: Mapping[str, Any], dotted: str) -> Any:
    value: Any = data
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
