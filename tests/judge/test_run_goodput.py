"""Where a run's time went over attempts and jobs, and how its attempts are read back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.goodput import Shares, Steps
from seatrial.judge.history import AttemptRecord, read_events, read_history
from seatrial.judge.run_goodput import Goodput, run_goodput
from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.judge.run_builder import BEGAN, Builder, as_of_old, at, seconds_at, three_attempts


def goodput(folder: RunFolder, now: float | None = None) -> Goodput:
    events = read_events(folder)
    found = run_goodput(read_history(folder, events, now), events, now)
    assert math.fsum(found.shares.values()) == pytest.approx(found.wall, abs=1e-6)
    return found


def rounded(found: Goodput) -> dict[str, float]:
    return {name: round(seconds, 3) for name, seconds in found.shares.items() if round(seconds, 3)}


WHOLE = {"queue": 90, "startup": 30, "productive": 100, "replayed": 10, "saving": 10, "idle": 41}


def test_three_attempts_in_two_jobs(tmp_path: Path) -> None:
    found = goodput(three_attempts(tmp_path))
    assert rounded(found) == WHOLE
    assert (found.wall, found.attempts, found.steps_productive, found.steps_replayed) == (281, 3, 100, 10)
    assert found.with_queue == pytest.approx(100 / 281)
    assert found.without_queue == pytest.approx(100 / 191)


def test_records_and_metrics_tell_the_same(tmp_path: Path) -> None:
    """What the supervisor did not put on record is made up from step records and events."""
    folder = three_attempts(tmp_path)
    for attempt in folder.attempts():
        record = records.read_json(attempt.record)
        del record["seconds"], record["steps"]
        records.write_json(attempt.record, record)
    assert rounded(goodput(folder)) == WHOLE


def test_a_job_that_found_nothing_to_do_is_no_part_of_the_run(tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    for second, name in ((900, "supervisor_started"), (901, "supervisor_ended")):
        records.append_line(folder.events, {"time": at(second), "event": name})
    assert rounded(goodput(folder)) == WHOLE


def test_an_old_run(tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    as_of_old(folder)
    # Every attempt was a job of its own then: the wait before the third one is queue.
    assert rounded(goodput(folder)) == WHOLE | {"queue": 100, "idle": 30}


def waiting(root: Path, second: float) -> tuple[RunFolder, Builder]:
    builder = Builder(root)
    builder.event(0, "submitted", job_id="12", submit_time=at(0))
    return builder.folder, builder


def test_a_run_that_waits_in_the_queue(tmp_path: Path) -> None:
    folder, _ = waiting(tmp_path, 30)
    assert rounded(goodput(folder, seconds_at(30))) == {"queue": 30}
    assert goodput(folder).without_queue is None


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    folder, builder = waiting(tmp_path, 0)
    builder.event(5, "supervisor_started", job_id="12", restart_count=0, host="n1", nodes=["n1"])
    builder.start(6, 0, "first", None)
    builder.steps(0, 1, 10, 16)
    (attempt,) = read_history(folder, now=seconds_at(30))
    assert (attempt.live, attempt.steps, attempt.data["job"]) == (True, Steps(10), {"id": "12", "restart": 0})
    expected = {"queue": 5, "startup": 10, "productive": 10, "idle": 5}
    assert rounded(goodput(folder, seconds_at(30))) == expected
    # Its job is gone and left no word: what it did last counts.
    assert rounded(goodput(folder)) == expected | {"idle": 1}


def test_a_lost_attempt_ends_with_its_last_sign_of_life(tmp_path: Path) -> None:
    folder, builder = waiting(tmp_path, 0)
    builder.event(5, "supervisor_started", job_id="12", restart_count=0, host="n1", nodes=["n1"])
    builder.start(5, 0, "first", None)
    builder.steps(0, 1, 10, 15)
    builder.event(26, "checkpoint_saved", step=10, attempt=0)
    builder.event(100, "supervisor_started", job_id="12", restart_count=1, host="n2", nodes=["n2"])
    builder.event(100, "evaluation", attempt=0, step=10, which="interval")  # read late from its logs
    lost = {
        "attempt": 0,
        "why": "unknown",
        "nodes": [],
        "started": None,
        "ended": None,
        "first_step": 1,
        "last_step": 10,
    }
    records.write_json(folder.attempt(0).record, lost)
    builder.event(100, "attempt_ended", attempt=0, outcome="failed", reason="lost", exit_code=None)
    (attempt,) = read_history(folder)
    assert attempt.ended == seconds_at(26)
    assert (attempt.data["why"], attempt.data["nodes"], attempt.data["reason"]) == ("first", ["n1"], "lost")
    assert rounded(goodput(folder))["queue"] == 5 + 74


def test_waiting_in_place_is_idle_and_waiting_between_jobs_is_queue(tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    lines = folder.events.read_text().splitlines(keepends=True)
    folder.events.write_text("".join(lines[: next(n for n, line in enumerate(lines) if '"attempt":2' in line)]))
    for path in folder.attempt(2).path.iterdir():
        path.unlink()
    folder.attempt(2).path.rmdir()
    assert rounded(goodput(folder, seconds_at(205)))["queue"] == 90
    records.append_event(folder.events, "x")
    records.append_line(folder.events, {"time": at(206), "event": "supervisor_ended", "exit_code": 1})
    assert rounded(goodput(folder, seconds_at(216)))["queue"] == 100


@pytest.mark.parametrize("text", ["", "{", "[]", '{"started": 5, "ended": "soon", "seconds": [], "decision": 3}', "\0"])
def test_torn_records(text: str, tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    folder.attempt(1).record.write_text(text)
    with folder.events.open("a") as stream:
        stream.write('{"event":"decis')
    history = read_history(folder)
    assert [one.number for one in history] == [0, 1, 2]
    assert history[1].data["reason"].startswith("rank 3")
    assert history[1].data["class"] == "network"
    # The end is then the last thing that it told of itself.
    assert history[1].ended == seconds_at(180)
    assert goodput(folder).wall == 281


def test_no_attempts(tmp_path: Path) -> None:
    folder = Builder(tmp_path).folder
    assert read_history(folder) == []
    assert goodput(folder) == Goodput()
    assert goodput(folder, now=1_796_000_000.0) == Goodput()


TIMES = st.floats(0, 1e5)
NAMES = st.sampled_from(["submitted", "supervisor_started", "supervisor_ended", "decision", "attempt_ended", "odd"])
EVENTS = st.lists(st.tuples(TIMES, NAMES), max_size=20)
ATTEMPTS = st.lists(st.tuples(TIMES, st.lists(st.floats(0, 1e4), min_size=6, max_size=6)), max_size=6)


@given(events=EVENTS, attempts=ATTEMPTS, now=st.one_of(st.none(), TIMES), live=st.booleans())
def test_the_parts_add_up_whatever_the_clocks_say(
    events: list[tuple[float, str]], attempts: list[tuple[float, list[float]]], now: float | None, live: bool
) -> None:
    history = [
        AttemptRecord(n, {}, seconds_at(began), seconds_at(began + sum(parts)), live, Shares(*parts), Steps(n, n))
        for n, (began, parts) in enumerate(attempts)
    ]
    told: list[dict[str, Any]] = [{"event": name, "time": at(second)} for second, name in events]
    found = run_goodput(history, told, None if now is None else seconds_at(now))
    assert all(seconds >= 0 for seconds in found.shares.values())
    assert math.fsum(found.shares.values()) == pytest.approx(found.wall, abs=1e-6)
    assert found.productive == pytest.approx(sum(parts[1] for _, parts in attempts), abs=1e-6)
    for part in (found.with_queue, found.without_queue):
        assert part is None or 0 <= part <= 1


JOBS = st.lists(st.tuples(st.floats(0, 1e3), st.floats(1, 1e3)), min_size=1, max_size=6)


@given(jobs=JOBS, later=st.floats(0, 1e3))
def test_the_wall_is_all_of_the_time(jobs: list[tuple[float, float]], later: float) -> None:
    """Jobs one after the other, each after a wait: the queue is the waits, and more time is more queue."""
    second, events, history = 0.0, [{"event": "submitted", "time": at(0)}], []
    for number, (wait, length) in enumerate(jobs):
        second += wait
        events.append({"event": "supervisor_started", "time": at(second)})
        ends = second + length
        history.append(
            AttemptRecord(number, {}, seconds_at(second), seconds_at(ends), False, Shares(0, length), Steps(1))
        )
        second = ends
        events.append({"event": "supervisor_ended", "time": at(second)})
    found = run_goodput(history, events)
    assert found.wall == pytest.approx(second, abs=1e-4)
    assert found.queue == pytest.approx(sum(wait for wait, _ in jobs), abs=1e-4)
    assert found.idle == pytest.approx(0, abs=1e-4)
    longer = run_goodput(history, events, BEGAN.timestamp() + second + later)
    assert longer.queue == pytest.approx(found.queue + later, abs=1e-4)
