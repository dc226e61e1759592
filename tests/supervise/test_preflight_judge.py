"""What is made of the lines of nodes, of srun's, and of those that are missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.supervise.preflight_judge import Heard, all_answered, cut_short, judge, parse, was_reached
from seatrial.supervise.preflight_node import MARK, encoded

NODES = ["n1", "n2", "n3"]
BEGAN, READ = 1000.0, 1001.0
LAUNCH = "srun: error: Task launch for StepId=1.1 failed on node n2: Communication connection failure"


def line(node: str, **told: Any) -> tuple[float, str]:
    return READ, encoded(node, told).decode().rstrip("\n")


def last(node: str, time: Any = 1000.5) -> tuple[float, str]:
    return line(node, time=time)


def failed(*lines: tuple[float, str], in_time: bool = True) -> dict[str, tuple[str, ...]]:
    return judge(Heard(lines, BEGAN, in_time=in_time), NODES, 60, 5).failed


def test_all_fit() -> None:
    lines = [last(node) for node in NODES]
    judged = judge(Heard([*lines, line("n1", check="xid", state="skipped", why="no")], BEGAN), NODES, 60, 5)
    assert (judged.failed, judged.answered, judged.skipped) == ({}, frozenset(NODES), {"xid": "no"})
    assert all_answered(lines, NODES)
    assert not all_answered(lines[:2], NODES)


def test_one_fails_and_says_why() -> None:
    said = line("n2", check="gpus", state="failed", why="3 GPUs are visible, 4 are promised")
    assert failed(said, *(last(node) for node in NODES)) == {"n2": ("gpus: 3 GPUs are visible, 4 are promised",)}


@pytest.mark.parametrize(
    ("more", "in_time", "words"),
    [
        ([], False, "no answer within 60 s"),
        ([], True, "no answer: its task ended without one"),
        (["srun: error: n3: task 2: Killed"], True, "no answer: task 2: Killed"),
        (["srun: error: n[2-4]: tasks 1-3: Exited with exit code 2"], True,
         "no answer: n[2-4]: tasks 1-3: Exited with exit code 2"),
        (["srun: error: Node failure on n3"], True, "no answer: Node failure on n3"),
        (["srun: error: n33: task 2: Killed", "srun: error: n[30-33]: tasks 1-3: Killed"], True,
         "no answer: its task ended without one"),
    ],
)  # fmt: skip
def test_who_is_missing_is_found_from_the_list(more: list[str], in_time: bool, words: str) -> None:
    half = line("n3", check="disk", state="ok", why="")
    heard = [last("n1"), last("n2"), half, *((READ, text) for text in more)]
    assert failed(*heard, in_time=in_time) == {"n3": (words,)}


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (994.9, "clock: 5.1 s behind the batch host's"),
        (995.1, None),
        (1005.9, None),
        (1006.2, "clock: 5.2 s ahead of the batch host's"),
        (float("nan"), "clock: it has no time"),
        ("soon", "clock: it has no time"),
        (10**400, "clock: it has no time"),
    ],
)  # fmt: skip
def test_the_clock(time: Any, words: str | None) -> None:
    assert failed(last("n1", time), last("n2"), last("n3")) == ({"n1": (words,)} if words else {})


def test_who_was_ended_with_one_out_of_reach_is_not_blamed() -> None:
    killed = [(READ, "srun: error: n1: task 0: Killed"), (READ, "srun: error: n3: task 2: Killed")]
    heard = Heard([(READ, LAUNCH), *killed], BEGAN)
    assert cut_short(heard, NODES, judge(heard, NODES, 60, 5)) == ["n1", "n3"]
    heard = Heard([(READ, LAUNCH), last("n1"), killed[1]], BEGAN)
    assert cut_short(heard, NODES, judge(heard, NODES, 60, 5)) == ["n3"]


def test_who_ends_alone_is_not_cut_short() -> None:
    heard = Heard([last("n1"), last("n2"), (READ, "srun: error: n3: task 2: Killed")], BEGAN)
    assert cut_short(heard, NODES, judge(heard, NODES, 60, 5)) == []


@pytest.mark.parametrize(
    ("said", "reached"),
    [
        (LAUNCH, True),
        ("srun: error: n1: task 0: Exited with exit code 1", True),
        (encoded("n1", {"check": "disk"}).decode(), True),
        ("srun: error: Unable to create step for job 1: Requested node configuration is not available", False),
        ("srun: error: Only allocated 2 nodes asked for 3", False),
        ("srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)", False),
    ],
)  # fmt: skip
def test_whether_nodes_were_asked(said: str, reached: bool) -> None:
    assert was_reached([(READ, said)]) is reached


@given(st.text(), st.text())
def test_a_line_is_short_enough_for_srun_and_says_which_node(why: str, node: str) -> None:
    said = encoded("n1", {"check": "folders", "state": "failed", "why": why * 50})
    assert len(said) <= 1024
    assert said.count(b"\n") == 1
    told = parse(said.decode().rstrip("\n"))
    assert (told["node"], told["check"]) == ("n1", "folders")
    assert why.startswith(told["why"].rstrip("…")[:1])


@given(st.lists(st.text() | st.text().map(lambda text: MARK + text) | st.dictionaries(
    st.sampled_from(["node", "check", "state", "why", "time"]),
    st.none() | st.integers() | st.floats() | st.text() | st.sampled_from(NODES) | st.lists(st.integers()),
).map(lambda told: encoded("n1", told).decode())))  # fmt: skip
def test_no_line_makes_it_raise(lines: list[str]) -> None:
    heard = Heard([(READ, text) for text in lines], BEGAN)
    judged = judge(heard, NODES, 60, 5)
    assert set(NODES) - judged.answered <= set(judged.failed)
    cut_short(heard, NODES, judged)
    all_answered(heard.lines, NODES)
