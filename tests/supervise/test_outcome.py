"""What an attempt came to, and which rank failed first: tables of what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.run.checkpoint import CheckpointState
from seatrial.supervise import exit_codes
from seatrial.supervise.exits import RankEnd, first_bad, last_lines, read_exit_record
from seatrial.supervise.follow import Seen
from seatrial.supervise.outcome import Outcome, Target, decide

WHOLE = CheckpointState(100, True, "")
TORN = CheckpointState(100, False, "__0_0.distcp is missing")
FINAL = {(100, "validation"), (100, "test")}
GOOD = [RankEnd(0, 0, record={"code": 0}), RankEnd(1, 0, record={"code": 0})]
KILLED_FIRST = [RankEnd(0, 1, 3, record={"code": 1, "exception": "RuntimeError", "message": "lost"}), RankEnd(1, -9, 3)]


def seen(last: int | None = 100, evaluations: Any = FINAL, saved: tuple[int, ...] = ()) -> Seen:
    return Seen(1 if last else None, last, set(evaluations), list(saved))


@pytest.mark.parametrize(
    ("ends", "what", "checkpoint", "stop", "expected", "words"),
    [
        (GOOD, seen(), WHOLE, None, ("completed", 0), ["100 steps"]),
        (GOOD, seen(), WHOLE, "SIGUSR2", ("completed", 0), ["100 steps"]),
        (GOOD, seen(99), WHOLE, None, ("failed", exit_codes.NOT_DONE), ["step 99 of 100"]),
        (GOOD, seen(101), WHOLE, None, ("failed", exit_codes.NOT_DONE), ["step 101 of 100"]),
        (GOOD, seen(None, ()), TORN, None, ("failed", exit_codes.NOT_DONE), ["step None of 100"]),
        (GOOD, seen(), TORN, None, ("failed", exit_codes.NOT_DONE), ["__0_0.distcp is missing"]),
        (GOOD, seen(100, {(100, "test")}), WHOLE, None, ("failed", exit_codes.NOT_DONE), ["no final validation loss"]),
        (
            GOOD, seen(100, {(50, "validation"), (50, "test"), (100, "interval")}), WHOLE, None,
            ("failed", exit_codes.NOT_DONE), ["no final test and validation loss"],
        ),
        (GOOD, seen(57, (), (50, 57)), TORN, "SIGTERM", ("stopped", exit_codes.STOPPED), ["SIGTERM", "checkpoint 57"]),
        (GOOD, seen(7, ()), TORN, "the stop file", ("stopped", exit_codes.STOPPED), ["stop file", "nothing saved"]),
        (KILLED_FIRST, seen(), WHOLE, None, ("failed", 137), ["rank 1 ended with signal SIGKILL, without an exit"]),
        (KILLED_FIRST[:1], seen(), WHOLE, "SIGTERM", ("failed", 1), ["exit code 1: RuntimeError: lost"]),
        ([RankEnd(0, 0, record={"code": 3})], seen(), WHOLE, None, ("failed", 3), ["exit code 3"]),
        ([RankEnd(0, -11, record={"code": 0})], seen(), WHOLE, None, ("failed", 139), ["signal SIGSEGV"]),
        ([RankEnd(0, 16)], seen(), WHOLE, None, ("failed", 16), ["exit code 16"]),
        ([RankEnd(0, -64)], seen(), WHOLE, None, ("failed", 192), ["signal "]),
    ],
)  # fmt: skip
def test_decide(
    ends: list[RankEnd], what: Seen, checkpoint: CheckpointState, stop: str | None, expected: tuple[str, int],
    words: list[str],
) -> None:  # fmt: skip
    outcome = decide(ends, what, Target(100), checkpoint, stop=stop)
    assert (outcome.outcome, outcome.exit_code) == expected
    assert (outcome.exit_code == 0) == (outcome.outcome == "completed")
    for word in words:
        assert word in outcome.reason


def test_a_run_without_evaluation_owes_none() -> None:
    assert decide(GOOD, seen(100, ()), Target(100, ()), WHOLE).outcome == "completed"


def test_a_rank_that_failed_before_we_ended_the_others_goes_first() -> None:
    interruption = Outcome("failed", "hung", exit_codes.HUNG_AT_END)
    killed = [RankEnd(0, -9, killed=True), RankEnd(1, 0)]
    assert decide(killed, seen(), Target(100), WHOLE, interruption=interruption) == interruption
    assert decide([*killed, RankEnd(2, 42)], seen(), Target(100), WHOLE, interruption=interruption).exit_code == 42
    assert decide([RankEnd(0, None)], seen(), Target(100), WHOLE, interruption=interruption) == interruption


def at(time: str) -> dict[str, Any]:
    return {"code": 1, "time": f"2026-12-01T04:00:{time}+00:00"}


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        (GOOD, None),
        ([RankEnd(0, -9, killed=True)], None),
        ([RankEnd(0, None)], None),
        ([RankEnd(0, 1, 5), RankEnd(1, 1, 4)], 1),
        ([RankEnd(0, 1, 4, record=at("02.1")), RankEnd(1, 1, 4, record=at("01.9"))], 1),
        ([RankEnd(0, 1, 4, record=at("02.1")), RankEnd(1, 42, 4)], 1),
        ([RankEnd(0, 1, 4, record={"code": 1, "time": None}), RankEnd(1, 1, 4, record=at("01.9"))], 0),
        ([RankEnd(0, -9, 1, killed=True), RankEnd(1, 1, 2)], 1),
        ([RankEnd(3, 1, 4), RankEnd(2, 1, 4)], 2),
    ],
)
def test_first_bad(ends: list[RankEnd], first: int | None) -> None:
    found = first_bad(ends)
    assert (found.rank if found else None) == first


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, None])
def test_an_exit_record_that_cannot_be_read_is_none(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "exit-00000.json"
    if data is not None:
        path.write_bytes(data)
    assert read_exit_record(path) is None


def test_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert last_lines(path) == []
    path.write_bytes(b"x" * 200_000 + b"\n\n" + "ü\n".encode() * 3 + b"\xff torn")
    assert last_lines(path, 3) == ["ü", "ü", "\ufffd torn"]
    assert all(len(line) <= 500 for line in last_lines(path))
