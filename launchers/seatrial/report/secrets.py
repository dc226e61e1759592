"""Values that must stand in no file that is opened to others: looked for by value, told of by name only."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from seatrial.run.fields import at

_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SHORTEST = 8  # a shorter value stands anywhere by chance
_BLOCK = 1 << 20


def named_by(profile: Mapping[str, Any]) -> list[str]:
    """Return the variables that a run is given by name: their values are on no record of ours."""
    passed = at(profile, "env", "pass")
    tracker = at(profile, "wandb", "key") if at(profile, "wandb", "enabled") else None
    names = [*(passed if isinstance(passed, list) else []), at(profile, "notify", "webhook"), tracker]
    return sorted({name for name in names if isinstance(name, str) and name})


def secrets_of(profile: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Return name -> value of the variables whose values may be secret, as far as ``environment`` has them."""
    names = {*named_by(profile), *(name for name in environment if name.upper().endswith(_SUFFIXES))}
    known = {name: environment.get(name, "").strip() for name in sorted(names)}
    return {name: value for name, value in known.items() if len(value) >= _SHORTEST}


def forms(value: str) -> set[str]:
    """Return how a value may be written: as it is, within JSON, within an address."""
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        urllib.parse.quote(value, "", errors="surrogateescape"),
    }


def find(files: Iterable[Path], secrets: Mapping[str, str]) -> tuple[Path, str] | None:
    """Return the first file that holds a value, and that variable's name; None where none does. Raises OSError.

    A file that goes meanwhile is passed over. Memory is bounded whatever a file's size.
    """
    wanted = [
        (name, form.encode("utf-8", "surrogateescape")) for name, value in secrets.items() for form in forms(value)
    ]
    for path in files if wanted else ():
        try:
            with path.open("rb") as stream:
                name = _in_stream(stream, wanted)
        except FileNotFoundError:
            continue
        if name is not None:
            return path, name
    return None


def without(text: str, secrets: Mapping[str, str]) -> str:
    """Return ``text`` with every value replaced by its variable's name."""
    for name, value in secrets.items():
        for form in forms(value):
            text = text.replace(form, f"({name})")
    return text


def _in_stream(stream: BinaryIO, wanted: list[tuple[str, bytes]]) -> str | None:
    keep = max(len(form) for _, form in wanted) - 1  # so much of a value may have ended the block before
    rest = b""
    while block := stream.read(_BLOCK):
        data = rest + block
        for name, form in wanted:
            if form in data:
                return name
        rest = data[-keep:]
    return None
