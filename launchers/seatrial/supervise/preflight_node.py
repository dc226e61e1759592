"""One node's part of the preflight: ``python -I preflight_node.py SETTINGS_JSON``, by path, one task a node.

It prints a line for each check as it ends, and a last one with its time. Lines are short: srun may mix the lines of
several nodes where they are longer than 1024 bytes. A check that does not end in its time is named, and left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MARK = "SEATRIAL-PREFLIGHT "
_LONGEST = 900  # bytes of a line
_GRACE_SECONDS = 1.0  # for a check to say itself that its time is over


class Node:
    """Makes the checks, each in a thread of its own; those of the site one after another, as they may measure."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._end = time.monotonic() + float(settings["seconds"])
        self._threads: list[tuple[Sequence[str], threading.Thread]] = []
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Make all checks and tell of each; return when the time is over, whatever still hangs."""
        from seatrial.supervise import preflight_checks as checks

        for name, make in checks.GPU_CHECKS.items():
            if self._settings["device"] == "cuda":
                self._start([name], self._one, name, make)
            else:
                self._tell(name, checks.SKIPPED, "a CPU rehearsal")
        for name, make in checks.HOST_CHECKS.items():
            self._start([name], self._one, name, make)
        self._start(list(self._settings["commands"]), self._of_the_site)
        for names, thread in self._threads:
            thread.join(max(0.0, self._end + _GRACE_SECONDS - time.monotonic()))
            for name in names if thread.is_alive() else ():
                self._tell(name, checks.FAILED, f"it did not end within {self._settings['seconds']:.0f} s")

    def _start(self, names: Sequence[str], work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._threads.append((names, thread))

    def _one(self, name: str, make: Callable[[Mapping[str, Any], float], Any]) -> None:
        try:
            state, why = make(self._settings, max(1.0, self._end - time.monotonic()))
        except Exception as error:  # a mistake of ours is no fault of the node
            state, why = "skipped", f"the check broke: {type(error).__name__}: {error}"
        self._tell(name, state, why)

    def _of_the_site(self) -> None:
        from seatrial.supervise.preflight_checks import site

        commands = list(self._settings["commands"].items())
        for position, (name, words) in enumerate(commands):
            share = max(1.0, (self._end - time.monotonic()) / (len(commands) - position))
            self._tell(name, *site(words, self._settings["folder"], share))

    def _tell(self, name: str, state: str, why: str) -> None:
        with self._lock:
            if name not in self._told:
                self._told.add(name)
                say(check=name, state=state, why=why)


def say(**told: Any) -> None:
    """Print one line, in one write."""
    with contextlib.suppress(OSError):
        os.write(1, encoded(os.environ.get("SLURMD_NODENAME") or platform.node(), told))


def encoded(node: str, told: Mapping[str, Any]) -> bytes:
    """Return the line: the mark, and JSON of at most 900 bytes, for which ``why`` is shortened."""
    document = {"node": node, **told}
    while True:
        line = (MARK + json.dumps(document) + "\n").encode()
        why = document.get("why")
        if len(line) <= _LONGEST or not why:
            return line
        document["why"] = why[: len(why) * 3 // 4].rstrip("…") + "…" if len(why) > 4 else ""


def main(arguments: Sequence[str]) -> None:
    """Run and end at once: a thread that waits for a file system cannot be ended."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    Node(json.loads(arguments[0])).run()
    say(time=time.time())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
