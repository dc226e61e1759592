"""Where recipes, kinds and profiles lie, and how a name finds its file."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from seatrial.errors import SeatrialError, did_you_mean

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def shipped(folder: str) -> Path:
    """Return the shipped ``recipes`` or ``cluster_profiles`` folder: in the wheel, else beside the source root."""
    in_wheel = _PACKAGE / "_shipped" / folder
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parents[1] / folder


def names(folder: str) -> list[str]:
    """Return the shipped names in ``folder``, without ending."""
    return sorted(p.stem for p in shipped(folder).glob("*.yaml"))


def is_path(name: str) -> bool:
    """True where the user gave a file rather than a name."""
    return name.endswith((".yaml", ".yml")) or "/" in name


def find(folder: str, name: str, *, what: str) -> Path:
    """Return the file for a shipped name or a path the user gave; raise SeatrialError naming the nearest one."""
    if is_path(name):
        return Path(name).expanduser()
    path = shipped(folder) / f"{name}.yaml"
    if path.is_file():
        return path
    known = names(folder)
    raise SeatrialError(
        f"unknown {what} {name!r}",
        value=name,
        rule=f"one of {', '.join(known)}, or the path of a YAML file",
        fix=did_you_mean(name, known),
    )


def site_file() -> Path:
    """Return the path of the site's own values: ``$XDG_CONFIG_HOME/seatrial/site.yaml``."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "seatrial" / "site.yaml"
