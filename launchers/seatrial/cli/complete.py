"""Shell completion: run ids, recipes and profiles. Called at every press of Tab, so nothing heavy is imported."""

from __future__ import annotations

from pathlib import Path

_MOST = 200


def runs(incomplete: str) -> list[str]:
    """Return the ids of runs in ``./runs`` that begin so, the newest first."""
    try:
        found = [path for path in Path("runs").iterdir() if path.name.startswith(incomplete)]
        found = [path for path in found if (path / "spec.json").is_file()]
        return [path.name for path in sorted(found, key=lambda path: -path.stat().st_mtime)[:_MOST]]
    except OSError:
        return []


def recipes(incomplete: str) -> list[str]:
    """Return the names of shipped recipes that begin so."""
    return _shipped("recipes", incomplete)


def profiles(incomplete: str) -> list[str]:
    """Return the names of shipped profiles that begin so."""
    return _shipped("cluster_profiles", incomplete)


def _shipped(folder: str, incomplete: str) -> list[str]:
    from seatrial.spec.library import names

    return [name for name in names(folder) if name.startswith(incomplete)]
