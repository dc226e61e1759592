"""Where a run came from: commit, versions, host. Facts for the record; nothing here decides anything."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import seatrial


def provenance(source: Path | None = None) -> dict[str, Any]:
    """Return the commit (None outside git), whether tracked files differ from it, versions, and the host."""
    root = source or Path(seatrial.__file__).resolve().parents[2]
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no") if commit else None
    return {
        "commit": commit,
        "dirty": bool(changed) if commit else None,
        "seatrial": seatrial.__version__,
        "submitit": _version("submitit"),
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "host": platform.node(),
        "machine": platform.machine(),
    }


def _git(root: Path, *words: str) -> str | None:
    """Return git's output for the repository that holds ``root`` itself, or None where there is none."""
    if not (root / "pyproject.toml").is_file():
        return None  # an installed package must not report whatever repository happens to lie around it
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
