"""Deletes superseded checkpoints while the ranks train: a large one takes minutes, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from seatrial.run.retention import Pruned, prune


class Janitor:
    """``last``, ``every``: what stays (see run.retention). ``tell`` is called in the thread with what was done."""

    def __init__(self, checkpoints: Path, last: int, every: Optional[int], tell: Callable[[Pruned], None]) -> None:
        self._checkpoints, self._last, self._every, self._tell = checkpoints, last, every, tell
        self._thread: Optional[threading.Thread] = None

    def look(self) -> None:
        """Begin to tidy up, unless that is going on already."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="janitor", daemon=True)
            self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait for what is going on. What is left half done is finished by the next one."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        done = prune(self._checkpoints, self._last, self._every)
        if done.deleted or done.failed:
            self._tell(done)
