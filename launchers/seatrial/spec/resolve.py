"""resolve: recipe + profile + kind + overrides -> RunSpec. Reads YAML and nothing else; changes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seatrial.data import text
from seatrial.errors import SeatrialError, did_you_mean
from seatrial.spec.bridge import overrides
from seatrial.spec.engine import MEGATRON_BRIDGE, Bridge, engine_named
from seatrial.spec.kind import load_kind
from seatrial.spec.owners import RUN_CONTROLS, RUN_OWNED
from seatrial.spec.profile import LoadedProfile, load_profile
from seatrial.spec.recipe import SECTIONS, Recipe, Sourced, load_recipe, section_of
from seatrial.spec.runspec import Field, Kind, Owner, RunSpec
from seatrial.spec.schema import Schema, load_schema
from seatrial.spec.yamlfile import parse_value

_TEXT = "{rehearsal_text}"  # in a recipe's data_path: the English text that local profiles build once
_PLACEHOLDER = re.compile(r"\{([a-z_.]+)\}")


def resolve(
    recipe: str | None, profile: str, kind: str | None = None, settings: Sequence[tuple[str, str]] = ()
) -> RunSpec:
    """Resolve a run. ``settings`` are the (key, value text) pairs of ``--set``; ``kind`` None is the recipe alone.

    Order, later wins: recipe, kind, rehearsal block (on a CPU profile), site file, command line.
    Raises SeatrialError naming file, line, key and the nearest known key for anything it does not understand.
    """
    schema = load_schema()
    parsed = [(key, parse_value(text)) for key, text in settings]
    loaded = load_profile(
        profile,
        [(key.removeprefix("profile."), value) for key, value in parsed if key.startswith("profile.")],
    )
    fields = _Fields(load_recipe(recipe, schema), schema)
    if kind:
        for full, item in load_kind(kind, schema).values.items():
            fields.put(full, item, "kind")
    rehearsal = loaded.data["device"] == "cpu"
    if rehearsal:
        for full, item in fields.recipe.rehearsal_values.items():
            fields.put(full, item, "rehearsal")
    for full, (value, source) in loaded.site_values.items():
        fields.override(full, value, source)
    chosen, bridge = fields.recipe.engine, fields.recipe.bridge
    for full, value in parsed:
        if full == "engine":
            chosen = engine_named(value, file="command line")
        elif full.startswith("bridge."):
            bridge = bridge.with_value(full.removeprefix("bridge."), value, file="command line")
        elif not full.startswith("profile."):
            fields.override(full, value, "command line")
    fields.place_text(loaded.data["paths"]["data"])
    release = load_schema(loaded.data["megatron_core"])
    fields.fit(release)
    recipe_env = dict(fields.recipe.env) | (dict(fields.recipe.rehearsal_env) if rehearsal else {})
    return RunSpec(
        recipe=fields.recipe.name,
        recipe_file=fields.recipe.path.name,
        kind=_kind_name(kind),
        profile=loaded.data,
        fields=dict(sorted(fields.fields.items(), key=lambda item: SECTIONS.index(item[0].partition(".")[0]))),
        environment=_environment(recipe_env, loaded, fields.fields),
        gate=_gate(fields, kind, rehearsal),
        megatron_core=release.version,
        profile_sources=loaded.sources,
        reference=_reference(fields, rehearsal),
        bridge=_bridge(fields, bridge) if chosen == MEGATRON_BRIDGE else None,
    )


def _bridge(fields: _Fields, bridge: Bridge) -> dict[str, Any]:
    """Return what the ranks are told where Megatron-Bridge's loop runs in them."""
    recipe = fields.recipe
    if bridge.recipe is None:
        raise SeatrialError(
            "no recipe of Megatron-Bridge named", file=recipe.path, key="bridge.recipe",
            rule="the name that megatron.bridge.recipes exports it under", fix="--set bridge.recipe=NAME",
        )  # fmt: skip
    return {"recipe": bridge.recipe, "overrides": overrides(fields.fields, bridge.overrides)}


def _kind_name(kind: str | None) -> Kind:
    return "gate" if kind == "gate" else "convergence"


