"""Recipes: what is trained. YAML sections of Megatron arguments, with `extends`, `aliases` and a `rehearsal` block."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.spec import library
from seatrial.spec.engine import BLOCK, MEGATRON_CORE, Bridge, engine_named
from seatrial.spec.owners import REHEARSAL_MAY_CHANGE, RUN_OWNED
from seatrial.spec.schema import Schema
from seatrial.spec.yamlfile import YamlFile, read_yaml

SECTIONS = (
    "model", "moe", "parallel", "precision", "optimizer", "schedule", "data", "checkpoint", "evaluation", "logging",
)  # fmt: skip
_TOP_LEVEL = (
    *SECTIONS, "description", "extends", "aliases", "engine", "bridge", "env", "gate", "reference", "rehearsal",
)  # fmt: skip
GATE_KEYS = ("learning_ratio",)
RECIPE_VARIABLE = "MODEL_RECIPE_NAME"


@dataclass(frozen=True)
class Sourced:
    """A value and where it was written (``file:line``)."""

    value: Any
    source: str


@dataclass(frozen=True)
class Recipe:
    """A recipe after `extends`. ``values`` and ``rehearsal_values`` map ``section.key`` to a Sourced value."""

    name: str
    path: Path
    description: str
    aliases: tuple[str, ...]
    values: Mapping[str, Sourced]
    env: Mapping[str, str]
    gate: Mapping[str, Any]
    rehearsal_values: Mapping[str, Sourced]
    rehearsal_env: Mapping[str, str]
    rehearsal_gate: Mapping[str, Any]
    reference: Mapping[str, Any] = field(default_factory=dict)
    rehearsal_reference: Mapping[str, Any] = field(default_factory=dict)
    engine: str = MEGATRON_CORE
    bridge: Bridge = field(default_factory=Bridge)


def load_recipe(name: str | None, schema: Schema) -> Recipe:
    """Load the recipe ``name`` (a shipped name, an alias, or a path); None takes ``MODEL_RECIPE_NAME``.

    Raises SeatrialError for an unknown recipe or key, a wrong type or choice, or a key owned by someone else.
    """
    if not name:
        name = os.environ.get(RECIPE_VARIABLE)
        if not name:
            raise SeatrialError(
                "no recipe named",
                rule=f"name one on the command line or in {RECIPE_VARIABLE}",
                fix=f"one of {', '.join(recipe_names())}",
            )
    path = _find(name)
    chain = _chain(path)
    merged = _Merged(schema)
    for file in chain:
        merged.add(file)
    own = chain[-1].data
    _check_aliases(chain[-1])
    return Recipe(
        path.stem, path, str(own.get("description", "")), tuple(own.get("aliases", ())), merged.values, merged.env,
        merged.gate, merged.rehearsal_values, merged.rehearsal_env, merged.rehearsal_gate,
        merged.reference, merged.rehearsal_reference, merged.engine, merged.bridge,
    )  # fmt: skip


def _check_aliases(file: YamlFile) -> None:
    aliases = file.data.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise SeatrialError(
            "wrong value",
            file=file.path,
            line=file.line("aliases"),
            key="aliases",
            value=aliases,
            rule="a list of names",
        )


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes."""
    return library.names("recipes")


def recipe_aliases() -> dict[str, str]:
    """Return alias -> name of all shipped recipes; an alias also answers without its ``_pretrain_config`` ending."""
    aliases: dict[str, str] = {}
    for name in recipe_names():
        for alias in read_yaml(library.shipped("recipes") / f"{name}.yaml").data.get("aliases", ()):
            for spelling in (alias, alias.removesuffix("_pretrain_config")):
                if aliases.setdefault(spelling, name) != name:
                    raise SeatrialError(f"alias {spelling!r} names both {aliases[spelling]!r} and {name!r}")
    return aliases


