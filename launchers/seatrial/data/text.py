"""Real English text for rehearsals, built once from Python's own help topics. Standard library only.

Byte-level: token ids 0-255 are the bytes of the UTF-8 text, 256 ends a document (``NullTokenizer`` with
``vocab_size`` 257 takes the last id for that). 434,216 tokens on Python 3.9, 492,727 on 3.12, in some 700
documents.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from array import array
from functools import lru_cache
from pathlib import Path

from seatrial.data.indexed import encode_index, little_endian
from seatrial.errors import SeatrialError

END_OF_DOCUMENT = 256
VOCABULARY = 257
_UINT16 = 8
# A document is cut at the first paragraph end past SHORTEST bytes, and within a paragraph at LONGEST.
SHORTEST, LONGEST = 512, 2000


def prefix(folder: str | Path) -> str:
    """Return the prefix that the text has in ``folder`` (``~`` is expanded), written or not.

    Its name carries a hash of the content, since the topics differ between Python versions.
    """
    name = "help-topics-" + hashlib.sha256(b"".join(_content())).hexdigest()[:12]
    return str(Path(folder).expanduser().absolute() / name)


def ensure_text(folder: str | Path) -> str:
    """Return ``prefix(folder)``, writing the two files first where they are missing or damaged.

    They are written aside and renamed: two processes may build at once. Raises SeatrialError if it cannot.
    """
    made = prefix(folder)
    # The index comes last: a reader that finds it finds the data too.
    for path, content in zip((Path(f"{made}.bin"), Path(f"{made}.idx")), _content()):
        try:
            if not (path.is_file() and path.read_bytes() == content):
                _write_whole(path, content)
        except OSError as error:
            raise SeatrialError(
                f"cannot write the rehearsal's text: {error.strerror}",
                file=path,
                fix="set profile.paths.data to a folder you may write to",
            ) from error
    return made


def documents() -> list[bytes]:
    """Return the documents, without their end marks, in an order that looks shuffled and is always the same.

    Sorting by hash spreads the topics evenly over any split and needs no random generator.
    """
    from pydoc_data.topics import topics  # half a megabyte: only where a rehearsal needs it

    cut = [part for name in sorted(topics) for part in _cut(topics[name].strip().encode())]
    return sorted(cut, key=lambda part: hashlib.sha256(part).digest())


def _cut(text: bytes) -> list[bytes]:
    """Cut ``text`` at paragraph ends into parts of SHORTEST to LONGEST bytes (the last may be shorter)."""
    parts, current = [], b""
    for paragraph in text.split(b"\n\n"):
        if current and len(current) + len(paragraph) + 2 > LONGEST:
            parts.append(current)
            current = b""
        current = current + b"\n\n" + paragraph if current else paragraph
        while len(current) > LONGEST:
            parts.append(current[:LONGEST])
            current = current[LONGEST:]
        if len(current) >= SHORTEST:
            parts.append(current)
            current = b""
    return [*parts, current] if current else parts


@lru_cache(maxsize=1)
def _content() -> tuple[bytes, bytes]:
    """Return the contents of ``.bin`` and ``.idx``."""
    tokens, lengths = array("H"), []
    for text in documents():
        tokens.extend(text)
        tokens.append(END_OF_DOCUMENT)
        lengths.append(len(text) + 1)
    return little_endian(tokens), encode_index(lengths, _UINT16)


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink()
        raise
