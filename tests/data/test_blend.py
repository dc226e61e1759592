from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.data.blend import Blend, parse_blend, read_data_args, read_per_split_data_args
from seatrial.errors import SeatrialError


@pytest.mark.parametrize(
    ("words", "blend"),
    [
        (["/d/a"], Blend(("/d/a",), None)),
        (["/d/a", "/d/b"], Blend(("/d/a", "/d/b"), None)),
        ([" /d/a ", "/d/b", "/d/c"], Blend(("/d/a", "/d/b", "/d/c"), None)),
        (["30", "/d/a", "70", "/d/b"], Blend(("/d/a", "/d/b"), (30.0, 70.0))),
        ([0.3, "/d/a", 0.7, "/d/b"], Blend(("/d/a", "/d/b"), (0.3, 0.7))),
        (["1.0", "/d/a"], Blend(("/d/a",), (1.0,))),
    ],
)
def test_blends(words: list[object], blend: Blend) -> None:
    assert parse_blend(words) == blend


@pytest.mark.parametrize(
    "words",
    [
        [], [""], ["0.3", "/d/a", "0.7"], ["/d/a", "0.3"], ["0.3", "/d/a", "/d/b", "0.7"],
        ["-1", "/d/a"], ["0", "/d/a"], ["nan", "/d/a"], ["inf", "/d/a"], ["1", "2"],
    ],
)  # fmt: skip
def test_what_no_blend_is(words: list[object]) -> None:
    with pytest.raises(SeatrialError) as caught:
        parse_blend(words, key="train_data_path")
    assert caught.value.key == "train_data_path"


def test_shares_add_up() -> None:
    assert parse_blend(["30", "/d/a", "90", "/d/b"]).shares == (0.25, 0.75)
    assert parse_blend(["/d/a", "/d/b"]).shares is None


def test_list_files(tmp_path: Path) -> None:
    words = tmp_path / "blend.txt"
    words.write_text("0.5 /d/a\n0.5 /d/b\n")
    assert read_data_args(str(words)).prefixes == ("/d/a", "/d/b")
    table = tmp_path / "splits.json"
    table.write_text(json.dumps({"train": "1 /d/a 2 /d/b", "valid": ["/d/c"], "test": None}))
    blends = read_per_split_data_args(str(table))
    assert blends == {"train": Blend(("/d/a", "/d/b"), (1.0, 2.0)), "valid": Blend(("/d/c",), None)}


@pytest.mark.parametrize("content", ["{", "[]", '{"train": "a"}', '{"train": 1, "valid": "a", "test": "a"}'])
def test_bad_list_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "splits.json"
    path.write_text(content)
    for read, name in ((read_per_split_data_args, path), (read_data_args, tmp_path / "none")):
        call: Any = read
        with pytest.raises(SeatrialError) as caught:
            call(str(name))
        assert str(name) in str(caught.value)
