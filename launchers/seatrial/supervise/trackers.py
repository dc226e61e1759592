"""Weights & Biases: as whom an attempt logs there, in Megatron's arguments and wandb's own variables. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from seatrial.run import records
from seatrial.run.layout import Attempt, RunFolder, SecondPass

# As argparse dests: set below, by nobody else.
OWNED = frozenset({"wandb_project", "wandb_exp_name", "wandb_entity", "wandb_save_dir"})
FAILED = "tracker_failed"
_LONGEST_ID = _LONGEST_TAG = 64  # wandb's limits
_DIGEST = 8


def key_of(profile: Mapping[str, Any]) -> Optional[str]:
    """Return the NAME of the variable that holds the API key; None where the ranks need none."""
    wanted = profile.get("wandb") or {}
    return str(wanted["key"]) if wanted.get("enabled") and wanted["mode"] == "online" else None


def run_of(run_id: str) -> str:
    """Return W&B's id of a run, the same for all its attempts: ``run_id`` itself where it may be one."""
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", run_id)
    if safe == run_id and len(safe) <= _LONGEST_ID:
        return safe
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:_DIGEST]
    return f"{safe[: _LONGEST_ID - _DIGEST - 1]}-{digest}"


def values(spec: Mapping[str, Any], folder: RunFolder) -> dict[str, str]:
    """Return what the loop is told of W&B: Megatron's name of an argument -> value.

    wandb itself makes a folder ``wandb`` in the one that it is given.
    """
    wanted = _wanted(spec, folder)
    if wanted is None:
        return {}
    told = {
        "wandb_project": str(wanted["project"]),
        "wandb_exp_name": str(spec["run_id"]),
        "wandb_save_dir": str(folder.path),
    }
    return {**told, "wandb_entity": str(wanted["entity"])} if wanted.get("entity") else told


def arguments(spec: Mapping[str, Any], folder: RunFolder) -> list[str]:
    """Return the same as Megatron's arguments."""
    pairs = values(spec, folder).items()
    return [word for name, value in pairs for word in (f"--{name.replace('_', '-')}", value)]


def ranks_part(spec: Mapping[str, Any], folder: RunFolder) -> Optional[dict[str, Any]]:
    """Return what stands in the plan: variables for the rank that logs, and the name of the one that holds the key."""
    wanted = _wanted(spec, folder)
    if wanted is None:
        return None
    tags = [spec.get("recipe"), spec.get("kind"), spec["profile"].get("name"), "rehearsal" if spec["rehearsal"] else ""]
    variables = {
        "WANDB_RUN_ID": run_of(str(spec["run_id"])),
        "WANDB_RESUME": "allow",
        "WANDB_MODE": str(wanted["mode"]),
        "WANDB_TAGS": ",".join(_tags(tags)),
    }
    if spec.get("group"):
        variables["WANDB_RUN_GROUP"] = str(spec["group"])
    return {"key": key_of(spec["profile"]), "environment": variables}


def trouble(attempt: Attempt) -> Optional[str]:
    """Return what W&B did not get in this attempt, and why, as the rank that logs has left it; None: nothing known."""
    said = (records.read_object(attempt.path / "wandb.json") or {}).get("trouble")
    return said if isinstance(said, str) else None


def _wanted(spec: Mapping[str, Any], folder: RunFolder) -> Optional[Mapping[str, Any]]:
    """Return the profile's wishes. Steps made once more for a check, or under a fault, are none of the run's curve."""
    wanted = spec["profile"].get("wandb") or {}
    proper = not isinstance(folder, SecondPass) and not spec.get("drill")
    return wanted if wanted.get("enabled") and proper else None


def _tags(words: Sequence[Any]) -> list[str]:
    """Return them as wandb takes them: a comma would part them."""
    return list(dict.fromkeys(str(word).replace(",", "_")[:_LONGEST_TAG] for word in words if word))
