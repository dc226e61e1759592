"""YAML with line numbers: what is refused, and what a scalar means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.spec.yamlfile import parse_value, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5), ("1.0e-5", 1e-5), ("3", 3), ("-1", -1), ("0.5", 0.5), ("true", True),
        ("no", "no"), ("on", "on"),
        ("null", None), ("", None), ("90,5,5", "90,5,5"), ("1:30", "1:30"), ("0o17", "0o17"), ("012", 12),
        ("[1, a, 0.5]", [1, "a", 0.5]), ("2024-01-01", "2024-01-01"), ("'3'", "3"), ("a: [", "a: ["),
        ("1_000", "1_000"),
    ],
)  # fmt: skip
def test_scalars(text: str, value: Any) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives(value: float) -> None:
    assert parse_value(repr(value)) == value


@given(st.text())
def test_any_text_parses_to_something(text: str) -> None:
    parse_value(text)


@pytest.mark.parametrize(
    ("content", "line", "word"),
    [
        (b"a: 1\nb:\n  c: 1\n  c: 2\n", 4, "twice"),
        (b"a: [1\n", 2, "not YAML"),
        (b"- 1\n", 1, "mapping"),
        (b"\xff\xfe", None, "UTF-8"),
        (b"a: !!python/object:os.system {}\n", 1, "not YAML"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path: Path, content: bytes, line: int | None, word: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(SeatrialError) as caught:
        read_yaml(path)
    assert caught.value.line == line
    assert word in str(caught.value)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(SeatrialError, match="cannot read"):
            read_yaml(path)


def test_lines_are_known(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model:\n  num_layers: 2\n\nmoe: {}\n")
    file = read_yaml(path)
    assert file.where("model", "num_layers") == "a.yaml:2"
    assert file.where("moe") == "a.yaml:4"
    assert file.where("model", "unknown") == "a.yaml:1"
