"""Hydra's grammar: what stands bare, what is quoted. Held against Hydra's own parser in tests/train/bridge."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.run.overrides import text, words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (-1, "-1"),
        (1.6e-3, "0.0016"),
        (1e-8, "1e-08"),
        ("hybridep", '"hybridep"'),
        ("true", '"true"'),
        ("990,8,2", '"990,8,2"'),
        ("it's", '"it\'s"'),
        ('a "b"', '"a \\"b\\""'),
        ('a\\"b', '"a\\\\\\"b"'),
        ("a\\b", '"a\\b"'),
        ("end\\", '"end\\\\"'),
        ("${x}", '"\\${x}"'),
        ("", '""'),
        (["0.3", "/a b"], '["0.3","/a b"]'),
        ([], "[]"),
    ],
)
def test_text(value: Any, expected: str) -> None:
    assert text(value) == expected


def test_words() -> None:
    assert words({"train.train_iters": 9, "checkpoint.load": None}) == ["train.train_iters=9", "checkpoint.load=null"]
