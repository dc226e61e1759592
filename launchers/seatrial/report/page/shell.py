"""The document around a page's parts: one file that opens from disk and asks the network nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import seatrial
from seatrial.report.page.figures import Canvas
from seatrial.report.page.markup import Markup, embedded, html, section, tag

UPLOT_VERSION = "1.6.32"
_PROGRAM = ("data.js", "charts.js", "controls.js")
_ASSETS = files(__package__) / "assets"


@dataclass(frozen=True)
class Part:
    """A section of the page: its anchor, its title (also in the navigation), what it holds."""

    anchor: str
    title: str
    body: Markup


def document(title: str, head: Markup, parts: Sequence[Part], canvas: Canvas) -> str:
    """Return the page. ``head``: what stands above the navigation.

    Its policy lets no script run but its own two, by their hashes, and nothing be loaded from anywhere.
    """
    shown = [part for part in parts if part.body]
    scripts = [_uplot(), _program()]
    policy = "; ".join([
        "default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", "base-uri 'none'", "form-action 'none'",
        f"script-src {' '.join(map(_hash, scripts))}",
    ])  # fmt: skip
    start = [
        tag("meta", charset="utf-8"), tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"seatrial {seatrial.__version__}"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"), tag("title", title), tag("style", Markup(_styles())),
    ]  # fmt: skip
    links = [tag("li", tag("a", part.title, href=f"#{part.anchor}")) for part in shown]
    theme = tag("button", "Theme: auto", type="button", id="theme", class_="js-only small")
    body = [
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("header", head),
        tag("nav", tag("div", tag("ul", *links), theme), aria_label="Parts of this page"),
        tag("main", *(section(part.anchor, part.title, part.body) for part in shown), id="content", tabindex="-1"),
        tag(
            "footer", tag("p", f"Made by seatrial {seatrial.__version__}. Opens without a network; nothing is loaded.")
        ),
        tag("p", id="said", class_="hidden", role="status"),
        tag("script", embedded(canvas.to_json()), type="application/json", id="data"),
        *(tag("script", Markup(script)) for script in scripts),
    ]
    page = html(Markup("<!doctype html>\n"), tag("html", tag("head", *start), "\n", tag("body", *body), lang="en"))
    return f"{page}\n"


@cache
def asset(name: str) -> str:
    """Return the text of a file of ``assets/``."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def _program() -> str:
    """Return the page's own script: its parts share one scope, and nothing outside."""
    return "\n".join(['"use strict";', "(() => {", *map(asset, _PROGRAM), "})();"])


def _uplot() -> str:
    """Return the chart library under its licence; its own first line names an address, and the page names none."""
    licence, program = asset("uplot/LICENSE"), asset("uplot/uPlot.iife.min.js").partition("\n")[2]
    return f"/*! uPlot {UPLOT_VERSION}\n{licence}\n*/\n{program}"


def _styles() -> str:
    dark = asset("dark.css")
    themes = (
        f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{\n{dark}}} }}\n"
        f":root[data-theme=dark] {{\n{dark}}}\n"
    )
    return "\n".join([asset("uplot/uPlot.min.css"), asset("page.css"), themes])


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
