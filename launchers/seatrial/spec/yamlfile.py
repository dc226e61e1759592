"""YAML with line numbers: duplicate keys refused, YAML 1.2's booleans and numbers (``no`` is text, 1e-5 a number)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seatrial.errors import SeatrialError

KeyPath = tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema's scalars only."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag.rpartition(":")[2] in ("null", "merge")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf|\.nan)$"),
    list("-+.0123456789"),
)


def _float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: _float(node.value))


_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


@dataclass(frozen=True)
class YamlFile:
    """A parsed file: ``data`` and the line on which each key path stands."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def line(self, *keys: str) -> int | None:
        """Return the line of a key path, or of its nearest ancestor that has one."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys)

    def where(self, *keys: str) -> str:
        """Return ``file:line`` for people."""
        line = self.line(*keys)
        return f"{self.path.name}:{line}" if line else self.path.name


def read_yaml(path: Path) -> YamlFile:
    """Parse ``path``, whose top level must be a mapping with text keys.

    Raises SeatrialError for an unreadable file, bad YAML, or a key written twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SeatrialError(f"cannot read the file: {reason}", file=path) from None
    try:
        node = yaml.compose(text, Loader=_Loader)
        lines: dict[KeyPath, int] = {}
        if node is not None:
            _walk(node, (), lines, path)
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise SeatrialError(f"not YAML: {problem}", file=path, line=mark.line + 1 if mark else None) from None
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise SeatrialError("the top level must be a mapping of sections", file=path, line=1)
    return YamlFile(path, data, lines)


def parse_value(text: str) -> Any:
    """Parse the right side of ``--set key=VALUE`` as a YAML value; text that is not YAML stays text."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        return text


def _walk(node: yaml.Node, at: KeyPath, lines: dict[KeyPath, int], path: Path) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value_node in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key_node)
        line = key_node.start_mark.line + 1
        if key_node.tag not in _KEY_TAGS:
            raise SeatrialError(
                f"key {key!r} is no text", file=path, line=line, key=".".join((*at, key)), fix="write it in quotes"
            )
        if (*at, key) in lines:
            first = lines[(*at, key)]
            raise SeatrialError(
                f"key {key!r} stands twice (first on line {first})", file=path, line=line, key=".".join((*at, key)),
                fix="remove one of them",
            )  # fmt: skip
        lines[(*at, key)] = line
        _walk(value_node, (*at, key), lines, path)
