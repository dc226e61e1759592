"""A rank's exit record: how it ended, written at every kind of end that the process lives to see."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from seatrial.run import records
from seatrial.run.layout import TEMPORARY, temporary_prefix

SCHEMA = 1


class ExitRecord:
    """Writes ``exit-<rank>.json`` once. ``signals`` collects the names of signals that came before."""

    def __init__(self, folder: Path, rank: int, local_rank: int) -> None:
        self.path = folder / f"exit-{rank:05d}.json"
        self.rank, self.local_rank = rank, local_rank
        self.signals: list[str] = []
        self.written = False

    def completed(self) -> None:
        """The loop returned."""
        self._write(code=0, how="completed")

    def ended(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> int:
        """An exception left the loop; returns the exit code that stands for it.

        ``SystemExit`` is the loop's own end (its code, text counts as 1), anything else code 1, a user's mistake
        the code of its class.
        """
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            self._write(code=code, how="exit", message=None if isinstance(error.code, int) else _text(error.code))
            return code
        code = int(getattr(error, "exit_code", 1))
        self._write(
            code=code,
            how="exception",
            exception=kind.__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(kind, error, trace)),
        )
        return code

    def leftover(self) -> None:
        """For ``atexit``: the interpreter ends though nobody said how."""
        self._write(code=0, how="exit", message="the interpreter ended outside the training loop")

    def _write(self, *, code: int, how: str, **details: Any) -> None:
        if self.written:
            return
        self.written = True
        record = {
            "schema": SCHEMA,
            "rank": self.rank,
            "local_rank": self.local_rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "code": code,
            "how": how,
            "exception": None,
            "message": None,
            "traceback": None,
            "signals": list(self.signals),
            "time": records.now(),
        }
        record.update(details)
        try:
            records.write_json(self.path, record)
        except OSError as error:  # a full or vanished disk must not hide how the rank ended
            print(f"[seatrial] cannot write {self.path}: {error}", flush=True)


def end_helpers() -> None:
    """Kill the data loader workers and checkpoint helpers of this process; they block SIGTERM."""
    multiprocessing = sys.modules.get("multiprocessing")
    for child in multiprocessing.active_children() if multiprocessing is not None else ():
        child.kill()
        child.join()


def own_temporary_folder(run_id: str, rank: int) -> None:
    """Give this rank and its helpers a temporary folder of their own, which goes when the rank ends.

    A helper that is ended by ``end_helpers`` does not tidy up after itself. What an earlier attempt's rank, killed
    outright, left on this node goes now.
    """
    prefix = f"{temporary_prefix(run_id)}{rank}-"
    for leftover in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    tempfile.tempdir = tempfile.mkdtemp(prefix=prefix)
    os.environ["TMPDIR"] = tempfile.tempdir
    atexit.register(_remove_temporary_folder)


def _remove_temporary_folder() -> None:
    folder = tempfile.tempdir
    if isinstance(folder, str) and Path(folder).name.startswith(TEMPORARY):
        shutil.rmtree(folder, ignore_errors=True)


def take_down() -> None:
    """End the process groups after a good end. Left to the interpreter's own end, gloo's threads may still run when
    their pool is taken down, and the rank aborts."""
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def leave(code: int) -> NoReturn:
    """End the process with ``code``.

    A failed rank ends at once: the interpreter's own way out destroys process groups, which can wait for peers
    that will not answer, and the supervisor waits for this end before it ends the others.
    """
    end_helpers()
    if code == 0:
        sys.exit(0)
    sys.stdout.flush()
    sys.stderr.flush()
    _remove_temporary_folder()
    os._exit(code)


def _text(code: object) -> str | None:
    return None if code is None else str(code)
