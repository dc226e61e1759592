"""Signatures in logs: which row a line belongs to, which line decides, and how fast hundreds of logs are read."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.spec.failures import load_failures
from seatrial.supervise import classes
from seatrial.supervise.signatures import Hit, best, literals, scan, tail

ROWS = load_failures(site=False)
EXAMPLES = [row["example"] for row in ROWS]
STEP = " [2026-12-01 02:27:42.570068] iteration {:8d}/   48000 | consumed samples:   100 | lm loss: 5.0E+00 |"


def row(name: str, pattern: str, weak: bool = False) -> dict[str, Any]:
    return {"class": name, "pattern": pattern, "weak": weak}


def test_a_line_belongs_to_the_first_row_that_matches_it() -> None:
    rows = [row("nan", "NaN"), row("unknown", "NaN or not"), row("network", "peer", True)]
    assert scan(["fine", "NaN or not", "", "lost a peer"], rows) == [
        Hit("nan", "NaN or not", False, 0),
        Hit("network", "lost a peer", True, 2),
    ]


def test_the_row_that_stands_first_decides_and_of_its_lines_the_last() -> None:
    hits = [
        Hit("nan", "a", row=4),
        Hit("gpu_fault", "b", row=2),
        Hit("gpu_fault", "c", row=2),
        Hit("network", "d", True, 0),
    ]
    assert best(hits) == hits[2]
    assert best(hits, weak=True) == hits[3]
    assert best([]) is None


@pytest.mark.parametrize(
    "useless",
    [
        {"class": "nan"},
        {"class": "martian", "pattern": "NaN"},
        {"class": "nan", "pattern": "("},
        {"class": "nan", "pattern": 7},
        "NaN",
    ],
)
def test_a_row_that_cannot_be_used_is_passed_over(useless: Any) -> None:
    assert [hit.name for hit in scan(["NaN"], [useless, row("nan", "NaN")])] == ["nan"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("No space left on device", ("No space left on device",)),
        (r"Node failure on \S+", ("Node failure on ",)),
        (r"events?: x", ("event",)),
        (r"ab*cde", ("cde",)),
        (r"a{0,2}b{3}xy", ("xy",)),
        (r"(?:one|two)three", ("three",)),
        (r"one|three+|fi.ve", ("one", "three", "fi")),
        (r"one|\d+", ()),
        (r"(?i)one", ()),
        (r"[|(]\(a\)\\", ("(a)\\",)),
        (r"one(?:two)?", ("one",)),
        (r"", ()),
    ],
)
def test_literals(pattern: str, expected: tuple[str, ...]) -> None:
    assert literals(pattern) == expected


PIECES = st.sampled_from(
    ["a", "b", "ab ", r"\d", r"\.", ".", "[ab|]", "(?:a|b)", "x?", "b*", "a+", "a{0,1}", "|", "^", "$"]
)


@given(st.lists(PIECES, max_size=6).map("".join), st.text("ab1. |x\n", max_size=12))
def test_looking_for_plain_words_first_changes_nothing(pattern: str, text: str) -> None:
    lines = text.split("\n")
    wanted = [line for line in lines if re.search(pattern, line)]
    assert [hit.line for hit in scan(lines, [row("nan", pattern)])] == wanted


@given(st.lists(st.one_of(st.sampled_from(EXAMPLES), st.text(max_size=30)), max_size=8))
def test_the_whole_table_finds_what_line_by_line_finds(lines: list[str]) -> None:
    def first(line: str) -> tuple[str, int] | None:
        return next(((r["class"], n) for n, r in enumerate(ROWS) if re.search(r["pattern"], line)), None)

    wanted = [found for line in lines if (found := first(line))]
    assert [(hit.name, hit.row) for hit in scan(lines, ROWS)] == wanted


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "rank-00000.log"
    log.write_text(
        "No space left on device\n" + "x" * 99 + "\n" + (STEP.format(1) + "\n") * 1000 + "CUDA out of memory.\n"
    )
    lines = tail(log)
    assert [hit.name for hit in scan(lines, ROWS)] == [classes.OOM_GPU]
    assert 65_000 < sum(len(line) + 1 for line in lines) <= 1 << 16
    assert tail(tmp_path / "none") == []


def test_hundreds_of_long_logs_take_seconds_at_most() -> None:
    logs = [[STEP.format(step) for step in range(rank, rank + 600)] for rank in range(128)]
    began = time.process_time()
    assert not any(scan(lines, ROWS) for lines in logs)
    assert time.process_time() - began < 2.5  # 0.2 s where nothing else runs
