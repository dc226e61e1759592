"""Where an attempt's time went: by definition on tables of cases, and adding up whatever the times say."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import astuple
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge import clock
from seatrial.judge.goodput import Shares, Steps, attempt_shares
from seatrial.judge.records import StepRecord

BEGAN = datetime(2026, 12, 1, 10, 0, 0, tzinfo=timezone.utc).timestamp()


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Set this process's time zone."""

    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


def printed(seconds: float) -> str:
    """The time that Megatron prints ``seconds`` after the beginning, in this process's zone."""
    return datetime.fromtimestamp(BEGAN + seconds).isoformat(timespec="microseconds")


def step(number: int, at: float | None, seconds: float | None = 1.0) -> StepRecord:
    ms = None if seconds is None else seconds * 1000
    return StepRecord(number, 100, time=None if at is None else printed(at), step_time_ms=ms)


def shares(wall: float, steps: list[StepRecord], **marks: Any) -> tuple[tuple[float, ...], Steps]:
    for name in ("saves", "evaluations"):
        if name in marks:
            marks[name] = [
                (a, b if b is None or isinstance(b, str) else BEGAN + b, BEGAN + c) for a, b, c in marks[name]
            ]
    found, counts = attempt_shares(BEGAN, BEGAN + wall, steps, **marks)
    assert found.total == pytest.approx(wall, abs=1e-6)
    return tuple(round(share, 3) for share in astuple(found)), counts


THREE = [step(1, 11, 1), step(2, 12, 1), step(3, 13, 1)]
SAVED = [step(1, 11, 1), step(2, 16, 1)]  # 4 s between them


@pytest.mark.parametrize(
    ("wall", "steps", "marks", "expected", "counts"),
    [
        # startup, productive, replayed, saving, evaluating, idle
        (15, THREE, {}, (10, 3, 0, 0, 0, 2), (3, 0)),
        (15, THREE, {"trained_before": 2}, (10, 1, 2, 0, 0, 2), (1, 2)),
        (15, THREE, {"trained_before": 900}, (10, 0, 3, 0, 0, 2), (0, 3)),
        (20, [], {}, (20, 0, 0, 0, 0, 0), (0, 0)),
        (0, [], {}, (0, 0, 0, 0, 0, 0), (0, 0)),
        # a gap is a save's as far as one lies in it
        (16, SAVED, {"saves": [(1, 11.5, 14)]}, (10, 2, 0, 2.5, 0, 1.5), (2, 0)),
        (16, SAVED, {"saves": [(1, None, 14)]}, (10, 2, 0, 3, 0, 1), (2, 0)),
        (16, SAVED, {"saves": [(1, 11.5, 13), (1, 12, 14)]}, (10, 2, 0, 2.5, 0, 1.5), (2, 0)),
        # one that goes on beside the steps (--async-save) costs the gap only
        (20, [*SAVED, step(3, 17, 1)], {"saves": [(1, 11, 19)]}, (10, 3, 0, 6, 0, 1), (3, 0)),
        # an evaluation takes what the save leaves
        (16, SAVED, {"evaluations": [(1, "interval", 14.9)]}, (10, 2, 0, 0, 3.9, 0.1), (2, 0)),
        (16, SAVED, {"evaluations": [(1, "interval", 15.5)]}, (10, 2, 0, 0, 4, 0), (2, 0)),
        (
            16, SAVED, {"evaluations": [(1, "interval", 13)], "saves": [(1, 13, 14.5)]},
            (10, 2, 0, 1.5, 2, 0.5), (2, 0),
        ),
        (16, SAVED, {"evaluations": [(9, "interval", 13)]}, (10, 2, 0, 0, 0, 4), (2, 0)),
        # after the last step: save, final evaluations, then the ranks' end
        (
            30, THREE, {"saves": [(3, 13.5, 16)], "evaluations": [(3, "validation", 20), (3, "test", 24)]},
            (10, 3, 0, 2.5, 8.5, 6), (3, 0),
        ),
        # a line for every third step: 1, 3, 6
        (20, [step(1, 11, 1), step(3, 13, 1), step(6, 16, 1)], {"trained_before": 4}, (10, 2, 4, 0, 0, 4), (2, 4)),
        # a step's own time is no longer than its gap
        (14, [step(1, 11, 1), step(2, 13, 50)], {}, (10, 3, 0, 0, 0, 1), (2, 0)),
        (14, [step(1, 11, 500), step(2, 13, 2)], {}, (0, 13, 0, 0, 0, 1), (2, 0)),
        # no evaluations but the final ones, and no step at all (--skip-train)
        (30, [], {"evaluations": [(100, "validation", 20), (100, "test", 24)]}, (20, 0, 0, 0, 4, 6), (0, 0)),
        # times that are missing, or that no clock shows: the steps' own times tell
        (15, [step(1, 11, 1), step(2, None, 1), step(3, 13, 1)], {}, (10, 3, 0, 0, 0, 2), (3, 0)),
        (15, [step(1, None, 1), step(2, None, 1), step(3, 13, 1)], {}, (10, 3, 0, 0, 0, 2), (3, 0)),
        (15, [step(n, None, 1) for n in (1, 2, 3)], {}, (12, 3, 0, 0, 0, 0), (3, 0)),
        (15, [step(1, 11, 1), step(2, 1e7, 1), step(3, 13, 1)], {}, (10, 3, 0, 0, 0, 2), (3, 0)),
        (15, [step(1, 11, 1), step(2, 5, 1), step(3, 13, 1)], {}, (10, 3, 0, 0, 0, 2), (3, 0)),
        # a step whose own time is not known took a typical one's
        (18, [step(1, 11, 1), step(2, 15, None), step(3, 16, 1)], {}, (10, 3, 0, 0, 0, 5), (3, 0)),
        (18, [step(1, 11, 1), step(2, 15, math.nan), step(3, 16, 1)], {}, (10, 3, 0, 0, 0, 5), (3, 0)),
        # a step done twice in one attempt
        (15, [step(1, 11, 1), step(2, 12, 1), step(2, 13, 1)], {}, (10, 2, 1, 0, 0, 2), (2, 1)),
    ],
)  # fmt: skip
def test_shares(
    wall: float, steps: list[StepRecord], marks: dict[str, Any], expected: tuple[float, ...], counts: tuple[int, int]
) -> None:
    assert shares(wall, steps, **marks) == (expected, Steps(*counts))


