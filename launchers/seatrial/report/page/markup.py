"""HTML that is safe by default: all text is escaped but what is markup already. Pure."""

from __future__ import annotations

import html as _html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

_VOID = frozenset({"br", "input", "link", "meta"})
# Control characters (a NUL ends some parsers) and lone surrogates (UTF-8 has none) are in no document.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def html(*parts: Any) -> Markup:
    """Return the parts one after the other; what is no Markup is escaped, None is left out."""
    return Markup("".join(_text(part) for part in parts if part is not None))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """Return an element. ``class_`` and ``data_x`` are ``class`` and ``data-x``; True stands alone, None goes."""
    said = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{html(*children)}</{name}>")


def section(anchor: str, title: str, *children: Any, level: int = 2) -> Markup:
    """Return a part of the page that links can name. ``level``: of its heading."""
    heading = tag(f"h{level}", title, id=f"{anchor}-title")
    return tag("section", heading, *children, id=anchor, aria_labelledby=f"{anchor}-title")


def table(heads: Sequence[Any], rows: Iterable[Any], name: str, class_: str = "") -> Markup:
    """Return a table in a box of its own, which scrolls where it is too wide. A row: cells, or Markup of a whole one.

    ``name`` tells a screen reader what the box holds.
    """
    head = tag("tr", *(cell if _is_cell(cell) else tag("th", cell, scope="col") for cell in heads))
    body = [row if isinstance(row, Markup) else tag("tr", *map(_cell, row)) for row in rows]
    return tag(
        "div", tag("table", tag("thead", head), tag("tbody", *body), class_=class_ or None),
        class_="scroll", tabindex="0", role="region", aria_label=name,
    )  # fmt: skip


def details(summary: Any, *children: Any, open_: bool = False, **attributes: Any) -> Markup:
    """Return a part that folds."""
    return tag("details", tag("summary", summary), *children, open=True if open_ else None, **attributes)


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Return names and what is known of them; None is left out."""
    known = [(name, value) for name, value in pairs if value is not None and value != ""]
    return tag("dl", *(html(tag("dt", name), tag("dd", value)) for name, value in known), class_="facts")


def code(value: Any) -> Markup:
    """Return a name, path or value as it is written."""
    return tag("code", value)


def embedded(data: Any) -> Markup:
    """Return data for a script element: JSON in which no end of a script, comment or entity can stand."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: surrogates stay escaped
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _cell(value: Any) -> Markup:
    return value if _is_cell(value) else tag("td", value)


def _is_cell(value: Any) -> bool:
    return isinstance(value, Markup) and value.startswith(("<td", "<th"))


def _text(part: Any) -> str:
    if isinstance(part, Markup):
        return part
    return _html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(part)))


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_text(str(value))}"'
