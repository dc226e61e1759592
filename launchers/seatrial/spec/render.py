"""What `seatrial render` prints: the resolved fields, the diff against the recipe, the argument list. Pure."""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml

from seatrial.spec.arguments import arguments
from seatrial.spec.runspec import RunSpec


def as_data(spec: RunSpec) -> dict[str, Any]:
    """Return the spec, its changes and its arguments as plain data."""
    return spec.to_json() | {"changes": changes(spec), "arguments": arguments(spec)}


def changes(spec: RunSpec) -> list[dict[str, Any]]:
    """Return every field that kind, rehearsal, site or command line changed: key, recipe's value, value, source."""
    return [
        {
            "key": key,
            "recipe": field.recipe_value,
            "value": field.value,
            "by": field.owner,
            "source": field.source,
        }
        for key, field in spec.fields.items()
        if field.changed
    ]


def render(spec: RunSpec, form: str) -> str:
    """Return the text for ``form``: yaml, json or args (one a line, shell-quoted)."""
    if form == "json":
        return json.dumps(as_data(spec), indent=2) + "\n"
    if form == "args":
        lines = map(shlex.quote, spec.bridge["overrides"]) if spec.bridge else _argument_lines(arguments(spec))
        return "\n".join(lines) + "\n"
    return _yaml(spec)


def _argument_lines(words: list[str]) -> list[str]:
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [" ".join(line) for line in lines]


def _yaml(spec: RunSpec) -> str:
    """Return the resolved config with each field's source in a comment, then the changes and the arguments."""
    head = {
        "recipe": spec.recipe, "kind": spec.kind, "rehearsal": spec.rehearsal, "world_size": spec.world_size,
        "megatron_core": spec.megatron_core, "hash": spec.content_hash, "gate": dict(spec.gate),
    }  # fmt: skip
    parts = [
        _dump(head),
        _dump({"profile": dict(spec.profile)}),
        _dump({"environment": dict(spec.environment)}),
    ]
    section = ""
    lines = ["fields:"]
    for full, field in spec.fields.items():
        place, _, key = full.partition(".")
        if place != section:
            section = place
            lines.append(f"  {section}:")
        lines.append(f"    {key}: {_scalar(field.value)}  # {field.owner}: {field.source}")
    lines.append("changes:" if any(f.changed for f in spec.fields.values()) else "changes: {}")
    lines += [
        f"  {c['key']}: {{recipe: {_scalar(c['recipe'])}, value: {_scalar(c['value'])}}}  # {c['by']}: {c['source']}"
        for c in changes(spec)
    ]
    told = {"bridge": dict(spec.bridge)} if spec.bridge else {"arguments": _argument_lines(arguments(spec))}
    return "".join(parts) + "\n".join(lines) + "\n" + _dump(told)


def _dump(data: Any) -> str:
    return str(yaml.safe_dump(data, sort_keys=False, width=10_000, allow_unicode=True))


def _scalar(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("\n").removesuffix("\n...")
