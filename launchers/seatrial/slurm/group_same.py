"""What the runs of a group must have in common, so that what differs is the model. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.check.datasets import SOURCES
from seatrial.errors import SeatrialError
from seatrial.spec.runspec import RunSpec
from seatrial.spec.schema import load_schema

SCHEDULE = ("seed", "train_iters", "global_batch_size", "seq_length")
DATA = (*SOURCES, "split")
_TOKENIZER = ("tokenizer_type", "tokenizer_model")


def same_values(specs: Sequence[RunSpec]) -> dict[str, Any]:
    """Return what all runs have in common: argument -> value; what no run sets and what differs is left out."""
    values = {dest: [_value(spec, dest) for spec in specs] for dest in (*SCHEDULE, *DATA)}
    return {dest: found[0] for dest, found in values.items() if found[0] is not None and _equal(found)}


def differences(specs: Sequence[RunSpec], other_data: bool) -> Iterator[SeatrialError]:
    """Yield one error for each thing that must be the same and is not, with each run's value and its place.

    ``other_data``: the runs may read other data files, split otherwise, as data are tokenised for one tokenizer.
    """
    for dest in SCHEDULE if other_data else (*SCHEDULE, *DATA):
        if _equal([_value(spec, dest) for spec in specs]):
            continue
        key = next((spec.key_of(dest) for spec in specs if "." in spec.key_of(dest)), dest)
        fix = f"--set {key}=VALUE for all, or --set RECIPE:{key}=VALUE for one"
        if dest in DATA:
            fix += '; for data tokenised anew for each tokenizer: --other-data "reason"'
        lines = [f"{spec.recipe}: {json.dumps(_value(spec, dest))} ({_source(spec, dest)})" for spec in specs]
        message = "\n    ".join(["the runs of a group differ:", *lines])
        yield SeatrialError(message, key=key, rule="runs of a group differ in the model only", fix=fix)
    for key in ("executor", "device"):
        found = [spec.profile[key] for spec in specs]
        if not _equal(found):
            lines = [f"{spec.recipe}: {value}" for spec, value in zip(specs, found, strict=True)]
            message = "\n    ".join(["the runs of a group run in one place:", *lines])
            yield SeatrialError(message, key=f"profile.{key}", fix="leave it out of --set RECIPE:...")


def foreign_tokens(specs: Sequence[RunSpec]) -> str | None:
    """Return a warning where runs read the same token files and name other tokenizers; None where they do not."""
    if _equal([[_value(spec, dest) for dest in _TOKENIZER] for spec in specs]):
        return None
    data = [[_value(spec, dest) for dest in SOURCES] for spec in specs]
    if not _equal(data):
        return None
    named = ", ".join(f"{spec.recipe}: {_value(spec, 'tokenizer_model') or 'none'}" for spec in specs)
    return f"the runs read the same token files and name other tokenizers ({named}): one tokenizer wrote the files"


def _value(spec: RunSpec, dest: str) -> Any:
    """Return what the argument is worth: where nobody sets it, Megatron's default."""
    known = load_schema(spec.megatron_core).arguments
    return spec.get(dest, known[dest].default if dest in known else None)


def _source(spec: RunSpec, dest: str) -> str:
    field = spec.fields.get(spec.key_of(dest))
    return field.source if field and field.value is not None else f"{spec.recipe_file} does not set it"


def _equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)
