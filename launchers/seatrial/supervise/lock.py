"""One supervisor a run folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder
from seatrial.supervise import exit_codes

# A file system that knows no locks, as shared ones may: there the job's singleton dependency has to do.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class Busy(SeatrialError):
    """Another supervisor is at work in the run folder."""

    exit_code = exit_codes.BUSY


@contextlib.contextmanager
def only_supervisor(folder: RunFolder) -> Iterator[None]:
    """Hold the run folder. The kernel lets go when this process dies. Raises Busy where another one holds it."""
    handle = os.open(folder.path / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise Busy("another supervisor is at work in this run folder", file=folder.path) from error
        yield
    finally:
        os.close(handle)
