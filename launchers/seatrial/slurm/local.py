"""Submission on this machine, through submitit's local executor."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import submitit

_NO_LIMIT_MINUTES = 10 * 365 * 24 * 60  # submitit knows no job without a limit


def submit_local(run_folder: Path, minutes: int | None) -> submitit.Job[None]:
    """Start the supervisor of ``run_folder`` as a submitit job with a limit of ``minutes``, None for none; return it.

    The job goes on when this process ends; Ctrl-C here does not reach it, nor the end of the terminal.
    """
    import submitit

    from seatrial.supervise.main import job

    folder = run_folder / "submitit"
    folder.mkdir(mode=0o700, exist_ok=True)
    executor = submitit.LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=minutes or _NO_LIMIT_MINUTES, stderr_to_stdout=True)
    with _own_session(), _home_is_this_package(), _own_output(folder / "controller.log"):
        return executor.submit(job, str(run_folder))


@contextlib.contextmanager
def _own_session() -> Iterator[None]:
    """Have children started inside ignore the terminal's Ctrl-C and its end (ignored signals stay so across exec)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _own_output(log: Path) -> Iterator[None]:
    """Have children started inside write to ``log``: one that kept our output open would keep a pipe waiting."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        with log.open("ab") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


@contextlib.contextmanager
def _home_is_this_package() -> Iterator[None]:
    """Let the child import the same seatrial: it unpickles the supervisor by reference."""
    root = str(Path(__file__).resolve().parents[2])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = root + (os.pathsep + before if before else "")
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
