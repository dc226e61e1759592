"""A run folder that a unix group may read: who may do what in it, now and with what is written later.

A shared folder has mode 2750: what is made in it gets its group, and is readable to that. Nobody but the owner writes.
Standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

# What nobody needs who reads about a run. Pickles and the host's own output; the code, which may hold what was not
# committed; and the lock: whoever may open it could hold it, and keep the supervisor out.
KEPT_CLOSED = ("submitit", "code", "uncommitted.diff", "supervisor.lock")

SHARED_FILE, SHARED_FOLDER = 0o640, 0o2750
_MARK = stat.S_ISGID | stat.S_IRGRP  # a setgid folder above passes on its group alone: that makes nothing readable
_OWNER = stat.S_IRWXU


def is_shared(folder: Path) -> bool:
    """Whether a group reads what is in ``folder``. False where nobody can say."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return mode & _MARK == _MARK


def file_mode(folder: Path) -> int:
    """Return the mode of a new file in ``folder``."""
    return SHARED_FILE if is_shared(folder) else 0o600


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder: the owner's alone, or readable where the one above is. Raises OSError."""
    path.mkdir(mode=0o700, exist_ok=exist_ok)
    if is_shared(path.parent):
        path.chmod(SHARED_FOLDER)


def opened(mode: int) -> int:
    """Return the mode of what the group may read, from ``st_mode``: what the owner may, but for writing. Pure."""
    kept = mode & _OWNER
    if stat.S_ISDIR(mode):
        return kept | stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP
    return kept | stat.S_IRGRP | (stat.S_IXGRP if mode & stat.S_IXUSR else 0)


def closed(mode: int) -> int:
    """Return the mode of what stays the owner's alone. Pure."""
    return mode & _OWNER


def entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all folders and files under ``folder``, the deepest first and ``folder`` itself last, with their status.

    Links are no entries, whatever they point to; nor are sockets and the like. Of KEPT_CLOSED only the top is one.
    What goes while it is looked at is passed over. Raises OSError for what cannot be looked at.
    """
    yield from _entries(folder, top=True)


def _entries(folder: Path, *, top: bool) -> Iterator[tuple[Path, os.stat_result]]:
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(folder) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
        for entry in found:
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                path = folder / entry.name
                if stat.S_ISDIR(status.st_mode) and not (top and entry.name in KEPT_CLOSED):
                    yield from _entries(path, top=False)
                elif stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
                    yield path, status
        yield folder, folder.stat(follow_symlinks=False)


def is_kept_closed(path: Path, folder: Path) -> bool:
    """Whether ``path`` is one of KEPT_CLOSED in the run folder ``folder``. Pure."""
    return path.parent == folder and path.name in KEPT_CLOSED


def set_access(path: Path, status: os.stat_result, group: int, mode: int) -> bool:
    """Give ``path`` to ``group`` with ``mode``; return whether that changed anything. Raises OSError.

    It is what ``status`` says it was, or nothing is done: a link that took its place is not followed.
    """
    if status.st_gid == group and stat.S_IMODE(status.st_mode) == mode:
        return False
    kind = os.O_DIRECTORY if stat.S_ISDIR(status.st_mode) else 0
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | kind)
    try:
        now = os.fstat(handle)
        if (now.st_dev, now.st_ino) != (status.st_dev, status.st_ino):
            return False
        if now.st_gid != group:
            os.fchown(handle, -1, group)
        os.fchmod(handle, mode)  # after the change of group, which may take bits away
    finally:
        os.close(handle)
    return True


def closed_to(group: int, folder: Path) -> Iterator[tuple[Path, Optional[int], str]]:
    """Yield the folders above ``folder`` that ``group`` as such cannot enter: each with the other group that can (None:
    no group can), and the word for chmod that lets ``group`` pass."""
    for parent in reversed(folder.resolve().parents):
        status = parent.stat()
        if status.st_gid == group and not status.st_mode & stat.S_IXGRP:
            yield parent, None, "g+x"
        elif status.st_gid != group and not status.st_mode & stat.S_IXOTH:
            yield parent, status.st_gid if status.st_mode & stat.S_IXGRP else None, "o+x"