def test_an_end_before_the_beginning_is_no_time() -> None:
    assert attempt_shares(BEGAN, BEGAN - 5, THREE)[0] == Shares()


@pytest.mark.parametrize("host", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"])
@pytest.mark.parametrize("ranks", ["UTC", "Asia/Kathmandu", "America/Los_Angeles"])
def test_ranks_in_another_zone(host: str, ranks: str, zone: Any) -> None:
    zone(ranks)
    steps = [step(1, 11, 1), step(2, 12, 1), step(3, 13, 1)]
    zone(host)
    assert shares(15, steps)[0] == (10, 3, 0, 0, 0, 2)


def test_the_hour_that_comes_twice(zone: Any) -> None:
    zone("Europe/Berlin")
    began = datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc).timestamp()  # 02:30, summer time
    ends = [began + 1200.0 * n for n in range(1, 10)]  # over 03:00, which is 02:00 again
    texts = [datetime.fromtimestamp(end).isoformat() for end in ends]
    assert texts[0] > texts[1]
    assert clock.printed(texts, began, ends[-1] + 60) == ends


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-12-01T10:00:00.000000+00:00", 0.0), ("2026-12-01T11:00:00+01:00", 0.0), ("2026-12-01T10:00:01Z", 1.0),
        ("2026-12-01T10:00:01", 1.0), ("2026-12-01T10:00:00.5", 0.5), ("2026-12-01T10:00:00.123456789", 0.123456),
        ("", None), ("soon", None), (None, None), (7, None),
    ],
)  # fmt: skip
def test_times_of_our_own_records(text: Any, seconds: float | None) -> None:
    found = clock.of_record(text)
    assert (found is None) if seconds is None else found == pytest.approx(BEGAN + seconds)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.9", "2026-13-01", "x"])
def test_times_that_no_attempt_has(text: str, zone: Any) -> None:
    for name in ("Asia/Kathmandu", "America/Los_Angeles"):
        zone(name)
        (found,) = clock.printed([text], BEGAN, BEGAN + 60)
        assert found is None or not BEGAN <= found <= BEGAN + 60


# -- whatever the times say

AT = st.one_of(st.none(), st.floats(-1e5, 1e5), st.sampled_from([0.0, 1e9, -1e9]))
OWN = st.one_of(st.none(), st.floats(0, 1e4), st.sampled_from([math.nan, math.inf, -1.0]))
STEPS = st.lists(st.builds(step, st.integers(1, 60), AT, OWN), max_size=20)
TIME = st.one_of(st.floats(-1e4, 1e5), st.sampled_from([math.nan, math.inf, -math.inf]))
MARKS = st.fixed_dictionaries({
    "saves": st.lists(st.tuples(st.integers(0, 60), st.one_of(st.none(), TIME), TIME), max_size=6),
    "evaluations": st.lists(st.tuples(st.integers(0, 60), st.just("interval"), TIME), max_size=6),
})  # fmt: skip


