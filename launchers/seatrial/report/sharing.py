"""Opens a run folder to a unix group, to read and no more; refuses where a secret would be read, too."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.report import secrets
from seatrial.run import records, sharing
from seatrial.run.layout import RunFolder

# Numbers: no text stands there, and they may be terabytes.
_NOT_LOOKED_THROUGH = ("checkpoints", "data_cache")

_Entries = Sequence[tuple[Path, os.stat_result]]


def share(folder: RunFolder, group: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Let ``group`` read the run in ``folder``, and what it writes from now on; return sentences about what was done.

    ``environment``: where values of secrets are looked up, by default this process's. Raises SeatrialError, and has
    changed nothing then: no such group, or one that this user is not in; a folder or file of somebody else; a spec that
    cannot be read; a value of a secret in a file that would be opened. Where the file system fails in the middle, the
    run folder itself is as it was: it is changed last.
    """
    environment = dict(os.environ) if environment is None else environment  # a plain one takes any name
    number = _group(group)
    found = _owned(folder)
    unknown = _no_secrets(folder, found, environment)
    changed = _open(folder, found, number)
    _open(folder, _entries(folder), number)  # what the run has made meanwhile
    return list(_sentences(folder, group, number, changed, unknown))


def _group(name: str) -> int:
    own = {*os.getgroups(), os.getegid()}
    try:
        found = grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise _no_group("no such group", name, own) from None
    if found not in own and os.geteuid() != 0:
        raise _no_group("you are not in this group", name, own)
    return found


def _no_group(message: str, name: str, own: set[int]) -> SeatrialError:
    names = sorted(_group_name(number) for number in own)
    near = did_you_mean(name, names)
    fix = f"{near} " if near else ""
    return SeatrialError(
        message, key="--group", value=name, rule="a unix group that you are in", fix=f"{fix}yours: {', '.join(names)}"
    )  # fmt: skip


def _entries(folder: RunFolder) -> _Entries:
    try:
        return list(sharing.entries(folder.path))
    except OSError as error:
        raise SeatrialError(f"cannot be looked at: {error.strerror}", file=error.filename or folder.path) from error


def _owned(folder: RunFolder) -> _Entries:
    """Return all that lies in the folder. Raises SeatrialError where any of it is somebody else's."""
    found = _entries(folder)
    user = os.geteuid()
    for path, status in reversed(found):  # the run folder itself first
        if status.st_uid != user:
            raise SeatrialError(
                f"belongs to {_user_name(status.st_uid)}", file=path, rule="only its owner can share a run",
                fix=f"let {_user_name(status.st_uid)} do it",
            )  # fmt: skip
    return found


def _no_secrets(folder: RunFolder, found: _Entries, environment: Mapping[str, str]) -> list[str]:
    """Look for secrets in what would be opened; return the variables whose values nobody here knows."""
    spec = records.read_object(folder.spec)
    profile = spec.get("profile") if spec is not None else None
    if not isinstance(profile, dict):
        raise SeatrialError(
            "the spec cannot be read: which variables hold secrets is not known", file=folder.spec,
            rule="a run is shared only after a look for secrets",
        )  # fmt: skip
    values = secrets.secrets_of(profile, environment)
    files = [
        path for path, status in found
        if stat.S_ISREG(status.st_mode) and not sharing.is_kept_closed(path, folder.path)
        and not set(path.relative_to(folder.path).parts[:-1]) & {*_NOT_LOOKED_THROUGH}
    ]  # fmt: skip
    try:
        hit = secrets.find(files, values)
    except OSError as error:
        raise SeatrialError(f"cannot be looked through: {error.strerror}", file=error.filename) from error
    if hit is not None:
        path, name = hit
        raise SeatrialError(
            f"holds the value of {name}", file=path, rule="no secret lies in a run folder that others may read",
            fix=f"take it out of the file, and have a new {name} made; what is no secret belongs into profile.env.set",
        )  # fmt: skip
    return [name for name in secrets.named_by(profile) if not environment.get(name)]


def _open(folder: RunFolder, found: _Entries, group: int) -> int:
    """Set group and mode of all entries, the run folder last; return how many were changed."""
    changed = 0
    for path, status in found:
        close = sharing.is_kept_closed(path, folder.path)
        mode = sharing.closed(status.st_mode) if close else sharing.opened(status.st_mode)
        try:
            changed += sharing.set_access(path, status, status.st_gid if close else group, mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SeatrialError(
                f"cannot be given to the group: {error.strerror}", file=path,
                rule="the run folder itself is opened last",
            ) from error  # fmt: skip
    return changed


def _sentences(folder: RunFolder, group: str, number: int, changed: int, unknown: Sequence[str]) -> Iterator[str]:
    state = "may now read" if changed else "could read already"
    yield f"group {group} {state} {folder.path}, and what the run writes there; nobody but you can write"
    kept = [name for name in sharing.KEPT_CLOSED if (folder.path / name).exists()]
    if kept:
        yield f"yours alone as before: {', '.join(kept)}"
    if unknown:
        yield f"not set here, so their values could not be looked for in the files: {', '.join(unknown)}"
    for parent, only, word in sharing.closed_to(number, folder.path):
        who = f"group {group} cannot enter" if only is None else f"only group {_group_name(only)} can enter"
        yield f"{who} {parent}: chmod {word} {parent} lets {group} pass"


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
