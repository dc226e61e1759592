"""Text from records as Markdown: it can neither format, link, mention nor break out of its cell. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

UNKNOWN = "unknown"
_MOST = 400
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=+/ -]+")
_SIGNS = {sign: f"&#{ord(sign)};" for sign in "|`\\*[]{}~$!"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SPECIAL = re.compile("[" + re.escape("".join(_SIGNS)) + r"]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_UNPRINTABLE = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
# What a forge makes a link of even in plain text: names, numbers of issues, addresses.
_LINKS = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^\s/@]+(?=@)")  # of an address: a user, and maybe a password
_PATH = re.compile(r"(?:file://|(?<![\w.:/~]))~?(?:/[^\s/\"'`,;:()<>|]+)*/(?=[^\s/\"'`,;:()<>|])")


def text(value: Any) -> str:
    """Return ``value`` as plain text in one line, without the folders of absolute paths; very long text is cut."""
    words = " ".join(_UNPRINTABLE.sub(" ", str(value)).split())
    words = _PATH.sub("…/", _LOGIN.sub("…", words))
    words = words if len(words) <= _MOST else words[:_MOST].rstrip() + " …"
    return _SPECIAL.sub(lambda found: _SIGNS.get(found[0], "&#95;"), _LINKS.sub("\u200b", words)) or UNKNOWN


def code(value: Any) -> str:
    """Return a name as code; one that holds anything unusual as text; None is unknown."""
    if value is None or value == "":
        return UNKNOWN
    words = str(value)
    plain = _PLAIN.fullmatch(words) and len(words) <= _MOST and words.strip() == words and not _PATH.search(words)
    return f"`{words}`" if plain else text(words)


def table(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of a table of two columns; the cells are Markdown already."""
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def count(number: int, one: str, many: str = "") -> str:
    """Return ``1 step``, ``2 steps``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
