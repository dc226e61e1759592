"""The failure signatures: what a log's line says about why an attempt ended. Shipped rows, and a site's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.spec import library
from seatrial.spec.yamlfile import YamlFile, read_yaml

# The classes of supervise/classes.py that a log's line can show. A row of class unknown says: telling, but not of what.
LogClass = Literal[
    "time_limit", "preempted", "node_failure", "gpu_fault", "network", "hang", "oom_gpu", "oom_host", "disk_full",
    "checkpoint_bad", "nan", "result_validation", "data_error", "user_error", "unknown",
]  # fmt: skip

_SHIPPED = Path(__file__).parent / "failures.yaml"
# Atomic groups and possessive quantifiers: Python 3.11's, and a compute host may have 3.9.
_BRACKETS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NEWER = re.compile(r"\(\?>|(?<!\\)(?:[*+?]|\{[\d,]+\})\+")

Text = Annotated[str, Field(min_length=1)]


class Row(BaseModel):
    """One signature; ``weak``: such a line follows from another rank's end, or is lived with."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    class_: LogClass = Field(alias="class")
    pattern: Text
    example: Text
    source: Text
    weak: bool = False


def load_failures(*, site: bool = True) -> list[dict[str, Any]]:
    """Return the signature rows as plain data, in the order in which they are tried: the site's own come first.

    A site writes them under ``failures:`` in its site file; ``site=False`` leaves that file alone. Raises SeatrialError
    for a row that is none: unknown key or class, a pattern that is no regular expression of Python 3.9, matches an
    empty line, or does not match its example.
    """
    path = library.site_file()
    own = _rows(read_yaml(path)) if site and path.is_file() else []
    return [*own, *map(dict, _shipped())]


@cache
def _shipped() -> tuple[Mapping[str, Any], ...]:
    return tuple(_rows(read_yaml(_SHIPPED)))


def _rows(file: YamlFile) -> list[dict[str, Any]]:
    data = file.data.get("failures")
    if data is None:
        return []
    if not isinstance(data, list):
        raise SeatrialError("the failure signatures are no list", rule="a list of rows", **_where(file, ""))
    return [_row(entry, file, f"[{number}]") for number, entry in enumerate(data)]


def _row(entry: Any, file: YamlFile, at: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise SeatrialError("a failure signature is no mapping", value=entry, rule=_KEYS, **_where(file, at))
    try:
        row = Row.model_validate(entry)
    except ValidationError as error:
        raise _mistake(error, entry, file, at) from None
    problem = _problem(row)
    if problem:
        raise SeatrialError("wrong failure signature", value=row.pattern, rule=problem, **_where(file, f"{at}.pattern"))
    return row.model_dump(by_alias=True)


def _problem(row: Row) -> str | None:
    """Return the rule that the pattern breaks, or None."""
    try:
        pattern = re.compile(row.pattern)
    except re.error as error:
        return f"a regular expression; this is none: {error}"
    if _NEWER.search(_BRACKETS.sub("x", row.pattern)):
        return "a regular expression of Python 3.9: no (?>...), *+, ++, ?+"
    if pattern.search(""):
        return "must not match an empty line: it would match every line"
    return None if pattern.search(row.example) else f"must match its example {row.example!r}"


_KEYS = "keys " + ", ".join(info.alias or name for name, info in Row.model_fields.items())


def _mistake(error: ValidationError, entry: Mapping[str, Any], file: YamlFile, at: str) -> SeatrialError:
    first = error.errors()[0]
    key = str(first["loc"][0])
    where = _where(file, f"{at}.{key}")
    if first["type"] == "extra_forbidden":
        known = [info.alias or name for name, info in Row.model_fields.items()]
        return SeatrialError(
            f"unknown key {key!r} in a failure signature", rule=_KEYS, fix=did_you_mean(key, known), **where
        )
    if first["type"] == "missing":
        return SeatrialError(f"a failure signature lacks {key!r}", rule=_KEYS, **where)
    value = entry.get(key)
    if key == "class":
        known = list(get_args(LogClass))
        fix = did_you_mean(str(value), known)
        return SeatrialError(f"unknown failure class {value!r}", rule=f"one of {', '.join(known)}", fix=fix, **where)
    return SeatrialError("wrong value in a failure signature", value=value, rule=first["msg"], **where)


def _where(file: YamlFile, at: str) -> dict[str, Any]:
    return {"file": file.path, "line": file.line("failures"), "key": f"failures{at}"}