def _find(name: str) -> Path:
    if library.is_path(name) or name in recipe_names():
        return library.find("recipes", name, what="recipe")
    aliases = recipe_aliases()
    if name in aliases:
        return library.shipped("recipes") / f"{aliases[name]}.yaml"
    known = [*recipe_names(), *aliases]
    raise SeatrialError(
        f"unknown recipe {name!r}", value=name,
        rule=f"one of {', '.join(recipe_names())}, an alias, or a YAML file's path", fix=did_you_mean(name, known),
    )  # fmt: skip


def _chain(path: Path) -> list[YamlFile]:
    """Return the files to merge, base first."""
    chain: list[YamlFile] = []
    while True:
        if any(file.path == path for file in chain):
            raise SeatrialError("extends runs in a circle", file=path, line=chain[-1].line("extends"), key="extends")
        file = read_yaml(path)
        chain.append(file)
        base = file.data.get("extends")
        if base is None:
            return chain[::-1]
        beside = path.parent / f"{base}.yaml"
        path = beside if beside.is_file() else library.shipped("recipes") / f"{base}.yaml"
        if not path.is_file():
            raise SeatrialError(
                f"cannot find the base recipe {base!r}", file=file.path, line=file.line("extends"), key="extends",
                fix=did_you_mean(str(base), [f"base/{p.stem}" for p in library.shipped("recipes").glob("base/*.yaml")]),
            )  # fmt: skip