class _Fields:
    """The fields while they are put together, each with its source and owner."""

    def __init__(self, recipe: Recipe, schema: Schema) -> None:
        self.recipe, self.schema = recipe, schema
        self.fields: dict[str, Field] = {
            full: Field(item.value, "recipe", item.source) for full, item in recipe.values.items()
        }

    def put(self, full: str, item: Sourced, owner: Owner) -> None:
        section, _, key = full.partition(".")
        placed = section_of(key, self.fields)
        if placed and placed != section:
            raise SeatrialError(
                f"{key!r} belongs to section {placed!r}",
                file=item.source,
                key=full,
                fix=f"write {placed}.{key}",
            )
        before = self.fields.get(full)
        original = self.recipe.values[full].value if full in self.recipe.values else None
        if before is not None and before.value == item.value and type(before.value) is type(item.value):
            return
        self.fields[full] = Field(item.value, owner, item.source, original, changed=True)

    def place_text(self, folder: str) -> None:
        """Fill the path of the rehearsal's text in, where the data asks for it."""
        field = self.fields.get("data.data_path")
        if field and field.value and _TEXT in field.value:
            prefix = text.prefix(folder)
            value = [prefix if item == _TEXT else item for item in field.value]
            self.fields["data.data_path"] = replace(field, value=value)

    def fit(self, release: Schema) -> None:
        """Raise SeatrialError for the first field that the megatron-core of the image does not know or take."""
        if release.version == self.schema.version:
            return
        values = {key: value for key, value in _by_key(self.fields).items() if value is not None}
        for full, field in self.fields.items():
            problem = _unfit(full.partition(".")[2], values, release)
            if problem:
                raise SeatrialError(
                    f"megatron-core {release.version} does not take this", file=field.source, key=full,
                    value=field.value, rule=problem,
                    fix=f"leave it out, or use an image with {self.schema.version} (profile.megatron_core)",
                )  # fmt: skip

    def override(self, full: str, value: Any, source: str) -> None:
        """Apply a value from the command line or the site file; the owner stays the field's own."""
        section, dot, key = full.partition(".")
        if not dot or section not in SECTIONS:
            known = [*self.fields, *(f"{s}." for s in SECTIONS), "profile.", "engine", "bridge.recipe"]
            raise SeatrialError(
                f"unknown key {full!r}", file=source, key=full, value=value,
                rule=f"section.key, with a section of {', '.join(SECTIONS)}, or profile.key",
                fix=did_you_mean(full, known) or _section_hint(full, self.fields),
            )  # fmt: skip
        if key in RUN_OWNED:
            raise SeatrialError(f"{key!r} is set by the run itself", file=source, key=full, fix="leave it out")
        argument = self.schema.argument(key, file=source)
        problem = argument.problem(value)
        if problem:
            raise SeatrialError("wrong value", file=source, key=full, value=value, rule=problem)
        if argument.nargs in ("+", "*") and not isinstance(value, list) and value is not None:
            value = [value]
        before = self.fields.get(full)
        owner: Owner = before.owner if before else "kind" if key in RUN_CONTROLS else "recipe"
        self.put(full, Sourced(value, source), owner)


def _by_key(fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return argument -> value, without the sections."""
    return {full.partition(".")[2]: field.value for full, field in fields.items()}


def _unfit(key: str, values: Mapping[str, Any], release: Schema) -> str | None:
    """Return why ``release`` cannot be given argument ``key`` of ``values``, or None."""
    argument = release.arguments.get(key)
    if argument is None:
        return "it has no such argument" if key in values else None
    if argument.means and key in values:
        where, value = argument.means
        if values.get(where) != value:
            return f"it has {argument.flag}, for {where} {value} alone"
        if argument.flag.removeprefix("--").replace("-", "_") in values:
            return f"it is {argument.flag} there, which is set as well"
    return argument.problem(values.get(key))


def _section_hint(key: str, fields: Mapping[str, Field]) -> str | None:
    section = section_of(key, fields)
    return f"did you mean {section}.{key!s}?" if section else None


def _environment(recipe_env: dict[str, str], profile: LoadedProfile, fields: Mapping[str, Field]) -> dict[str, str]:
    """Fill ``{dest}`` and ``{profile.key}`` in the recipe's values; the profile's own values win."""
    values = _by_key(fields)
    values |= {f"profile.{key}": value for key, value in profile.data.items()}

    def fill(match: re.Match[str]) -> str:
        if values.get(match[1]) is None:
            raise SeatrialError(
                f"the environment value needs {match[1]!r}, which is unset", key="env", value=match[0],
                fix=did_you_mean(match[1], values),
            )  # fmt: skip
        return str(values[match[1]])

    filled = {name: _PLACEHOLDER.sub(fill, text) for name, text in recipe_env.items()}
    return dict(sorted((filled | profile.data["env"]["set"]).items()))


def _gate(fields: _Fields, kind: str | None, rehearsal: bool) -> dict[str, Any]:
    """Return what the judge expects: every step, a whole checkpoint at each save, and how far the loss must fall."""
    values = _by_key(fields.fields)
    steps, every = values.get("train_iters"), values.get("save_interval")
    if kind is None or not steps:
        return {}
    gate = dict(fields.recipe.gate) | (dict(fields.recipe.rehearsal_gate) if rehearsal else {})
    saves = [*range(every, steps, every), steps] if every else [steps]
    return {
        "steps": steps,
        "save_steps": saves if kind == "gate" else [steps],
        "learning_ratio": gate.get("learning_ratio"),
        "resume_check": kind == "gate" and not rehearsal and len(saves) > 1,
    }


def _reference(fields: _Fields, rehearsal: bool) -> dict[str, Any] | None:
    """Return what the recipe is held against: of a rehearsal's own, as its model is another one."""
    found = fields.recipe.rehearsal_reference if rehearsal else fields.recipe.reference
    return {**found, "asked": False} if found.get("file") else None
