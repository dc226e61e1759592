"""What Megatron-Bridge makes of a recipe and our overrides, on any machine.

``python -m seatrial.train.bridge.resolve PLAN_OR_JSON`` takes a plan.json, or {"bridge": {"recipe":
NAME, "overrides": [...]}, "world_size": N}. It starts no ranks and builds no model. The last line of its output is one
JSON object: ``ok``, ``origin``, ``stand_in``, ``findings`` and ``resolved`` (``section.field`` -> value, after Bridge's
own changes at run time and its validation). The exit code is 0 if Bridge takes it, else 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError

from ..deep_check import describe


def resolve(recipe: str, overrides: Sequence[str], world_size: int) -> dict[str, Any]:
    """Return the report for rank 0 of ``world_size``; changes this process, so run it in its own."""
    os.environ.update(RANK="0", WORLD_SIZE=str(world_size), LOCAL_RANK="0")
    report: dict[str, Any] = {"ok": False, "origin": None, "stand_in": [], "findings": [], "resolved": {}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _resolve(report, recipe, overrides)
        except SeatrialError:
            raise
        except Exception as error:
            report["findings"].append({"severity": "error", "message": describe(error)})
    begun = report.pop("begun", len(caught))
    for warning in caught[begun:]:
        finding = {"severity": "warning", "message": str(warning.message)}
        if issubclass(warning.category, UserWarning) and finding not in report["findings"]:
            report["findings"].append(finding)
    return report


def _resolve(report: dict[str, Any], recipe: str, overrides: Sequence[str]) -> None:
    from . import stand_in

    report["stand_in"] = stand_in.declare()
    from megatron.bridge.training.config import runtime_config_update

    from . import flat, policy, recipes
    from . import overrides as words

    loaded = recipes.load(recipe)
    report["origin"] = loaded.origin
    config = words.apply(loaded.config, overrides)
    policy.require_policy(config)
    runtime_config_update(config)
    report["ok"], report["resolved"] = True, flat.flat(config)


def read(said: str) -> tuple[str, list[str], int]:
    """Return recipe, overrides and world size of a plan, by path or as JSON text; raises :class:`SeatrialError`."""
    where = None if said.lstrip().startswith("{") else said
    try:
        document = json.loads(said if where is None else Path(said).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeatrialError(f"cannot read the plan: {error}", file=where) from error
    part = document.get("bridge") if isinstance(document, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(part.get("recipe"), str) or "world_size" not in document:
        raise SeatrialError("not a plan of the Megatron-Bridge engine", file=where, key="bridge")
    return part["recipe"], [str(word) for word in part.get("overrides") or ()], int(document["world_size"])


def main(words: list[str]) -> int:
    """Resolve the plan that ``words`` names, print the report, return the exit code."""
    if len(words) != 1:
        print("usage: python -m seatrial.train.bridge.resolve PLAN_OR_JSON", file=sys.stderr)
        return 2
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Bridge prints what it does
            report = resolve(*read(words[0]))
    except SeatrialError as error:
        print(f"seatrial: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
