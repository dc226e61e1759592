"""The batch script: one pure function from a spec and a run id to text. What it returns is what sbatch gets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.slurm.snapshot import python_path
from seatrial.spec.runspec import RunSpec
from seatrial.supervise import trackers

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# What a login shell's environment gives the job; everything else it must ask for by name.
_EXPORTED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER")


def batch_script(spec: RunSpec, run_id: str, *, dependency: str | None = None) -> str:
    """Return the script for ``run_id``. Pure: it needs no srun, no cluster and no file.

    ``dependency`` is a further one besides ``singleton`` (``afterok:123``).
    Raises SeatrialError where this Slurm lacks a flag that the run needs, or a value cannot stand in a directive.
    """
    folder = PurePosixPath(spec.profile["paths"]["runs"]) / run_id
    if not folder.is_absolute() or "\\" in str(folder):
        raise SeatrialError(
            "the folder of runs cannot be used by Slurm", key="profile.paths.runs", value=str(folder.parent),
            rule="absolute, and without backslash: in a log's path it switches Slurm's patterns off",
        )  # fmt: skip
    lines = ["#!/bin/bash", f"# Seatrial run {run_id}: the supervisor is this job's only process."]
    lines += [_directive(name, value) for name, value in directives(spec, run_id, str(folder), dependency)]
    lines += [
        "",
        "export SUBMITIT_EXECUTOR=slurm",
        "export PYTHONDONTWRITEBYTECODE=1",
        f"export PYTHONPATH={shlex.quote(python_path(folder / 'code'))}",
        "# exec: Slurm's signal for the batch process reaches the supervisor, and its exit code is the job's.",
        f"exec {command(spec, str(folder))}",
        "",
    ]
    return "\n".join(lines)


def command(spec: RunSpec, folder: str) -> str:
    """Return the shell words that start the supervisor through submitit."""
    words = [spec.profile["host_python"], "-u", "-m", "submitit.core._submit", f"{folder}/submitit"]
    return shlex.join(words)


def directives(spec: RunSpec, run_id: str, folder: str, dependency: str | None = None) -> list[tuple[str, Any]]:
    """Return sbatch's options in order: (name, value); the value None is a flag without one."""
    profile = spec.profile
    slurm = profile["slurm"]
    wanted: list[tuple[str, Any]] = [
        ("job-name", run_id),
        ("comment", run_id),
        ("dependency", ",".join(filter(None, ("singleton", dependency)))),
        ("account", profile["account"] or False),
        ("partition", profile["partition"] or False),
        ("qos", profile["qos"] or False),
        ("reservation", profile["reservation"] or False),
        ("nodes", profile["nodes"] + profile["spare_nodes"]),
        ("ntasks-per-node", profile["gpus_per_node"]),
        *_gpus(profile),
        ("cpus-per-task", profile["cpus_per_task"] or False),
        ("mem", profile["memory"] if profile["memory"] is not None else False),
        ("exclusive", None if profile["exclusive"] else False),
        ("segment", spec.segment or False),
        ("time", profile["time_limit_minutes"]),
        # A gate judges one undisturbed attempt; a convergence run comes back by itself.
        ("no-requeue" if spec.kind == "gate" else "requeue", None),
        # With spare nodes the job outlives a node. Without, Slurm must end and requeue it: kept alive it would hold
        # the other nodes for nothing, and where the batch host is the one that died, nobody would notice.
        ("no-kill", None if profile["spare_nodes"] else False),
        ("signal", f"B:USR2@{slurm['signal_lead_seconds']}"),
        ("open-mode", "append"),
        ("chdir", folder),
        ("output", f"{folder.replace('%', '%%')}/batch-%j.log"),
        ("export", ",".join(dict.fromkeys([*_EXPORTED, *profile["env"]["pass"], *_secret_names(profile)]))),
    ]
    kept = [(name, value) for name, value in wanted if value is not False]
    _demand(kept, slurm["capabilities"], spec)
    return kept


def _secret_names(profile: Mapping[str, Any]) -> list[str]:
    """Return the names of the variables that the profile names outside env.pass: the webhook's, which the supervisor
    keeps from the ranks, and that of the ranks' key for W&B."""
    names = [(profile.get("notify") or {}).get("webhook"), trackers.key_of(profile)]
    return [name for name in names if name]


def _gpus(profile: Mapping[str, Any]) -> list[tuple[str, Any]]:
    how, count = profile["gpu_request"], profile["gpus_per_node"]
    if how == "none":
        return []
    if how == "gres":
        return [("gres", f"gpu:{count}")]
    return [("gpus-per-node", count)]


# Flags that some Slurm versions or sites do not know; the profile says which of them this one does.
_CAPABILITY = {
    "segment": "segment", "gpus-per-node": "gpus-per-node", "gres": "gres", "mem": "mem", "exclusive": "exclusive",
    "requeue": "requeue", "no-requeue": "requeue", "signal": "signal", "no-kill": "no-kill", "comment": "comment",
}  # fmt: skip


def _demand(wanted: Sequence[tuple[str, Any]], known: Sequence[str], spec: RunSpec) -> None:
    lacking = [name for name, _ in wanted if name in _CAPABILITY and _CAPABILITY[name] not in known]
    if lacking:
        raise SeatrialError(
            f"this run needs --{', --'.join(lacking)}, which the profile does not list for this Slurm",
            file=spec.profile_sources.get("slurm.capabilities") or f"cluster_profiles/{spec.profile['name']}.yaml",
            key="profile.slurm.capabilities",
            value=list(known),
            rule="a flag that the run needs is never dropped in silence",
            fix="add it where this Slurm knows it; else change what needs it in the profile",
        )


def _directive(name: str, value: Any) -> str:
    if value is None:
        return f"#SBATCH --{name}"
    text = str(value)
    if _CONTROL.search(text):
        raise SeatrialError(
            "a value that Slurm cannot take", key=name, value=text,
            rule="no line break or other control character: a line break would end the directive",
            fix="choose another name or path",
        )  # fmt: skip
    return f"#SBATCH --{name}={_quoted(text)}"


def _quoted(text: str) -> str:
    """Quote for a #SBATCH line, which Slurm splits at blanks and reads quotes and backslashes in."""
    if not re.search(r"[\s'\"\\]", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
