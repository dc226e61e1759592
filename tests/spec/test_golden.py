"""The resolved config of every recipe x profile x kind is a checked-in file: a review sees what a change changes.

`make golden` writes them anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from seatrial.spec import library
from seatrial.spec.recipe import recipe_names
from seatrial.spec.render import render
from seatrial.spec.resolve import resolve

GOLDEN = Path(__file__).parent / "golden"
CASES = [
    (recipe, profile, kind)
    for recipe in recipe_names()
    for profile in library.names("cluster_profiles")
    for kind in ("gate", "convergence")
]


def neutral(text: str, home: Path) -> str:
    """Take out what differs between machines: the home folder, the text's hash (by Python version), the spec's hash."""
    text = text.replace(str(home), "~")
    return re.sub(r"(help-topics-|^hash: )[0-9a-f]+", r"\1…", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("recipe", "profile", "kind"), CASES, ids=lambda v: v)
def test_golden(recipe: str, profile: str, kind: str, own_home: Path) -> None:
    path = GOLDEN / f"{recipe}.{profile}.{kind}.yaml"
    text = neutral(render(resolve(recipe, profile, kind), "yaml"), own_home)
    if os.environ.get("SEATRIAL_WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


# What Megatron-Bridge is told, where its loop trains: it needs GPUs.
BRIDGE_CASES = [case for case in CASES if case[1].startswith("gb200")]


@pytest.mark.parametrize(("recipe", "profile", "kind"), BRIDGE_CASES, ids=lambda v: v)
def test_golden_overrides(recipe: str, profile: str, kind: str) -> None:
    path = GOLDEN / f"{recipe}.{profile}.{kind}.bridge"
    text = render(resolve(recipe, profile, kind, [("engine", "megatron-bridge")]), "args")
    if os.environ.get("SEATRIAL_WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_no_golden_file_is_left_over() -> None:
    assert {p.stem for p in GOLDEN.glob("*.yaml")} == {".".join(case) for case in CASES}
    assert {p.stem for p in GOLDEN.glob("*.bridge")} == {".".join(case) for case in BRIDGE_CASES}
