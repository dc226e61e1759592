"""Values out of records that may be odd: what is not of the type that it should be counts as absent. Pure.

Standard library, Python 3.9 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional


def at(data: Any, *keys: str) -> Any:
    """Return what lies under ``keys``; None where anything on the way is missing or no mapping."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def text(value: Any) -> Optional[str]:
    """Return a text; None for anything else."""
    return value if isinstance(value, str) else None


def whole(value: Any) -> Optional[int]:
    """Return a whole number; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
