"""References: what is one, and what is refused, by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.run.reference import read_reference, reference_of

GOOD: dict[str, Any] = {
    "schema": 1, "name": "card", "steps": [[1, 4.0], [2, 3.5]], "gpus": 8, "gpu_type": "gb200",
    "speed": {"tokens_per_second_per_gpu": 24404},
}  # fmt: skip


def test_a_reference_is_read(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps(GOOD))
    found = read_reference(path)
    assert (found.name, dict(found.steps), found.gpus) == ("card", {1: 4.0, 2: 3.5}, 8)
    assert found.tokens_per_second_per_gpu == 24404


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 2}, "schema 1"),
        ({"stepz": []}, "unknown key 'stepz'"),
        ({"steps": [[1, 4.0], [1, 4.0]]}, "each once"),
        ({"steps": [[1, "nan"]]}, "finite"),
        ({"steps": [[0, 1.0]]}, "steps from 1"),
        ({"steps": [[1]]}, "not a step and its loss"),
        ({"steps": [], "speed": None}, "neither a curve nor a speed"),
        ({"speed": {"tokens_per_second_per_gpu": 0}}, "above 0"),
        ({"speed": {"tokens_per_second_per_gpu": "fast"}}, "above 0"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps(GOOD | changes))
    with pytest.raises(SeatrialError) as error:
        read_reference(path)
    assert words in str(error.value) and "card.json" in str(error.value)


@pytest.mark.parametrize("text", [None, "", "[", "[1]", "nothing"])
def test_a_file_that_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "card.json").write_text(text)
    with pytest.raises(SeatrialError):
        read_reference(tmp_path / "card.json")


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda one: st.lists(one), max_leaves=5)


@given(st.dictionaries(st.sampled_from([*GOOD, "note", "odd"]), JSON))
def test_no_data_gives_a_traceback(data: dict[str, Any]) -> None:
    try:
        found = reference_of({**data, "schema": 1})
    except SeatrialError:
        return
    assert found.steps or found.tokens_per_second_per_gpu
