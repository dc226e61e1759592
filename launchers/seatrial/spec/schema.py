"""Megatron's arguments as data: names, types and choices, from the shipped snapshot (no torch needed)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean

DEFAULT_VERSION = "0.19.2"  # whose arguments recipes, kinds and the command line are written in
VERSIONS = (DEFAULT_VERSION, "0.18.2")
_FOLDER = Path(__file__).parent / "schemas"


@dataclass(frozen=True)
class Argument:
    """One Megatron argument, named in its positive sense (``no_save_optim`` is ``save_optim`` here)."""

    key: str
    dest: str
    flag: str
    kind: str  # value | store_true | store_false | boolean
    type: str = "bool"  # bool | int | float | str | other
    nargs: Any = None
    default: Any = None
    choices: tuple[str, ...] = ()
    off: str = ""
    means: tuple[str, str] | None = None  # an older release's name means the same only where this key has this value

    @property
    def inverted(self) -> bool:
        """True where the key is the opposite of the dest."""
        return self.key != self.dest

    def problem(self, value: Any) -> str | None:
        """Return the rule that ``value`` breaks, or None. Unset is right only where Megatron's default is None."""
        if value is None:
            return None if self.default is None else f"cannot be unset: Megatron's default is {self.default!r}"
        if self.kind != "value":
            return None if isinstance(value, bool) else "must be true or false"
        if self.nargs is None:
            return self._item_problem(value)
        items = value if isinstance(value, list) else [value]
        if isinstance(self.nargs, int) and len(items) != self.nargs:
            return f"must be a list of {self.nargs} values"
        if self.nargs == "+" and not items:
            return "must be a list with at least one value"
        return next((p for p in map(self._item_problem, items) if p), None)

    def _item_problem(self, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return f"must be of type {self.type}"
        if self.type == "int" and not isinstance(value, int):
            return "must be a whole number"
        if self.type == "float" and isinstance(value, str):
            return "must be a number"
        if self.type == "str" and not isinstance(value, str) and not self.choices and self.nargs is None:
            return "must be text (write it in quotes)"
        if self.choices and str(value) not in self.choices:
            near = did_you_mean(str(value), self.choices, otherwise="")
            return f"must be one of {', '.join(self.choices)}" + (f"; {near}" if near else "")
        return None

    def render(self, value: Any) -> list[str]:
        """Return the command-line words that give the argument this value; none where it is Megatron's default."""
        if value is None:
            return []
        if self.kind == "store_true":
            return [self.flag] if value != self.inverted else []
        if self.kind == "store_false":
            return [] if value else [self.flag]
        if self.kind == "boolean":
            return [self.flag if value else self.off]
        items = [_word(v) for v in (value if isinstance(value, list) else [value])]
        if len(items) == 1 and items[0].startswith("-"):
            return [f"{self.flag}={items[0]}"]
        return [self.flag, *items]


def _word(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Older:
    """What an older release calls an argument: its dest there, and the key whose value makes both mean the same."""

    dest: str
    where: tuple[str, str]


# Version -> key -> its older name. 0.19 has one number of SMs for every flex backend, 0.18 one for each.
_OLDER = {
    "0.18.2": {
        "moe_flex_dispatcher_num_sms": Older("moe_hybridep_num_sms", ("moe_flex_dispatcher_backend", "hybridep")),
    },
}


@dataclass(frozen=True)
class Schema:
    """All arguments of one megatron-core version, by positive key."""

    version: str
    arguments: Mapping[str, Argument]

    def argument(self, key: str, **where: Any) -> Argument:
        """Return the argument named ``key``; ``where`` (file, line) goes into the error for an unknown one."""
        if key in self.arguments:
            return self.arguments[key]
        negative = next((a for a in self.arguments.values() if a.dest == key), None)
        fix = f"write {negative.key!r}, the positive sense" if negative else did_you_mean(key, self.arguments)
        raise SeatrialError(
            f"unknown key {key!r}",
            key=key,
            rule=f"a key is the dest of a megatron-core {self.version} argument",
            fix=fix,
            **where,
        )


@cache
def load_schema(version: str = DEFAULT_VERSION) -> Schema:
    """Read the shipped snapshot for ``version``; a key of ours that it calls otherwise is known under both names."""
    data = json.loads((_FOLDER / f"megatron-core-{version}.json").read_text())
    arguments: dict[str, Argument] = {}
    for dest, entry in data["arguments"].items():
        kind = entry["kind"]
        inverted = kind == "store_true" and dest.startswith("no_")
        key = dest.removeprefix("no_") if inverted else dest
        arguments[key] = Argument(
            key, dest, entry["flag"], kind, entry.get("type", "bool"), entry.get("nargs"), entry["default"],
            tuple(map(str, entry.get("choices", ()))), entry.get("off", ""),
        )  # fmt: skip
    for key, older in _OLDER.get(version, {}).items():
        arguments[key] = replace(arguments[older.dest], key=key, dest=key, means=older.where)
    return Schema(data["megatron_core"], arguments)
