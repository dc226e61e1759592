"""RunSpec -> Megatron command-line arguments (the run-owned ones are added by the supervisor at each attempt)."""

from __future__ import annotations

from seatrial.spec.runspec import RunSpec
from seatrial.spec.schema import load_schema


def arguments(spec: RunSpec) -> list[str]:
    """Return the words of the command line, in the recipe's order. Pure."""
    schema = load_schema(spec.megatron_core)
    words: list[str] = []
    for full, field in spec.fields.items():
        words += schema.argument(full.partition(".")[2]).render(field.value)
    return words
