"""Read and write Megatron's indexed data: ``<prefix>.idx`` and ``<prefix>.bin``. Standard library only.

The layout is Megatron-Core's (``megatron/core/datasets/indexed_dataset.py``), little-endian::

    9 bytes  magic "MMIDIDX\\0\\0"      8 bytes  version, 1
    1 byte   token type code           8 bytes  sequences, n
    8 bytes  document boundaries, d    n x i4   tokens of each sequence
    n x i8   byte offset of each sequence in .bin
    d x i8   sequence index of each document boundary: 0 first, n last
    n x i1   modes, in multimodal data only

Byte offsets are running sums: the tokens of any range of sequences cost two reads, whatever the file's size.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from seatrial.errors import SeatrialError

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
# code -> (name, bytes per token)
TOKEN_TYPES = {
    1: ("uint8", 1),
    2: ("int8", 1),
    3: ("int16", 2),
    4: ("int32", 4),
    5: ("int64", 8),
    6: ("float64", 8),
    7: ("float32", 4),
    8: ("uint16", 2),
}
# Below this, every sequence's length is held against the offsets; above it, the ends only (it costs seconds).
FULLY_VERIFIED_SEQUENCES = 1_000_000
_REMOTE = ("s3://", "msc://")


@dataclass(frozen=True)
class IndexSummary:
    """What an index says about its data: ``tokens`` of ``token_bytes`` bytes each, in ``sequences``."""

    prefix: str
    dtype: str
    token_bytes: int
    sequences: int
    documents: int
    tokens: int
    bin_bytes: int

    @property
    def expected_bin_bytes(self) -> int:
        """Bytes that the index describes. A longer ``.bin`` is suspect; a shorter one is refused."""
        return self.tokens * self.token_bytes


def is_remote(prefix: str) -> bool:
    """Tell whether ``prefix`` names an object store, which only Megatron itself can read."""
    return prefix.startswith(_REMOTE)


def read_index(prefix: str) -> IndexSummary:
    """Read and verify ``<prefix>.idx`` against its own rules and against the size of ``<prefix>.bin``.

    Raises SeatrialError, naming file and broken rule, where a file is missing, unreadable, short or corrupt.
    """
    index, data = Path(prefix + ".idx"), Path(prefix + ".bin")
    for path in (index, data):
        if not path.is_file():
            raise SeatrialError(
                "data file not found",
                file=path,
                rule="a data prefix stands for two files, <prefix>.idx and <prefix>.bin",
                fix="give the path without its ending; it is read on this machine and on the compute nodes",
            )
    try:
        bin_bytes = data.stat().st_size
        with data.open("rb"), index.open("rb") as stream:
            return _verified(prefix, stream, index, bin_bytes)
    except OSError as error:
        raise SeatrialError(f"cannot read the data: {error.strerror}", file=error.filename or index) from error


def tokens_between(summary: IndexSummary, begin: int, end: int) -> int:
    """Return the tokens of sequences ``begin`` .. ``end - 1``."""
    with Path(summary.prefix + ".idx").open("rb") as stream:
        first, last = (_offset(stream, summary, at) for at in (begin, max(begin, end)))
    return (last - first) // summary.token_bytes


def token_ids(summary: IndexSummary) -> array[int]:
    """Return all tokens of a small integer-typed ``.bin`` (it is loaded whole)."""
    codes = {"uint8": "B", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
    return _array(codes[summary.dtype], Path(summary.prefix + ".bin").read_bytes())


def encode_index(lengths: Iterable[int], token_code: int) -> bytes:
    """Return an index of one sequence per document, for sequences of ``lengths`` tokens."""
    tokens = array("i", lengths)
    size = TOKEN_TYPES[token_code][1]
    offsets = array("q", [0, *accumulate(n * size for n in tokens)])[: len(tokens)]
    boundaries = array("q", range(len(tokens) + 1))
    head = HEADER.pack(MAGIC, 1, token_code, len(tokens), len(boundaries))
    return head + b"".join(little_endian(part) for part in (tokens, offsets, boundaries))


def _verified(prefix: str, stream: BinaryIO, index: Path, bin_bytes: int) -> IndexSummary:
    def demand(holds: bool, message: str, rule: str) -> None:
        if not holds:
            raise SeatrialError(message, file=index, rule=rule, fix="build the data again, or copy both files again")

    size = os.fstat(stream.fileno()).st_size
    head = stream.read(HEADER.size)
    demand(head.startswith(MAGIC), "not a Megatron index", f"the file starts with {MAGIC!r}")
    demand(len(head) == HEADER.size, "the index is cut short", f"its header has {HEADER.size} bytes")
    _, version, code, sequences, boundaries = HEADER.unpack(head)
    demand(version == 1, f"index version {version}", "Megatron-Core reads version 1")
    demand(code in TOKEN_TYPES, f"token type code {code}", "the code is one of " + str(sorted(TOKEN_TYPES)))
    body = HEADER.size + 12 * sequences + 8 * boundaries
    demand(size >= body, f"the index is cut short: {size} bytes", f"its header asks for {body} bytes")
    demand(
        size in (body, body + sequences),
        f"the index is {size} bytes long",
        f"its header asks for {body} bytes, or {body + sequences} in multimodal data",
    )
    demand(boundaries > 0, "no document boundaries", "the boundaries start with 0 and end with the sequences")
    dtype, token_bytes = TOKEN_TYPES[code]
    tokens = 0
    if sequences:
        last_length = _read(stream, HEADER.size + 4 * (sequences - 1), "<i")
        last_offset = _read(stream, HEADER.size + 4 * sequences + 8 * (sequences - 1), "<q")
        tokens = last_offset // token_bytes + last_length
        demand(last_length >= 0 and last_offset >= 0, "a negative length or offset", "both count from 0")
    last_boundary = _read(stream, body - 8, "<q")
    demand(
        last_boundary == sequences,
        f"the last document ends at sequence {last_boundary}",
        f"it ends at the last of {sequences} sequences",
    )
    if sequences <= FULLY_VERIFIED_SEQUENCES:
        demand(
            all(length >= 0 and at == want for length, at, want in _walk(stream, sequences, token_bytes)),
            "lengths and offsets disagree",
            "each sequence starts where the one before it ends",
        )
    expected = tokens * token_bytes
    if bin_bytes < expected:
        raise SeatrialError(
            f"the data is cut short: {bin_bytes} bytes",
            file=prefix + ".bin",
            rule=f"{index.name} describes {expected} bytes ({tokens} tokens of type {dtype})",
            fix="copy the file again; an interrupted copy or build leaves such a file",
        )
    return IndexSummary(prefix, dtype, token_bytes, sequences, boundaries - 1, tokens, bin_bytes)


def _walk(stream: BinaryIO, sequences: int, token_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield (length, offset, offset as the lengths have it) of each sequence."""
    stream.seek(HEADER.size)
    lengths = _array("i", stream.read(4 * sequences))
    offsets = _array("q", stream.read(8 * sequences))
    expected = accumulate((n * token_bytes for n in lengths), initial=0)
    return zip(lengths, offsets, expected)


def _offset(stream: BinaryIO, summary: IndexSummary, sequence: int) -> int:
    """Return the byte in ``.bin`` at which ``sequence`` starts; for the one past the last, the end."""
    if not 0 <= sequence <= summary.sequences:
        raise IndexError(f"sequence {sequence} of {summary.sequences}")
    if sequence == summary.sequences:
        return summary.expected_bin_bytes
    return _read(stream, HEADER.size + 4 * summary.sequences + 8 * sequence, "<q")


def _read(stream: BinaryIO, at: int, form: str) -> int:
    stream.seek(at)
    return int(struct.unpack(form, stream.read(struct.calcsize(form)))[0])


def _array(code: str, data: bytes) -> array[int]:
    values: array[int] = array(code, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def little_endian(values: array[int]) -> bytes:
    """Return the bytes of ``values`` as the files hold them."""
    copy = array(values.typecode, values)
    if sys.byteorder == "big":
        copy.byteswap()
    return copy.tobytes()