def moved(marks: dict[str, Any]) -> dict[str, Any]:
    saves = [(n, start if start is None else BEGAN + start, BEGAN + end) for n, start, end in marks["saves"]]
    return {"saves": saves, "evaluations": [(n, which, BEGAN + end) for n, which, end in marks["evaluations"]]}


@given(wall=st.floats(-10, 1e5), steps=STEPS, marks=MARKS, before=st.integers(0, 70))
def test_shares_always_add_up(wall: float, steps: list[StepRecord], marks: dict[str, Any], before: int) -> None:
    ended = BEGAN + wall
    found, counts = attempt_shares(BEGAN, ended, steps, trained_before=before, **moved(marks))
    assert all(share >= 0 for share in astuple(found)), found
    assert abs(found.total - max(0.0, ended - BEGAN)) < 1e-6
    assert counts.productive >= 0
    assert counts.replayed >= 0
    assert counts.productive + counts.replayed >= len(steps)


@given(steps=STEPS, marks=MARKS, before=st.integers(0, 70), more=st.integers(0, 20))
def test_what_was_trained_before_only_moves_steps(
    steps: list[StepRecord], marks: dict[str, Any], before: int, more: int
) -> None:
    less, few = attempt_shares(BEGAN, BEGAN + 5e4, steps, trained_before=before, **moved(marks))
    most, many = attempt_shares(BEGAN, BEGAN + 5e4, steps, trained_before=before + more, **moved(marks))
    assert most.replayed >= less.replayed - 1e-6
    assert many.replayed >= few.replayed
    assert many.replayed + many.productive == few.replayed + few.productive
    for name in ("startup", "saving", "evaluating", "idle"):
        assert getattr(most, name) == pytest.approx(getattr(less, name), abs=1e-6)


ORDERED = st.lists(st.tuples(st.floats(0, 20), st.floats(0.001, 20)), min_size=1, max_size=20)


@given(gaps=ORDERED, marks=MARKS, wait=st.floats(0, 100), longer=st.floats(0, 100))
def test_a_later_end_takes_nothing_away(
    gaps: list[tuple[float, float]], marks: dict[str, Any], wait: float, longer: float
) -> None:
    at, steps = 0.0, []
    for number, (pause, own) in enumerate(gaps, 1):
        at += pause + own
        steps.append(step(number, at, own))
    known = {key: [mark for mark in value if all(math.isfinite(x) for x in mark if isinstance(x, float))]
             for key, value in moved(marks).items()}  # fmt: skip
    sooner, _ = attempt_shares(BEGAN, BEGAN + at + wait + 0.1, steps, **known)
    later, _ = attempt_shares(BEGAN, BEGAN + at + wait + longer + 0.1, steps, **known)
    for less, more in zip(astuple(sooner), astuple(later), strict=True):
        assert more >= less - 1e-6


@given(gaps=ORDERED)
def test_steps_alone_are_all_productive(gaps: list[tuple[float, float]]) -> None:
    at, steps = 0.0, []
    for number, (pause, own) in enumerate(gaps, 1):
        at += pause + own
        steps.append(step(number, at, own))
    found, counts = attempt_shares(BEGAN, BEGAN + at + 0.001, steps)
    assert found.productive == pytest.approx(sum(own for _, own in gaps), abs=0.01)
    assert found.startup == pytest.approx(gaps[0][0], abs=0.01)
    assert counts == Steps(len(gaps), 0)


@given(wall=st.floats(0, 1e5), steps=STEPS, marks=MARKS)
def test_shares_survive_json(wall: float, steps: list[StepRecord], marks: dict[str, Any]) -> None:
    found, counts = attempt_shares(BEGAN, BEGAN + wall, steps, **moved(marks))
    assert Shares.from_json(found.to_json()) == found
    assert Steps.from_json(counts.to_json()) == counts


@pytest.mark.parametrize(
    "data", [{}, {"startup": 1}, {**Shares().to_json(), "idle": -1}, {**Shares().to_json(), "idle": "nan"}]
)
def test_what_are_no_shares(data: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Shares.from_json(data)


def test_a_long_attempt_is_quick() -> None:
    steps = [step(n, 10.0 * n, 9.0) for n in range(1, 20_001)]
    saves = [(n, BEGAN + 10.0 * n, BEGAN + 10.0 * n + 1) for n in range(1, 20_001, 20)]
    evaluations = [(n, "interval", BEGAN + 10.0 * n + 1) for n in range(1, 20_001, 40)]
    began = time.process_time()
    attempt_shares(BEGAN, BEGAN + 200_100, steps, saves, evaluations)
    assert time.process_time() - began < 2
