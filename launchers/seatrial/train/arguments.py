"""Megatron's own argument parser over a list, and what of the plan it has to agree with."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Let ``sys.argv`` be ``arguments``: Megatron's parser reads nothing else."""
    kept = sys.argv
    sys.argv = [kept[0], *arguments]
    try:
        yield
    finally:
        sys.argv = kept


def parse(arguments: Sequence[str]) -> Any:
    """Parse and validate ``arguments`` with Megatron and set its global variables; returns the namespace.

    Raises:
        SystemExit: argparse refuses an argument (its message goes to stderr).
        AssertionError: Megatron's validation refuses a combination.
    """
    from megatron.training.arguments import parse_and_validate_args

    with command_line(arguments):
        return parse_and_validate_args()
