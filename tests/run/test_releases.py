"""Releases: what is installed, and which are of one line."""

from __future__ import annotations

import pytest

from seatrial.run.releases import installed, same_line


def test_what_is_installed_says_its_release_and_what_is_not_says_nothing() -> None:
    assert installed("pytest") == pytest.__version__
    assert installed("no-such-distribution") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.18.2", "0.18.2", True),
        ("0.18.0rc1", "0.18.2", True),
        ("0.18.2+abc", "0.18.2", True),
        ("0.18.2", "0.5", False),
        ("0.19.2", "0.18.2", False),
        ("", "0.18.2", False),
    ],
)
def test_lines(one: str, other: str, same: bool) -> None:
    assert same_line(one, other) is same
    assert same_line(other, one) is same
