"""Kinds: the run controls that a gate or a convergence run changes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.spec import library
from seatrial.spec.owners import RUN_CONTROLS
from seatrial.spec.recipe import SECTIONS, Sourced
from seatrial.spec.schema import Schema
from seatrial.spec.yamlfile import YamlFile, read_yaml

KINDS = ("gate", "convergence")


@dataclass(frozen=True)
class KindSpec:
    """A loaded kind: values keyed ``section.key``."""

    name: str
    values: Mapping[str, Sourced]


def load_kind(name: str, schema: Schema) -> KindSpec:
    """Load ``recipes/kinds/NAME.yaml`` and, first, the kind it extends.

    Raises SeatrialError for an unknown kind, or a key that is not a run control.
    """
    if name not in KINDS:
        raise SeatrialError(f"unknown kind {name!r}", rule=f"one of {', '.join(KINDS)}", fix=did_you_mean(name, KINDS))
    file = read_yaml(library.shipped("recipes") / "kinds" / f"{name}.yaml")
    base = file.data.get("extends")
    values = dict(load_kind(base, schema).values) if base else {}
    for section, data in file.data.items():
        if section in SECTIONS:
            for key, value in data.items():
                values[f"{section}.{key}"] = _control(file, section, key, value, schema)
        elif section not in ("description", "extends"):
            raise SeatrialError(
                f"unknown key {section!r}", file=file.path, line=file.line(section), key=section,
                fix=did_you_mean(section, (*SECTIONS, "description", "extends")),
            )  # fmt: skip
    return KindSpec(name, values)


def _control(file: YamlFile, section: str, key: str, value: Any, schema: Schema) -> Sourced:
    line = file.line(section, key)
    if key not in RUN_CONTROLS:
        raise SeatrialError(
            f"a kind may not set {key!r}", file=file.path, line=line, key=f"{section}.{key}",
            rule=f"run controls only: {', '.join(sorted(RUN_CONTROLS))}", fix="set it in the recipe",
        )  # fmt: skip
    problem = schema.argument(key, file=file.path, line=line).problem(value)
    if problem:
        raise SeatrialError("wrong value", file=file.path, line=line, key=f"{section}.{key}", value=value, rule=problem)
    return Sourced(value, file.where(section, key))
