"""Values out of odd records, and which variables hold a secret."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.run.fields import at, mapping, text, whole
from seatrial.run.secret_names import is_secret


@pytest.mark.parametrize(
    ("data", "found"), [({"a": {"b": 1}}, 1), ({"a": 1}, None), ({"a": None}, None), ([], None), (None, None)]
)
def test_what_lies_under_keys(data: Any, found: Any) -> None:
    assert at(data, "a", "b") == found


def test_other_types_are_absent() -> None:
    assert [whole(value) for value in (3, True, 3.0, "3", None)] == [3, None, None, None, None]
    assert [text(value) for value in ("a", 1, None)] == ["a", None, None]
    assert [mapping(value) for value in ({"a": 1}, [1], None)] == [{"a": 1}, {}, {}]


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "hf_0123456789", True),
        ("wandb_api_key", "0123456789", True),
        ("SLURM_JWT", "0123456789", True),
        ("HF_TOKEN", "short", False),
        ("SSH_KEY", "/home/me/.ssh/id_rsa", False),
        ("KEYBOARD", "0123456789", False),
    ],
)
def test_names_tell_of_secrets(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret
