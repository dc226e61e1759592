"""One supervisor a run folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Optional

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder
from seatrial.supervise import exit_codes
from seatrial.supervise.owner import Owner

_POLL_SECONDS = 0.3
# A file system that knows no locks, as shared ones may: there the job's singleton dependency has to do.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class Busy(SeatrialError):
    """Another supervisor is at work in the run folder."""

    exit_code = exit_codes.BUSY


@contextlib.contextmanager
def only_supervisor(folder: RunFolder, owner: Optional[Owner], patience_seconds: float) -> Iterator[None]:
    """Hold the run folder. The kernel lets go when this process dies. Raises Busy where another one holds it.

    Where the other one is of an earlier start of the job, it is told to go and waited for; a lock that a dead host has
    left on a shared file system never goes, so after ``patience_seconds`` the claim alone has to do.
    """
    handle = os.open(folder.path / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        held = _lock(handle)
        if not held and (owner is None or not owner.may_replace()):
            raise Busy("another supervisor is at work in this run folder", file=folder.path)
        if owner is not None:
            owner.claim()
        deadline = time.monotonic() + patience_seconds
        while not held and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            held = _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True