class _Merged:
    """Collects the files of one `extends` chain, later files over earlier ones."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.values: dict[str, Sourced] = {}
        self.env: dict[str, str] = {}
        self.gate: dict[str, Any] = {}
        self.rehearsal_values: dict[str, Sourced] = {}
        self.rehearsal_env: dict[str, str] = {}
        self.rehearsal_gate: dict[str, Any] = {}
        self.reference: dict[str, Any] = {}
        self.rehearsal_reference: dict[str, Any] = {}
        self.engine, self.bridge = MEGATRON_CORE, Bridge()

    def add(self, file: YamlFile) -> None:
        _known(file, (), file.data, _TOP_LEVEL)
        self.engine = engine_named(file.data.get("engine", self.engine), file=file.path, line=file.line("engine"))
        block = _mapping(file, ("bridge",), file.data.get("bridge"))
        _known(file, ("bridge",), block, BLOCK)
        told = _mapping(file, ("bridge", "overrides"), block.get("overrides"))
        if "recipe" in block:
            self._bridge(file, ("bridge", "recipe"), block["recipe"])
        for key, value in told.items():
            self._bridge(file, ("bridge", "overrides", key), value)
        for section in SECTIONS:
            self._section(file, (section,), file.data.get(section), self.values)
        _environment(file, ("env",), file.data.get("env"), self.env)
        self.gate.update(_gate(file, ("gate",), file.data.get("gate")))
        self.reference.update(reference_block(file, ("reference",), file.data.get("reference")))
        rehearsal = _mapping(file, ("rehearsal",), file.data.get("rehearsal"))
        _known(file, ("rehearsal",), rehearsal, (*SECTIONS, "env", "gate", "reference"))
        for section in SECTIONS:
            self._section(file, ("rehearsal", section), rehearsal.get(section), self.rehearsal_values)
        _environment(file, ("rehearsal", "env"), rehearsal.get("env"), self.rehearsal_env)
        self.rehearsal_gate.update(_gate(file, ("rehearsal", "gate"), rehearsal.get("gate")))
        self.rehearsal_reference.update(reference_block(file, ("rehearsal", "reference"), rehearsal.get("reference")))

    def _bridge(self, file: YamlFile, at: tuple[str, ...], value: Any) -> None:
        self.bridge = self.bridge.with_value(str(at[-1]), value, file=file.path, line=file.line(*at))

    def _section(self, file: YamlFile, at: tuple[str, ...], data: Any, into: dict[str, Sourced]) -> None:
        for key, value in _mapping(file, at, data).items():
            here: dict[str, Any] = {"file": file.path, "line": file.line(*at, key)}
            full = f"{at[-1]}.{key}"
            if key in RUN_OWNED:
                raise SeatrialError(
                    f"{key!r} is set by the run itself, not by a recipe", key=full, fix="remove it", **here
                )
            problem = self.schema.argument(key, **here).problem(value)
            if problem:
                raise SeatrialError("wrong value", key=full, value=value, rule=problem, **here)
            if at[0] == "rehearsal" and key not in REHEARSAL_MAY_CHANGE:
                raise SeatrialError(
                    f"a rehearsal may not change {key!r}", key=full, value=value,
                    rule="it changes sizes, batch, data, tokenizer, and kernels without a CPU form, nothing else",
                    **here,
                )  # fmt: skip
            other = section_of(key, self.values)
            if other and other != at[-1]:
                raise SeatrialError(
                    f"{key!r} belongs to section {other!r}", key=full, fix=f"move it to {other!r}", **here
                )
            into[full] = Sourced(value, file.where(*at, key))


def section_of(key: str, values: Mapping[str, Any]) -> str | None:
    """Return the section in which ``values`` (keyed ``section.key``) already has ``key``."""
    return next((full.partition(".")[0] for full in values if full.partition(".")[2] == key), None)


def _mapping(file: YamlFile, at: tuple[str, ...], data: Any) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SeatrialError("must be a mapping", file=file.path, line=file.line(*at), key=".".join(at), value=data)
    return data


def _known(file: YamlFile, at: tuple[str, ...], data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            raise SeatrialError(
                f"unknown key {key!r}", file=file.path, line=file.line(*at, key), key=".".join((*at, key)),
                rule=f"one of {', '.join(known)}", fix=did_you_mean(str(key), known),
            )  # fmt: skip


def _environment(file: YamlFile, at: tuple[str, ...], data: Any, into: dict[str, str]) -> None:
    for name, value in _mapping(file, at, data).items():
        if not isinstance(value, str):
            raise SeatrialError(
                "an environment value must be text", file=file.path, line=file.line(*at, name), key=name, value=value,
                fix=f'write it in quotes: "{value}"',
            )  # fmt: skip
        into[name] = value


def _gate(file: YamlFile, at: tuple[str, ...], data: Any) -> dict[str, Any]:
    gate = _mapping(file, at, data)
    _known(file, at, gate, GATE_KEYS)
    ratio = gate.get("learning_ratio")
    if ratio is not None and (isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1):
        raise SeatrialError(
            "wrong value", file=file.path, line=file.line(*at, "learning_ratio"), key="gate.learning_ratio",
            value=ratio, rule="a number above 0 and at most 1, or null",
        )  # fmt: skip
    return gate


REFERENCE_LIMITS = {"pointwise": 0.0, "final": 0.0, "speed": 0.05}  # the least that each tolerance may be


def reference_block(file: YamlFile, at: tuple[str, ...], data: Any) -> dict[str, Any]:
    """Return a recipe's ``reference``: ``file`` (absolute, or beside the recipe) and the tolerances that it states.

    Raises SeatrialError for an unknown key, a file that is none, or a tolerance below its least.
    """
    block = _mapping(file, at, data)
    _known(file, at, block, ("file", *REFERENCE_LIMITS))
    for key, least in REFERENCE_LIMITS.items():
        value = block.get(key)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1 or value == 0
        ):
            raise SeatrialError(
                "wrong value", file=file.path, line=file.line(*at, key), key=".".join((*at, key)), value=value,
                rule=f"a share of at least {least:g} and below 1" if least else "a share above 0 and below 1",
                fix="one setting moves by 5% from run to run" if key == "speed" else None,
            )  # fmt: skip
    named = block.get("file")
    if named is None:
        return dict(block)
    path = file.path.parent / str(named)
    if not isinstance(named, str) or not path.is_file():
        raise SeatrialError(
            "no such file", file=file.path, line=file.line(*at, "file"), key=".".join((*at, "file")), value=named,
            rule="absolute, or beside the recipe", fix="seatrial reference RUN FILE writes one",
        )  # fmt: skip
    return {**block, "file": str(path.resolve())}
