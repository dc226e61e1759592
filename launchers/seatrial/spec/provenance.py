"""Where a run's code comes from: its commit, what differs from it, versions, host."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import seatrial
from seatrial.errors import SeatrialError

DIFF_FILE = "uncommitted.diff"
SOURCE_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".json"})  # files that can change what runs
_SOURCE_FOLDERS = ("launchers/seatrial", "recipes", "cluster_profiles")
_GIT_TIMEOUT_SECONDS = 60
_LISTED = 20
# Set by git itself around hooks and aliases; they would point it at another repository.
_GIT_OWN = {
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS",
}  # fmt: skip
# Whatever the user's configuration says, `git apply` must take the diff.
_DIFF = (
    "diff", "HEAD", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
    "--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """The state of the source: the commit (None where it is an installed package), and what differs from it.

    ``changed`` are tracked files, ``untracked`` files that git does not know but a run would use; both relative to the
    root. ``diff`` holds both, for `git apply`, and may hold whatever secret somebody typed into a file.
    """

    commit: str | None
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    diff: bytes = b""

    @property
    def dirty(self) -> bool | None:
        """Whether the files differ from the commit; None where there is none."""
        return bool(self.changed or self.untracked) if self.commit else None

    def record(self) -> dict[str, Any]:
        """Return what the run's record says. Of a clean tree that is the commit alone."""
        record: dict[str, Any] = {"commit": self.commit, "dirty": self.dirty}
        if self.dirty:
            record |= {"changed": list(self.changed), "untracked": list(self.untracked)}
            record |= {"diff": DIFF_FILE, "diff_sha256": hashlib.sha256(self.diff).hexdigest()}
        return record

    def write_diff(self, run_folder: Path) -> None:
        """Write ``uncommitted.diff`` (mode 0600) where the tree is dirty."""
        if self.dirty:
            handle = os.open(run_folder / DIFF_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as stream:
                stream.write(self.diff)


def source_root() -> Path:
    """Return the folder that would be the checkout's root, were this package run from one."""
    return Path(seatrial.__file__).resolve().parents[2]


def provenance(source: Source | None = None) -> dict[str, Any]:
    """Return the record of ``source`` (of this package's where None), versions, and the host."""
    if source is None:
        try:
            source = read_source(source_root())
        except SeatrialError:  # a record alone: git's troubles stop nobody
            source = Source(None)
    return {
        **source.record(),
        "seatrial": seatrial.__version__,
        "submitit": _version("submitit"),
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "host": platform.node(),
        "machine": platform.machine(),
    }


def require_clean(root: Path, allow_dirty: bool = False, require_head: str | None = None) -> Source:
    """Return the state of the source at ``root``, if a run may be made from it.

    Raises:
        SeatrialError: files differ from the commit and ``allow_dirty`` is not set; the commit is not
            ``require_head`` (in full, or a unique prefix of at least 7 digits), or there is none; git fails.
    """
    source = read_source(root)
    if require_head is not None:
        _require_head(root, source, require_head)
    if source.dirty and not allow_dirty:
        lines = [*(f"changed    {name}" for name in source.changed), *(f"untracked  {n}" for n in source.untracked)]
        more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        raise SeatrialError(
            "\n    ".join([f"the source differs from commit {str(source.commit)[:12]}:", *lines[:_LISTED], *more]),
            file=root, rule="what runs is a commit", fix="commit, or record the difference with --allow-dirty",
        )  # fmt: skip
    return source


def read_source(root: Path) -> Source:
    """Return the state of the source at ``root``; Source(None) where that is no git checkout of Seatrial.

    The files are held against HEAD through an index of our own: the user's is neither waited for, changed nor
    believed (it can be told to ignore edits). Raises SeatrialError where git fails.
    """
    # An installed package must not report whatever repository happens to lie around it.
    if not (root / "pyproject.toml").is_file() or not any((p / ".git").exists() for p in (root, *root.parents)):
        return Source(None)
    commit = _git(root, ["rev-parse", "--verify", "HEAD^{commit}"]).decode().strip()
    with tempfile.TemporaryDirectory(prefix="seatrial-") as folder:
        index = Path(folder) / "index"
        _git(root, ["read-tree", "HEAD"], index)
        changed = _names(_git(root, ["diff", "HEAD", "--name-only", "--no-renames", "--relative", "-z", "."], index))
        others = _names(_git(root, ["ls-files", "--others", "-z", "--", *_SOURCE_FOLDERS], index))
        untracked = [name for name in others if _would_run(name)]
        if untracked:  # from here on they are new files, with no content yet
            _git(root, ["--literal-pathspecs", "add", "--intent-to-add", "--force", "--", *untracked], index)
        diff = _git(root, [*_DIFF, "."], index) if changed or untracked else b""
    return Source(commit, tuple(changed), tuple(untracked), diff)


def _would_run(name: str) -> bool:
    """True for files a run would use, ignored by git or not. A name that ends in "/" is a repository of its own."""
    path = Path(name)
    return name.endswith("/") or (path.suffix in SOURCE_SUFFIXES and "__pycache__" not in path.parts)


def _require_head(root: Path, source: Source, wanted: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{7,64}", wanted):
        raise SeatrialError("--require-head takes a commit", value=wanted, rule="7 hexadecimal digits or more")
    if source.commit is None:
        raise SeatrialError(
            f"this is Seatrial {seatrial.__version__} without a git checkout: it cannot show that it is {wanted}",
            file=root, fix="run from a checkout, or leave --require-head out",
        )  # fmt: skip
    # The prefix must be of this commit and of no other object; a branch may bear such a name, too.
    unique = source.commit.startswith(wanted) and _git(root, ["rev-parse", "--verify", f"{wanted}^{{commit}}"])
    if not unique or unique.decode().strip() != source.commit:
        raise SeatrialError(
            f"the source is at another commit than {wanted}", file=root, value=source.commit,
            fix=f"git checkout {wanted}",
        )  # fmt: skip


def _names(output: bytes) -> list[str]:
    return sorted(os.fsdecode(name) for name in output.split(b"\0") if name)


def _git(root: Path, words: Sequence[str], index: Path | None = None) -> bytes:
    """Return git's output. Raises SeatrialError with git's own words where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_OWN}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    if index:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.splitIndex=false", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=_GIT_TIMEOUT_SECONDS)
    except OSError as error:
        problem = f"cannot start git: {error.strerror}"
    except subprocess.TimeoutExpired:
        problem = f"git did not answer within {_GIT_TIMEOUT_SECONDS} s"
    else:
        if done.returncode == 0:
            return done.stdout
        problem = done.stderr.decode(errors="replace").strip() or f"git ended with {done.returncode}"
    raise SeatrialError(f"cannot tell what differs from the commit: {problem}", file=root)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
