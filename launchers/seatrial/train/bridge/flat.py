"""A Megatron-Bridge ConfigContainer as one flat mapping ``section.field`` -> plain data, for tests and for people."""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Mapping
from typing import Any

_ADDRESS = re.compile(r"0x[0-9a-f]+")


def flat(config: Any) -> dict[str, Any]:
    """Return the fields of each section; a section that is none or has no fields stands under its own name."""
    found: dict[str, Any] = {}
    for section in dataclasses.fields(config):
        body = getattr(config, section.name)
        names = field_names(body)
        if not names:
            found[section.name] = plain(body)
        for name in names:
            found[f"{section.name}.{name}"] = plain(getattr(body, name, None))
    return found


def field_names(value: Any) -> list[str]:
    """Return the public fields of a dataclass instance; none for anything else."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return []
    return [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]


def plain(value: Any) -> Any:
    """Return ``value`` as JSON has it: numbers of signals, names of functions and of other objects' classes."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, int) else str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name, None)) for name in field_names(value)}
    if isinstance(value, functools.partial):
        return _ADDRESS.sub("0x", str(value))
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    said = str(value)
    return type(value).__name__ if " object at 0x" in said else said
