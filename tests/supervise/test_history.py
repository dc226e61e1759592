"""The memory that decisions rest on, from records and events that may be torn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise.history import History, Request, past_of, read_history
from seatrial.supervise.policy import EARLIER_CHECKPOINT, Past


def ended(resume: int | None, newest: int | None, action: str | None = "restart", **more: Any) -> dict[str, Any]:
    decision = {"action": action} if action else None
    return {"class": "network", "resume_step": resume, "newest_checkpoint": newest, "decision": decision, **more}


@pytest.mark.parametrize(
    ("found", "progress", "farther"),
    [
        ([], "", ""),
        ([ended(None, None)], "-", "-"),
        ([ended(None, 0)], "+", "+"),
        ([ended(None, 200), ended(200, 200), ended(200, 400)], "+-+", "+-+"),
        ([ended(None, 400), ended(400, None), ended(200, 400), ended(400, 600)], "+--+", "+--+"),
        # One that turned out bad: from the earlier one on it counts again, but farther is only what is beyond it.
        ([ended(None, 600), ended(600, 600, EARLIER_CHECKPOINT), ended(400, 400), ended(400, 500), ended(500, 800)],
         "+--++", "+---+"),
        ([ended(None, 600), ended(600, 600, EARLIER_CHECKPOINT), ended(400, 600), ended(600, 600)], "+-+-", "+---"),
        # A checkpoint that the run did not make itself.
        ([ended(1000, 1000), ended(1000, 1200)], "-+", "-+"),
        ([ended("x", "400"), {}, ended(None, 200, None)], "--+", "--+"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_progress(found: list[dict[str, Any]], progress: str, farther: str) -> None:
    past = past_of(found)
    assert "".join("-+"[one.progress] for one in past) == progress
    assert "".join("-+"[one.farther] for one in past) == farther


def test_what_the_policy_is_told() -> None:
    record = {
        "class": "unknown", "how": "unknown: ValueError", "failed_step": 7, "failed_node": "n3", "exit_code": 16,
        "newest_checkpoint": 5, "resume_step": None,
    }  # fmt: skip
    assert past_of([record]) == [Past("unknown", "unknown: ValueError", 7, "n3", True, True, 16)]
    assert past_of([{}]) == [Past("unknown")]


def make(root: Path, *attempts: Any) -> RunFolder:
    """Write a run folder; None is an attempt without a record, text one that is torn."""
    folder = RunFolder.create(root / "run")
    for record in attempts:
        attempt = folder.new_attempt()
        records.append_event(folder.events, "attempt_started", attempt=attempt.number)
        if isinstance(record, str):
            attempt.record.write_text(record)
        elif record is not None:
            records.write_json(attempt.record, {"attempt": attempt.number, **record})
    return folder


def test_an_empty_folder_has_no_history(tmp_path: Path) -> None:
    assert read_history(make(tmp_path)) == History([], [])


def test_attempts_add_up(tmp_path: Path) -> None:
    folder = make(
        tmp_path,
        {"saved_steps": [2, 4], "last_step": 5, "longest": {"step": 1.0, "save": 3.0}},
        "{",
        None,
        {"saved_steps": [6], "last_step": None, "longest": {"step": 2.0, "save": None}},
    )
    for step, which in ((6, "validation"), (6, "test"), (None, "validation")):
        records.append_event(folder.events, "evaluation", attempt=3, step=step, which=which)
    for decision in ("restart", "requeue"):
        records.append_event(folder.events, "decision", decision=decision)
    with folder.events.open("a") as stream:
        stream.write('[1]\n{"event": "deci')
    history = read_history(folder)
    assert [record["attempt"] for record in history.records] == [0, 3]
    assert (history.saved, history.trained) == ({2, 4, 6}, 5)
    assert (history.longest.step, history.longest.save) == (2.0, 3.0)
    assert history.evaluations == {(6, "validation"), (6, "test")}
    assert history.decision["decision"] == "requeue"
    assert history.counted == history.records


def test_a_person_takes_a_hand(tmp_path: Path) -> None:
    folder = make(tmp_path, {}, {})
    records.append_event(
        folder.events, "requeue_requested", from_step=200, exclude=["n1"], force_class="network", by="ada"
    )
    history = read_history(folder)
    assert history.request == Request(200, ("n1",), "network", after_attempt=1, open=True)
    assert (len(history.records), history.counted) == (2, [])
    # Once an attempt has begun it is taken up, and only what comes after it counts.
    records.append_event(folder.events, "attempt_started", attempt=2)
    records.write_json(folder.new_attempt().record, {"attempt": 2})
    history = read_history(folder)
    assert (history.request.open, history.request.after_attempt) == (False, 1)
    assert [record["attempt"] for record in history.counted] == [2]
    # The newest request is the one.
    records.append_event(folder.events, "requeue_requested", from_step=0, exclude=None)
    assert read_history(folder).request == Request(0, (), None, after_attempt=2, open=True)


def test_an_attempt_after_the_end_has_no_decision_yet(tmp_path: Path) -> None:
    """Brought back by hand, and lost: the stop before it is not its end."""
    folder = make(tmp_path, {})
    records.append_event(folder.events, "decision", decision="stop")
    assert read_history(folder).decision["decision"] == "stop"
    records.append_event(folder.events, "requeue_requested")
    assert read_history(folder).decision["decision"] == "stop"
    records.append_event(folder.events, "attempt_started", attempt=1)
    assert read_history(folder).decision == {}


def test_a_request_before_the_first_attempt(tmp_path: Path) -> None:
    folder = make(tmp_path)
    records.append_event(folder.events, "requeue_requested")
    assert read_history(folder).request == Request(open=True)


def test_a_request_that_came_to_nothing_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    records.append_event(folder.events, "attempt_started", attempt=0)
    records.append_event(folder.events, "requeue_requested", from_step=8)
    records.append_event(folder.events, "requeue_requested", from_step=4)
    records.append_event(folder.events, "requeue_failed")
    request = read_history(folder).request
    assert (request.from_step, request.after_attempt, request.open) == (8, 0, True)
