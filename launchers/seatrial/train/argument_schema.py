"""Write the snapshot of Megatron's command line that the login node checks recipes against.

``python -m seatrial.train.argument_schema FOLDER`` writes ``megatron-core-VERSION.json`` of the installed release;
``make schema`` does so for every release that is known, where ``seatrial.spec.schema`` reads them. A test holds the
shipped snapshot against the installed version.
"""

from __future__ import annotations

import argparse
import json
import sys
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

_KINDS = {
    "_StoreTrueAction": "store_true",
    "_StoreFalseAction": "store_false",
    "BooleanOptionalAction": "boolean",
}


def _plain(value: Any) -> Any:
    """Return a default as JSON data; an enum member is its name, as the command line takes it."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def describe(action: argparse.Action) -> dict[str, Any]:
    """Return one argument's entry: flag(s), kind, type, nargs, default and choices."""
    kind = _KINDS.get(type(action).__name__, "value")
    name = getattr(action.type, "__name__", None)
    entry: dict[str, Any] = {
        "flag": action.option_strings[0],
        "kind": kind,
        "default": _plain(action.default),
    }
    if kind == "boolean":
        entry["off"] = next(o for o in action.option_strings if o.startswith("--no-"))
    if kind == "value":
        entry["type"] = name if name in ("int", "float") else "str" if name in (None, "str") else "other"
        if action.nargs is not None:
            entry["nargs"] = action.nargs
        if action.choices:
            entry["choices"] = [_plain(c) for c in action.choices]
            if any(isinstance(c, Enum) for c in action.choices):
                entry["type"] = "str"
    return entry


def snapshot() -> dict[str, Any]:
    """Return the schema of the installed megatron-core's arguments, keyed by argparse dest."""
    from megatron.training.arguments import add_megatron_arguments

    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    add_megatron_arguments(parser)
    arguments: dict[str, Any] = {}
    for action in parser._actions:
        if action.option_strings:
            # Where two actions share a dest the first one is the primary spelling.
            arguments.setdefault(action.dest, describe(action))
    return {"megatron_core": version("megatron-core"), "arguments": dict(sorted(arguments.items()))}


def render(data: dict[str, Any]) -> str:
    """Return the snapshot as text with one argument a line, so that a version's diff can be read."""
    lines = [f"  {json.dumps(dest)}: {json.dumps(entry)}" for dest, entry in data["arguments"].items()]
    head = json.dumps(data["megatron_core"])
    return f'{{"megatron_core": {head}, "arguments": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    found = snapshot()
    (Path(sys.argv[1]) / f"megatron-core-{found['megatron_core']}.json").write_text(render(found))
