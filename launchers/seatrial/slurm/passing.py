"""Which of Slurm's error texts pass by themselves, and what each says about a submission. Pure; a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Passing(Enum):
    """An error that passes. ``NOT_TAKEN``: the controller was not reached, or said no for now. ``UNCLEAR``: the request
    may have been carried out before the answer was lost."""

    NOT_TAKEN = "not taken"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Row:
    """A text that Slurm prints (matched anywhere, without regard to case), and what it means."""

    text: str
    meaning: Passing


# Texts of slurm_errno.c (22.05 to 26.05), sbatch.c, and of the C library where Slurm passes errno on. The first match
# counts, so the surer reading of a text stands above the vaguer one.
PASSING: tuple[Row, ...] = (
    Row("socket timed out on send/recv operation", Passing.UNCLEAR),
    Row("zero bytes were transmitted or received", Passing.UNCLEAR),
    Row("unable to contact slurm controller (send failure)", Passing.UNCLEAR),
    Row("unable to contact slurm controller (receive failure)", Passing.UNCLEAR),
    Row("unable to contact slurm controller (shutdown failure)", Passing.UNCLEAR),
    Row("message receive failure", Passing.UNCLEAR),
    Row("message send failure", Passing.UNCLEAR),
    Row("unexpected missing socket error", Passing.UNCLEAR),
    Row("connection timed out", Passing.UNCLEAR),
    Row("connection reset by peer", Passing.UNCLEAR),
    Row("broken pipe", Passing.UNCLEAR),
    Row("transport endpoint is not connected", Passing.UNCLEAR),
    Row("unable to contact slurm controller", Passing.NOT_TAKEN),
    Row("communication connection failure", Passing.NOT_TAKEN),
    Row("connection refused", Passing.NOT_TAKEN),
    Row("slurm backup controller in standby mode", Passing.NOT_TAKEN),
    Row("controller is in standby mode", Passing.NOT_TAKEN),
    Row("rate limit exceeded, please retry momentarily", Passing.NOT_TAKEN),
    Row("too many pending rpcs", Passing.NOT_TAKEN),
    Row("unable to create job record, try again", Passing.NOT_TAKEN),
    Row("slurm temporarily unable to accept job", Passing.NOT_TAKEN),
    Row("resource temporarily unavailable", Passing.NOT_TAKEN),
    Row("job can not be altered now, try again later", Passing.NOT_TAKEN),
    Row("job update not available right now", Passing.NOT_TAKEN),
)
# slurmctld answered, with an error code of its own: whatever it is, no job was made.
_ANSWERED = re.compile(r"(batch job submission failed|allocation failure): *(.*)", re.IGNORECASE)


def passing(words: str) -> Passing | None:
    """Return what a command's error text means if it is known to pass; None for every other text."""
    low = words.lower()
    return next((row.meaning for row in PASSING if row.text in low), None)


def refused(words: str) -> bool:
    """Return whether sbatch's words say that the controller turned the job down for good."""
    answer = _ANSWERED.search(words)
    return answer is not None and passing(words) is None
