"""Tables of Slurm, read back."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.slurm.table import SEPARATOR, from_iso, iso, job_rows, minutes, pairs, rows, seconds_since_1970

cell = st.text(st.characters(blacklist_characters=SEPARATOR + "\n", blacklist_categories=["Cs"]), max_size=20)


@given(st.lists(st.lists(cell, min_size=3, max_size=3), max_size=5))
def test_what_was_printed_is_read(table: list[list[str]]) -> None:
    text = "".join(SEPARATOR.join(row) + "\n" for row in table)
    assert rows(text, 3) == [[part.strip() for part in row] for row in table]


@given(st.text(), st.integers(1, 9))
def test_any_text_gives_whole_rows_or_none(text: str, columns: int) -> None:
    assert all(len(row) == columns and row[0].isdigit() for row in job_rows(text, columns))


@given(st.text(max_size=40))
def test_the_last_column_may_hold_anything_but_a_line_break(name: str) -> None:
    text = SEPARATOR.join(["7", "RUNNING", name]) + "\n"
    if "\n" not in name:
        assert job_rows(text, 3) == [["7", "RUNNING", name.strip()]]
    else:
        assert [row[:2] for row in job_rows(text, 3)][:1] == [["7", "RUNNING"]]


@pytest.mark.parametrize("text", ["7\x1fFAILED\x1fna", "7\x1fFAI\n", "JOBID\x1fSTATE\x1fNAME\n", "CLUSTER: x\n", ""])
def test_torn_lines_headers_and_messages_are_dropped(text: str) -> None:
    assert job_rows(text, 3) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1800000000", 1_800_000_000.0), ("Unknown", None), ("N/A", None), ("None", None), ("", None), ("0", None),
        ("2026-13-01T00:00:00", None), ("12", None),
        ("2026-03-29T12:00:00", time.mktime(time.strptime("2026-03-29T12:00:00", "%Y-%m-%dT%H:%M:%S"))),
    ],
)  # fmt: skip
def test_times(text: str, value: float | None) -> None:
    assert seconds_since_1970(text) == value


@given(st.integers(0, 4_000_000_000))
def test_our_own_times_come_back(seconds: int) -> None:
    assert from_iso(iso(float(seconds)) or "") == seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1-02:03:04", 1563), ("04:00:00", 240), ("30:00", 30), ("00:30:59", 30), ("UNLIMITED", None),
        ("infinite", None), ("NONE", None), ("", None), ("Partition_Limit", None), ("7-00:00:00", 10080),
    ],
)  # fmt: skip
def test_limits_in_minutes(text: str, value: int | None) -> None:
    assert minutes(text) == value


def test_pairs_of_scontrol() -> None:
    line = "PartitionName=debug AllowGroups=ALL JobDefaults=(null) TRES=cpu=64,mem=1M,gres/gpu=8 OverSubscribe=NO "
    assert pairs(line) == {
        "PartitionName": "debug", "AllowGroups": "ALL", "JobDefaults": "(null)", "TRES": "cpu=64,mem=1M,gres/gpu=8",
        "OverSubscribe": "NO",
    }  # fmt: skip
