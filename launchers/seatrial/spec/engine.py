"""Which loop the ranks run: megatron-core's own, or that of the image's Megatron-Bridge with a recipe of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.spec.owners import BRIDGE_RUN_OWNED

MEGATRON_CORE, MEGATRON_BRIDGE = "megatron-core", "megatron-bridge"
ENGINES = (MEGATRON_CORE, MEGATRON_BRIDGE)
BLOCK = ("recipe", "overrides")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[a-z_][a-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")


@dataclass(frozen=True)
class Bridge:
    """A recipe's ``bridge``: the name that Megatron-Bridge exports its recipe under, and what it is told besides
    (``section.field`` of its ConfigContainer -> value)."""

    recipe: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def with_value(self, key: str, value: Any, **where: Any) -> Bridge:
        """Return this with ``recipe`` or one override set; ``where`` (file, line) goes into the error."""
        if key == "recipe":
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise SeatrialError(
                    "wrong value", key="bridge.recipe", value=value, **where,
                    rule="the name of a function that megatron.bridge.recipes exports",
                )  # fmt: skip
            return replace(self, recipe=value)
        if not _KEY.fullmatch(key):
            raise SeatrialError(
                "wrong key", key=f"bridge.{key}", value=value, **where,
                rule="section.field of Megatron-Bridge's ConfigContainer, such as model.moe_router_fusion",
            )  # fmt: skip
        if key in BRIDGE_RUN_OWNED:
            raise SeatrialError(f"{key!r} is set by the run itself", key=f"bridge.{key}", fix="leave it out", **where)
        return replace(self, overrides={**self.overrides, key: value})


def engine_named(value: Any, **where: Any) -> str:
    """Return the engine; raises SeatrialError for what is none. ``where``: file and line."""
    if value not in ENGINES:
        raise SeatrialError(
            "unknown engine", key="engine", value=value, rule=f"one of {', '.join(ENGINES)}",
            fix=did_you_mean(str(value), ENGINES, otherwise="") or None, **where,
        )  # fmt: skip
    return str(value)
