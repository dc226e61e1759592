"""The one error that a user sees. Standard library only: every room may raise it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Optional


class SeatrialError(Exception):
    """A mistake the user can mend. The command line prints it without a traceback and exits with ``exit_code``.

    ``file``, ``line``, ``key`` and ``value`` say where; ``rule`` says what should hold; ``fix`` says what to do.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: Optional[object] = None,
        line: Optional[int] = None,
        key: Optional[str] = None,
        value: Any = None,
        rule: Optional[str] = None,
        fix: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.message, self.file, self.line = message, file, line
        self.key, self.value, self.rule, self.fix = key, value, rule, fix

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        parts = [where + self.message]
        if self.key is not None:
            parts.append(f"  key:   {self.key}")
        if self.value is not None:
            parts.append(f"  value: {self.value!r}")
        if self.rule is not None:
            parts.append(f"  rule:  {self.rule}")
        if self.fix is not None:
            parts.append(f"  fix:   {self.fix}")
        return "\n".join(parts)


def did_you_mean(word: str, known: Iterable[str], *, otherwise: Optional[str] = None) -> Optional[str]:
    """Return ``did you mean 'x'?`` for the nearest of ``known``, else ``otherwise``."""
    near = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.55)
    return f"did you mean {near[0]!r}?" if near else otherwise
