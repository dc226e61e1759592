"""Which release of a distribution is installed, and when two are of one line."""

from __future__ import annotations

from importlib import metadata
from typing import Optional


def installed(distribution: str) -> Optional[str]:
    """Return the installed release; None where there is none, or a source tree that does not say."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def same_line(one: str, other: str) -> bool:
    """Return whether two releases are of one line, 0.18 say. Pure."""
    return one.split(".")[:2] == other.split(".")[:2]
