"""Run groups on record: what is written is what is found, by id, name and prefix; no odd record is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.run.groups import (
    Group,
    GroupRun,
    all_groups,
    find_group,
    group_file,
    new_group_id,
    read_group,
    write_group,
)

PAIR, OLDER, SOLO = "pair-20270115-090000-aaaaaa", "pair-20270114-090000-bbbbbb", "solo-20270113-090000-cccccc"


def group(runs: Path, group_id: str = PAIR, created: str = "2027-01-15T09:00:00+00:00", **other: Any) -> Group:
    members = tuple(GroupRun(f"{recipe}-1", runs / f"{recipe}-1", recipe) for recipe in ("nano", "qwen"))
    return Group(group_id, group_id.rsplit("-", 3)[0], created, members, **other)


def make_run(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")


@pytest.mark.parametrize("other_data", [None, "tokenised per tokenizer"])
def test_what_is_written_is_what_is_read(tmp_path: Path, other_data: Optional[str]) -> None:
    made = group(tmp_path, same={"seed": 1234, "data_path": ["/data/text"]}, other_data=other_data)
    path = write_group(tmp_path, made)
    assert path == tmp_path / ".seatrial" / f"group-{PAIR}.json"
    assert read_group(path) == made
    assert json.loads(path.read_text())["runs"][0] == {
        "run": "nano-1", "folder": str(tmp_path / "nano-1"), "recipe": "nano",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (PAIR, PAIR),
        (OLDER, OLDER),
        ("pair", PAIR),  # the newest of that name
        ("pair-20270114", OLDER),
        ("so", SOLO),
        ("pair-202701", None),  # two begin so
        ("pai", None),
        ("nobody", None),
        ("", None),
        ("*", None),
        ("runs/pair", None),
    ],
)
def test_who_answers(tmp_path: Path, name: str, found: Optional[str]) -> None:
    for group_id, day in ((OLDER, 14), (PAIR, 15), (SOLO, 13)):
        write_group(tmp_path / "runs", group(tmp_path, group_id, f"2027-01-{day}T09:00:00+00:00"))
    answer = find_group(name, [tmp_path / "none", tmp_path / "runs"])
    assert (answer.id if answer else None) == found


def test_a_folder_named_twice_holds_its_groups_once(tmp_path: Path) -> None:
    write_group(tmp_path, group(tmp_path))
    assert len(all_groups([tmp_path, tmp_path])) == 1
    assert find_group("pa", [tmp_path, tmp_path]) is not None


def test_the_runs_of_a_folder_that_was_moved_are_found(tmp_path: Path) -> None:
    made = group(tmp_path / "before")
    for one in made.runs:
        make_run(one.folder)
    write_group(tmp_path / "before", made)
    (tmp_path / "before").rename(tmp_path / "after")
    moved = find_group("pair", [tmp_path / "after"])
    assert moved is not None
    assert [one.folder for one in moved.runs] == [tmp_path / "after" / "nano-1", tmp_path / "after" / "qwen-1"]


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "-x", "a/b", "x" * 61, "a\n"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(SeatrialError, match="not a name for a group"):
        new_group_id(name)


def test_an_id_begins_with_the_name_and_is_new_each_time() -> None:
    ids = {new_group_id("nano-and-9b") for _ in range(5)}
    assert len(ids) == 5
    assert all(one.startswith("nano-and-9b-20") for one in ids)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["id", "name", "created", "runs", "run", "folder", "recipe", "same", "other_data", "kind"]),
        inner, max_size=6,
    ),
    max_leaves=12,
)  # fmt: skip


@given(ODD, st.integers(0, 200))
def test_no_record_is_too_odd_to_read(tmp_path_factory: pytest.TempPathFactory, data: Any, torn: int) -> None:
    runs = tmp_path_factory.mktemp("runs")
    for name, text in (("odd", json.dumps(data)), ("torn", json.dumps(group(runs).to_json())[:torn])):
        path = group_file(runs, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for one in all_groups([runs]):
        assert isinstance(one.name, str) and all(isinstance(run.folder, Path) for run in one.runs)
        assert read_group(group_file(runs, "odd")) == one
    find_group("pair", [runs])
