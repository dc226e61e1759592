"""KEY=VALUE words in the grammar of Hydra's overrides, which Megatron-Bridge takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def words(values: Mapping[str, Any]) -> list[str]:
    """Return the words that set each key."""
    return [f"{key}={text(value)}" for key, value in values.items()]


def text(value: Any) -> str:
    """Return ``value`` in the grammar of Hydra's overrides: null, true, numbers, lists, mappings, quoted text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{text(item)}" for key, item in value.items()) + "}"
    # Quoted, so that nothing in it is read as a number, a list or an interpolation. Backslashes count as such unless a
    # quote follows.
    said = re.sub(r'(\\*)"', lambda found: found[1] * 2 + '\\"', str(value).replace("${", "\\${"))
    return '"' + re.sub(r"\\+$", lambda found: found[0] * 2, said) + '"'
