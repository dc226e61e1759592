"""Records on disk: whole JSON documents and append-only JSON lines. Standard library, Python 3.9 or newer.

A document is written aside and renamed; a line is one append. Either survives a crash at any byte: a reader sees the
old document or the new one, and skips a torn last line. Non-finite numbers are the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional, Union

from seatrial.run import sharing

SCHEMA = 1


def now() -> str:
    """Return the time as ISO 8601 in UTC, to the microsecond."""
    return iso(time.time())


def iso(seconds: float) -> str:
    """Return a time (seconds since 1970) as ``now`` writes it."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")


def encode_float(value: Optional[float]) -> Union[float, str, None]:
    """Return ``value`` as JSON can hold it."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def decode_float(value: Union[float, str, None]) -> Optional[float]:
    """Return what ``encode_float`` was given."""
    return None if value is None else float(value)


def write_json(path: Path, data: Any) -> None:
    """Write a whole document: a reader never sees a part of it, nor loses the one before.

    Its mode is 0600, in a folder that is shared 0640.
    """
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            json.dump(data, stream, indent=1, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        Path(aside).chmod(sharing.file_mode(path.parent))
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink()
        raise


def append_line(path: Path, data: Any) -> None:
    """Append one JSON line in one write. A torn line left by a crash is closed first, so that it spoils no other.

    Numbers that JSON does not have are encoded wherever they stand: no record is refused for what it says.
    """
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    line = text.encode() + b"\n"
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(handle).st_size
        if not size and sharing.is_shared(path.parent):
            os.fchmod(handle, sharing.SHARED_FILE)
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(handle, line) :]
    finally:
        os.close(handle)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return encode_float(data) if isinstance(data, float) else data


def append_event(path: Path, event: str, /, **details: Any) -> None:
    """Append an event to events.jsonl."""
    append_line(path, {"schema": SCHEMA, "time": now(), "event": event, **details})


def read_lines(path: Path) -> Iterator[Any]:
    """Yield every whole JSON line; torn ones are skipped, a missing file has none."""
    yield from Tail(path).read()


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects among the lines, oldest first. Raises OSError as ``read_lines`` does."""
    return [line for line in read_lines(path) if isinstance(line, dict)]


def read_object(path: Path) -> Optional[dict[str, Any]]:
    """Return a document that is a JSON object; None where there is none, or none that can be read."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def read_json(path: Path) -> Any:
    """Return a document, or None where there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


class Tail:
    """Reads a growing file of JSON lines: each call gives the lines that were finished since the last one.

    ``skipped`` counts the lines that were no JSON (torn by a crash).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0
        self._offset = 0

    def read(self) -> list[Any]:
        """Return the new records; what is not JSON (a torn line) is skipped, an unfinished last line waits."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        records = []
        for line in data[:end].splitlines():
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError):
                self.skipped += 1
        return records
