"""Reading a run folder cheaply gives what reading all of it would."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.report import facts
from seatrial.report.decisions import Standing
from seatrial.report.facts import last_records, newest_events, read_facts
from seatrial.run import records
from seatrial.run.layout import RunFolder

NAMES = ("submitted", "attempt_started", "decision", "verdict")
OTHERS = (
    "submitted", "supervisor_started", "supervisor_ended", "attempt_started", "requeue_requested", "odd"
)  # fmt: skip
SPEC = {
    "recipe": "nano", "kind": "gate", "profile": {"name": "local-cpu"}, "created": "2026-12-01T00:00:00+00:00",
    "provenance": {"host": "login"}, "fields": {"schedule.train_iters": {"value": 100}},
}  # fmt: skip


def run(root: Path, events: list[dict[str, Any]], steps: list[dict[str, Any]] | None = None) -> RunFolder:
    """Make a run folder; the events' times count up in seconds."""
    folder = RunFolder.create(root / "run")
    records.write_json(folder.spec, SPEC)
    for second, event in enumerate(events):
        records.append_line(folder.events, {"schema": 1, "time": f"2026-12-01T00:00:{second:02d}+00:00", **event})
    for step in steps or []:
        records.append_line(folder.metrics, step)
    return folder


def step(number: int, loss: Any = 4.0, ms: Any = 100.0, of: int = 100, attempt: int = 0) -> dict[str, Any]:
    return {"attempt": attempt, "step": number, "of": of, "step_time_ms": ms, "losses": {"lm loss": loss}}


SENT = {"event": "submitted", "executor": "local", "job_id": "1"}
STARTED = {"event": "attempt_started", "attempt": 0}
STOPPED = {"event": "decision", "decision": "stop", "exit_code": 83, "reason": "asked"}
PASSED = {"event": "verdict", "verdict": "PASS"}
LATER = {"submit_time": "2026-12-01T01:00:00+00:00"}


@pytest.mark.parametrize(
    ("events", "ended", "verdict", "attempt"),
    [
        ([], False, None, None),
        ([SENT], False, None, None),
        ([SENT, STARTED], False, None, 0),
        ([SENT, STARTED, PASSED, STOPPED], True, "PASS", 0),
        ([SENT, STARTED, STOPPED, STARTED | {"attempt": 1}], False, None, 1),
        ([SENT, STARTED, PASSED, STOPPED, STARTED | {"attempt": 1}], False, None, 1),
        ([SENT, STARTED, STOPPED, SENT | LATER], False, None, 0),
        ([SENT, STARTED, STOPPED | {"decision": "requeue"}], False, None, 0),
        ([SENT, STARTED, STOPPED | {"decision": "restart"}], False, None, 0),
        ([SENT, STARTED, STOPPED | {"decision": "restart"}, STARTED | {"attempt": 1}, STOPPED], True, None, 1),
        # Brought back by hand.
        ([SENT, STARTED, STOPPED, {"event": "requeue_requested", "by": "ada"}], False, None, 0),
        ([SENT, STARTED, STOPPED, {"event": "supervisor_started"}], False, None, 0),
        # Slurm started its job again, which found nothing to do.
        ([SENT, STARTED, STOPPED, {"event": "supervisor_started"}, {"event": "supervisor_ended"}], True, None, 0),
        ([SENT, {"event": "supervisor_started"}, STARTED, STOPPED, {"event": "supervisor_ended"}], True, None, 0),
        # A quick job writes before the submission does.
        ([STARTED, STOPPED, SENT | {"submit_time": "2026-11-30T23:59:59+00:00"}], True, None, 0),
    ],
)
def test_ended(
    events: list[dict[str, Any]], ended: bool, verdict: str | None, attempt: int | None, tmp_path: Path
) -> None:
    found = read_facts(run(tmp_path, events))
    assert (found.ended, found.verdict, found.attempt) == (ended, verdict, attempt)


def test_progress(tmp_path: Path) -> None:
    found = read_facts(run(tmp_path, [SENT, STARTED], [step(n, 5.0 - n / 10, 1000.0) for n in range(1, 31)]))
    assert (found.step, found.total, found.loss) == (30, 100, 2.0)
    assert found.eta_seconds == 70
    assert found.stepped_at is not None
    assert (found.recipe, found.kind, found.profile, found.host) == ("nano", "gate", "local-cpu", "login")


@pytest.mark.parametrize("said", ["nan", "inf", None])
def test_numbers_that_are_none(said: Any, tmp_path: Path) -> None:
    found = read_facts(run(tmp_path, [], [step(1, said, None)]))
    assert found.eta_seconds is None
    assert found.loss is None or found.loss != found.loss or found.loss == float("inf")


def test_before_the_first_step_the_spec_says_the_target(tmp_path: Path) -> None:
    found = read_facts(run(tmp_path, [SENT]))
    assert (found.step, found.total, found.loss, found.stepped_at) == (0, 100, None, None)


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff\xfe"])
def test_a_spec_that_cannot_be_read_is_a_word(text: str, tmp_path: Path) -> None:
    folder = run(tmp_path, [SENT])
    folder.spec.write_text(text, encoding="latin-1")
    assert "spec" in read_facts(folder).unreadable


def test_what_is_torn_is_passed_over(tmp_path: Path) -> None:
    folder = run(tmp_path, [SENT, STARTED], [step(1), step(2)])
    for path in (folder.metrics, folder.events):
        with path.open("a") as stream:
            stream.write('{"event":"decision","decision":"st')
    found = read_facts(folder)
    assert (found.step, found.ended, found.attempt) == (2, False, 0)


@given(st.lists(st.sampled_from([*OTHERS, "done", "stop", "restart", "requeue"]), max_size=20))
def test_all_readers_agree_on_whether_a_run_is_over(names: list[str]) -> None:
    """From the ends of its file, and event by event."""
    events = [{"event": name} if name in OTHERS else {"event": "decision", "decision": name} for name in names]
    with tempfile.TemporaryDirectory() as root:
        folder, standing = run(Path(root), events), Standing()
        for event in records.read_lines(folder.events):
            standing.add(event)
        assert read_facts(folder).ended is standing.ended


NOISE = st.sampled_from(["rank_exited", "evaluation", "odd"])
EVENTS = st.lists(st.one_of(NOISE, st.sampled_from(NAMES)), max_size=60)


@given(names=EVENTS, block=st.integers(1, 400), torn=st.booleans())
def test_the_newest_events_are_those_of_a_whole_reading(names: list[str], block: int, torn: bool) -> None:
    wanted = {}
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "events.jsonl"
        for number, name in enumerate(names):
            # A reason that quotes an event, and a nested one, are none.
            event = {"event": name, "n": number, "reason": '"event":"verdict"', "inner": {"event": "decision"}}
            records.append_line(path, event)
            if name in NAMES:
                wanted[name] = event
        if torn:
            with path.open("a") as stream:
                stream.write('{"event":"verdict"')
        before, facts._FIRST_BLOCK = facts._FIRST_BLOCK, block
        try:
            assert newest_events(path, NAMES) == wanted
        finally:
            facts._FIRST_BLOCK = before


@given(count=st.integers(0, 30), most=st.integers(1, 2000))
def test_last_records_are_whole_and_last(count: int, most: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "metrics.jsonl"
        lines = [{"step": n, "text": "x" * (n * 7 % 40)} for n in range(count)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        found = last_records(path, 5, most)
        assert found == lines[len(lines) - len(found) :]
        assert len(found) <= 5
        if most >= path.stat().st_size:
            assert found == lines[-5:]
