"""Megatron's own argument parser over a list, and what of the plan it has to agree with."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.errors import SeatrialError


@contextlib.contextmanager
def command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Let ``sys.argv`` be ``arguments``: Megatron's parser reads nothing else."""
    kept = sys.argv
    sys.argv = [kept[0], *arguments]
    try:
        yield
    finally:
        sys.argv = kept


def parse(arguments: Sequence[str]) -> Any:
    """Return the namespace of ``arguments``, not validated: validation asks the GPU.

    Raises:
        SeatrialError: the parser refuses an argument.
    """
    from megatron.training.arguments import parse_args

    complaint = io.StringIO()
    try:
        with command_line(arguments), contextlib.redirect_stderr(complaint):
            return parse_args()
    except SystemExit as error:
        said = complaint.getvalue().strip().splitlines()
        raise SeatrialError(
            "Megatron's parser refuses the arguments: " + (said[-1] if said else f"exit {error.code}"),
            rule="every argument is one of megatron-core's own",
        ) from error
    finally:
        sys.stderr.write(complaint.getvalue())


def set_up(arguments: Sequence[str]) -> Any:
    """Parse and validate ``arguments`` with Megatron and set its global variables; returns the namespace.

    Raises:
        AssertionError: Megatron's validation refuses a combination.
    """
    from megatron.training.arguments import parse_and_validate_args

    with command_line(arguments):
        return parse_and_validate_args()
