"""Asking nodes: one job step with a task on each, or a process of this host. It ends in its time."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from seatrial.supervise import preflight_node
from seatrial.supervise.ask import ask, step_id
from seatrial.supervise.preflight_judge import Heard, all_answered, was_reached
from seatrial.supervise.ranks import kill_group
from seatrial.supervise.step import beside_words

PROGRAM = Path(preflight_node.__file__).resolve()
_POLL_SECONDS = 0.02
_END_SECONDS = 5.0  # for srun to end once all have answered, or once its step was killed
_TERM_SECONDS, _READ_SECONDS, _SLURM_SECONDS = 1.0, 1.0, 10.0


def srun_words(name: str, nodes: Sequence[str]) -> list[str]:
    """Return srun's own words: a task on each of ``nodes``, none of which ends another."""
    return [*beside_words(name, nodes), "--kill-on-bad-exit=0", "--wait=0", "--mpi=none"]


def program_words(python: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the words of a node's part. Its folder is not on the path, and no byte code is left in the snapshot."""
    return [python, "-I", "-B", str(PROGRAM), json.dumps(settings)]


class Step:
    """A command that prints nodes' lines: a job step where it has a ``name``, else a process of this host."""

    def __init__(
        self, words: Sequence[str], nodes: Sequence[str], environment: Mapping[str, str], name: Optional[str]
    ) -> None:
        self._words, self._nodes, self._environment, self._name = list(words), list(nodes), dict(environment), name
        self._lines: list[tuple[float, str]] = []

    def listen(self, end: float, stopped: Callable[[], bool]) -> Heard:
        """Return what is heard until all have answered, it is over, or ``end`` (time.monotonic()); then it is over."""
        began = time.time()
        try:
            process = subprocess.Popen(
                self._words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return Heard([(began, f"cannot start {self._words[0]}: {error}")], began, reached=False, in_time=False)
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        seen, answered = 0, False
        while process.poll() is None and not answered and time.monotonic() < end and not stopped():
            time.sleep(_POLL_SECONDS)
            if len(self._lines) > seen:
                seen, answered = len(self._lines), all_answered(self._lines, self._nodes)
        if answered:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        if process.poll() is None:
            lines = list(self._lines)  # what is said of tasks from now on is our doing
            begun = self._end(process)
            return Heard(lines, began, begun or was_reached(lines), answered)
        reader.join(_READ_SECONDS)
        lines = list(self._lines)
        return Heard(lines, began, was_reached(lines))

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            for line in process.stdout:
                self._lines.append((time.time(), line.decode("utf-8", "replace").rstrip("\n")))

    def _end(self, process: subprocess.Popen[bytes]) -> bool:
        """Kill what runs; return whether it is a job step that Slurm has begun."""
        step = step_id(self._name, self._environment, _SLURM_SECONDS) if self._name else None
        if step and ask(["scancel", "--signal=KILL", step], self._environment, _SLURM_SECONDS) is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        if self._name and process.poll() is None:
            process.terminate()  # srun itself reaches the nodes: it kills all tasks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TERM_SECONDS)
        kill_group(process.pid)
        process.wait()
        return step is not None
