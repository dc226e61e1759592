"""Compare a recipe of ours with a resolved upstream recipe, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from seatrial.spec.resolve import resolve
from seatrial.spec.schema import load_schema
from tests.recipes.parity_names import EQUAL, Values
from tests.recipes.parity_tables import BRIDGE_ONLY, CORE_DEFAULT, FORCED, INTENDED, MODELS, NULL_IS_UNSET, PROFILE

RUNS = tuple((model, run) for model in MODELS for run in FORCED)
PINNED = BRIDGE_ONLY | {f"{section}.{key}": v for section, keys in CORE_DEFAULT.items() for key, v in keys.items()}
DIFFERENT = {name: difference for difference in INTENDED for name in difference.fields}


@cache
def upstream(model: str, run: str) -> Mapping[str, Any]:
    """Return ``section.key`` -> value of a resolved upstream run; a section that is null keeps its own name."""
    sections = json.loads((Path(__file__).parent / "upstream" / f"{model}.{run}.json").read_text())
    fields: dict[str, Any] = {}
    for section, body in sections.items():
        fields |= {f"{section}.{key}": value for key, value in body.items()} if body else {section: body}
    return fields


def values_of(recipe: str, profile: str, kind: str | None = None, overrides: Mapping[str, Any] | None = None) -> Values:
    """Return Megatron argument -> our value; Megatron's default where we pass nothing."""
    pairs = [(key, str(value)) for key, value in (overrides or {}).items()]
    spec = resolve(recipe, profile, kind, pairs)
    arguments = load_schema(spec.megatron_core).arguments
    defaults = {key: not a.default if a.inverted else a.default for key, a in arguments.items()}
    return defaults | {full.partition(".")[2]: field.value for full, field in spec.fields.items()}


@cache
def ours(model: str, run: str) -> Values:
    """Return our values for the run that upstream resolved: the recipe alone, with what upstream forced."""
    return values_of(MODELS[model], PROFILE[run], None, FORCED[run])


def problem(name: str, value: Any, values: Values) -> str | None:
    """Return why the upstream field is not what we run, or None."""
    if name in DIFFERENT:
        difference = DIFFERENT[name]
        return None if difference.while_(values) else f"{name}: no longer true: {difference.reason}"
    return difference_of(name, value, values)


def difference_of(name: str, value: Any, values: Values) -> str | None:
    """Like ``problem``, with no difference allowed."""
    if name in PINNED:
        return None if _equal(PINNED[name], value) else f"{name}: {value!r}, and Megatron has {PINNED[name]!r} for it"
    key = name.rpartition(".")[2]
    if name in EQUAL:
        mine, theirs = EQUAL[name].ours(values), EQUAL[name].theirs(value)
    elif key in values:
        mine, theirs = values[key], value
        if name in NULL_IS_UNSET and value is None:
            return None
    else:
        return f"{name}: in no table (upstream has {value!r})"
    return None if _equal(mine, theirs) else f"{name}: upstream {theirs!r}, ours {mine!r}"


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) or isinstance(theirs, float):
        return not isinstance(mine, bool) and not isinstance(theirs, bool) and _close(mine, theirs)
    return type(mine) is type(theirs) and mine == theirs


def _close(mine: Any, theirs: Any) -> bool:
    numbers = isinstance(mine, (int, float)) and isinstance(theirs, (int, float))
    return numbers and (mine == theirs or abs(mine - theirs) <= 1e-12 * abs(theirs))


def problems(model: str, run: str) -> Iterator[str]:
    """Yield every field of an upstream run that we do not account for."""
    for name, value in upstream(model, run).items():
        found = problem(name, value, ours(model, run))
        if found:
            yield found
