"""A spec that means the same on the cluster as here: they may share no file system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from seatrial.errors import SeatrialError
from seatrial.spec.runspec import RunSpec


def portable(spec: RunSpec) -> RunSpec:
    """Return the spec with the ranks' Python filled in. Raises SeatrialError for what only this machine could tell."""
    profile = dict(spec.profile)
    if profile["executor"] != "slurm":
        raise _error(spec, "executor", "a Slurm profile", "on this machine: seatrial gate --profile local-cpu")
    if spec.drill is not None:
        raise SeatrialError("a drill is no task: it needs its undisturbed gate", fix="seatrial gate … --drill FAULT")
    runs = str(profile["paths"]["runs"])
    if not PurePosixPath(runs).is_absolute():
        raise _error(spec, "paths.runs", "absolute: a folder of the cluster", "--set profile.paths.runs=/…", runs)
    if not PurePosixPath(str(profile["host_python"])).is_absolute():
        raise _error(spec, "host_python", "absolute: a Python of the compute hosts", "/usr/bin/python3")
    if profile["rank_python"] is None:
        if not profile["container"]["image"]:
            fix = "name the container's image in profile.container.image, or the ranks' Python in profile.rank_python"
            raise _error(spec, "rank_python", "without a container, the Python of the ranks on the compute hosts", fix)
        profile["rank_python"] = profile["container"]["python"]
    profile["paths"] = dict(profile["paths"]) | {"runs": str(PurePosixPath(runs))}
    return replace(spec, profile=profile)


def _error(spec: RunSpec, key: str, rule: str, fix: str, value: object = None) -> SeatrialError:
    return SeatrialError(
        "a task must say where things are on the cluster", file=spec.profile_sources.get(key),
        key=f"profile.{key}", value=spec.profile.get(key) if value is None else value, rule=rule, fix=fix,
    )  # fmt: skip
