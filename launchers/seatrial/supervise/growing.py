"""A rank's log while it grows: what it has gained since the last look, as records."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Optional

from seatrial.judge.parse import LogParser
from seatrial.judge.records import Record

_READ = 1 << 20
_REST = 16 << 20

# What a rank prints when Slurm asks it to end: of a preemption with grace nobody else is told.
RANK_TERM = "[seatrial] SIGTERM received"
# What the loop prints of its final evaluations, while they go on.
_EVALUATING = ("Evaluating on ", "Evaluating iter ")
_OVERLAP = max(map(len, (RANK_TERM, *_EVALUATING))) - 1


class GrowingLog:
    """One log, read on from where it was left. What is no UTF-8 is replaced; a torn character waits.

    There may be thousands: one that holds nothing yet has no parser. ``offset``: how far it has been read.
    ``rank_term``: its rank was asked to end by SIGTERM. ``evaluating``: the loop's final evaluation went on, since that
    was last set to False.
    """

    __slots__ = ("_attempt", "_decoder", "_end", "_parser", "_path", "evaluating", "offset", "rank_term")

    def __init__(self, path: Path, attempt: int) -> None:
        self._path, self._attempt = path, attempt
        self._parser: Optional[LogParser] = None
        self._decoder: Optional[codecs.IncrementalDecoder] = None
        self._end, self.offset = "", 0
        self.rank_term = self.evaluating = False

    def read(self, most: int) -> list[Record]:
        """Return the records of the next ``most`` bytes."""
        found: list[Record] = []
        try:
            handle = os.open(self._path, os.O_RDONLY)
        except OSError:
            # Not there yet, or a shared file system's bad moment: the next look goes on from the same place.
            return found
        try:
            end = self.offset + most
            while self.offset < end and (data := os.pread(handle, min(_READ, end - self.offset), self.offset)):
                self.offset += len(data)
                found += self._parse(data)
        except OSError:
            return found
        finally:
            os.close(handle)
        return found

    def _parse(self, data: bytes, final: bool = False) -> list[Record]:
        if self._parser is None or self._decoder is None:
            self._parser = LogParser(self._attempt)
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._decoder.decode(data, final)
        self.rank_term = self.rank_term or _has(RANK_TERM, self._end, text)
        self.evaluating = self.evaluating or any(_has(mark, self._end, text) for mark in _EVALUATING)
        self._end = (self._end + text)[-_OVERLAP:]
        return self._parser.feed(text)

    def rest(self) -> list[Record]:
        """Return the records of all that is left, an unfinished last line's too."""
        found: list[Record] = []
        before = -1
        while before != self.offset:
            before = self.offset
            found += self.read(_REST)
        if self._parser is not None:
            found += self._parse(b"", final=True) + self._parser.close()
        return found


def _has(mark: str, before: str, text: str) -> bool:
    """Whether ``text`` brings a ``mark`` to its end, which may have begun in the text ``before``."""
    return mark in text or mark in before[-(len(mark) - 1) :] + text[: len(mark) - 1]
