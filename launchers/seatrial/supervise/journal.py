"""The supervisor's pen: events, step records and the batch log. A full disk delays records; it never loses them."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from seatrial.run.layout import RunFolder
from seatrial.run.records import SCHEMA, append_line, now

_POLL_SECONDS = 0.2


class Journal:
    """Appends to events.jsonl and metrics.jsonl in the order given. Never raises for what the disk does."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.listener: Optional[Callable[[Mapping[str, Any]], None]] = None  # hears every event; must not raise
        self._waiting: deque[tuple[Path, dict[str, Any]]] = deque()
        self._complained = False
        self._lock = threading.RLock()  # checkpoints are deleted, and told of, in a thread of its own

    def event(self, event: str, /, **details: Any) -> None:
        """Record that something happened, now. Details named schema, time or event give way to the event's own."""
        head = {"schema": SCHEMA, "time": now(), "event": event}
        record = {**head, **details, **head}
        self._append(self._folder.events, record)
        if self.listener is not None:
            self.listener(record)

    def step(self, record: dict[str, Any]) -> None:
        """Record one training step."""
        self._append(self._folder.metrics, record)

    def say(self, text: str) -> None:
        """Print a line to the batch log. A closed or full one is no reason to end a run."""
        try:
            print(f"[seatrial {now()}] {text}", flush=True)
        except (OSError, ValueError):
            return

    def flush(self) -> bool:
        """Write what is waiting; return whether all of it is on disk."""
        with self._lock:
            while self._waiting:
                path, record = self._waiting[0]
                try:
                    append_line(path, record)
                except OSError as error:
                    if not self._complained:
                        self.say(f"cannot write {path.name}, will go on trying: {error}")
                    self._complained = True
                    return False
                self._waiting.popleft()
            self._complained = False
            return True

    def close(self, patience_seconds: float = 5.0) -> None:
        """Write what is waiting, or after ``patience_seconds`` print it to the batch log, the last place left."""
        deadline = time.monotonic() + patience_seconds
        while not self.flush():
            if time.monotonic() > deadline:
                for path, record in self._waiting:
                    self.say(f"not written to {path.name}: {json.dumps(record)}")
                self._waiting.clear()
                return
            time.sleep(_POLL_SECONDS)

    def _append(self, path: Path, record: dict[str, Any]) -> None:
        with self._lock:
            self._waiting.append((path, record))
            self.flush()
