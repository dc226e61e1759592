"""What `watch` shows, as tables: records in, lines out."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.report.watch import View, event_words, job_words, lines, sparkline, step_words
from seatrial.slurm.state_records import JobState
from tests.report.test_facts import step

RUNNING = JobState("RUNNING", False, "", "squeue", "12", nodes="gb200-[001-002]")


def view(events: list[dict[str, Any]] = (), steps: list[dict[str, Any]] = ()) -> View:  # type: ignore[assignment]
    made = View("nano-gate-1")
    for second, event in enumerate(events):
        made.add_event({"time": f"2026-12-01T00:00:{second:02d}+00:00", **event})
    for record in steps:
        made.add_step(record)
    return made


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 10, ""),
        ([1.0], 10, "▁"),
        ([1.0, 2.0], 10, "▁█"),
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 8, "█▇▆▅▄▃▂▁"),
        ([1.0, 1.0, 1.0], 10, "▁▁▁"),
        ([1.0, None, 2.0], 10, "▁ █"),
        ([1.0, math.nan, 2.0, math.inf], 10, "▁!█!"),
        ([1.0, 1.0, 3.0, 3.0], 2, "▁█"),
        ([math.nan, 1.0, 3.0, 3.0], 2, "!▁"),
        ([1.0], 0, ""),
    ],
)
def test_sparkline(values: list[float | None], width: int, line: str) -> None:
    assert sparkline(values, width) == line


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=200), st.integers(0, 60), st.booleans())
def test_a_sparkline_always_fits(values: list[float | None], width: int, blocks: bool) -> None:
    line = sparkline(values, width, blocks=blocks)
    assert len(line) == min(width, len(values))
    assert blocks or line.isascii()


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        ([], "step 0/?"),
        ([step(1, 5.0, 250.0)], "step 1/100  loss 5.0000  grad norm missing  250 ms/step  ETA 25 s"),
        ([step(100, 5.0, 250.0)], "step 100/100  loss 5.0000  grad norm missing  250 ms/step  ETA 0 s"),
        ([step(3, "nan", None)], "step 3/100  loss nan  grad norm missing"),
    ],
)
def test_progress(steps: list[dict[str, Any]], line: str) -> None:
    assert step_words(view(steps=steps)) == line


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (None, "asking for the state of its job"),
        (RUNNING, "job 12: RUNNING on gb200-[001-002]"),
        (JobState("PENDING", False, "Priority", "squeue", "12"), "job 12: PENDING (Priority)"),
        (JobState("RUNNING", False, "", "squeue", "12", restarts=2), "job 12: RUNNING, restarted 2 times"),
        (JobState("UNKNOWN", False, "squeue: no answer", "nobody", None), "job -: UNKNOWN (squeue: no answer)"),
    ],
)
def test_the_job(job: JobState | None, said: str) -> None:
    assert job_words(job) == said


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"event": "submitted", "executor": "slurm", "job_id": "7"}, "submitted as job 7"),
        ({"event": "submitted", "executor": "local", "job_id": "7"}, "submitted as process 7"),
        ({"event": "attempt_started", "attempt": 0, "resume_step": None}, "attempt 0 starts"),
        ({"event": "attempt_started", "attempt": 1, "resume_step": 50}, "attempt 1 starts from checkpoint 50"),
        ({"event": "checkpoint_saved", "step": 50}, "checkpoint 50 saved"),
        (
            {"event": "evaluation", "which": "test", "step": 9, "losses": {"lm loss": 3.5}},
            "test loss 3.5000 at step 9",
        ),
        ({"event": "evaluation", "which": "test", "step": 9, "losses": {"lm loss": "nan"}}, "test loss nan at step 9"),
        ({"event": "rank_exited", "rank": 3, "code": 0, "how": "ended with exit code 0"}, ""),
        ({"event": "rank_exited", "rank": 3, "code": 9, "how": "was killed"}, "rank 3 was killed"),
        ({"event": "evidence"}, ""),
        ({"event": "decision", "decision": "stop", "exit_code": 8, "reason": "x"}, "decision: stop (exit code 8): x"),
        (
            {"event": "supervisor_started", "job_id": "7", "restart_count": 2, "nodes": [f"n{n}" for n in range(1, 7)]},
            "job 7, restart 2 runs on n1, n2, n3, n4 and 2 more",
        ),
        ({"event": "supervisor_started", "job_id": None, "host": "a", "nodes": None}, "runs on a"),
        ({"event": "supervisor_ended", "exit_code": 0}, ""),
        ({"event": "checkpoints_deleted", "steps": [50, 100]}, "checkpoints 50, 100 deleted"),
        ({"event": "returned", "done": True, "words": "job 7 is requeued", "excluded": []}, "job 7 is requeued"),
        ({"event": "requeue_requested", "by": "ada"}, "requeue asked for by ada"),
        ({"event": "supervisor_failed", "reason": "it broke"}, "supervisor_failed: it broke"),
        ({"event": "of_a_later_version"}, "of_a_later_version"),
        ({}, "None"),
    ],
)  # fmt: skip
def test_events_for_people(event: dict[str, Any], said: str) -> None:
    assert event_words(event) == said


def test_the_whole_view() -> None:
    made = view(
        [
            {"event": "submitted", "executor": "slurm", "job_id": "12"},
            {"event": "attempt_started", "attempt": 0, "why": "first"},
            {"event": "attempt_ended", "attempt": 0, "outcome": "failed", "reason": "a node was lost"},
            {
                "event": "decision", "decision": "requeue", "action": "requeue_excluding", "class": "node_failure",
                "exit_code": 1, "reason": "n2 is down", "exclude": ["n2"], "attempt": 0,
            },
            {"event": "attempt_started", "attempt": 1, "why": "resume", "resume_step": 2},
        ],
        [step(1, 5.0), step(2, 4.0), step(3, 3.0), step(3, 3.5, attempt=1), step(4, 3.0, attempt=1)],
    )  # fmt: skip
    job = JobState("RUNNING", False, "", "squeue", "12", nodes="n[1-2]", restarts=1, needs_action="look at n1")
    shown = lines(made, job, 90)
    assert shown == [
        "nano-gate-1",
        "job 12: RUNNING on n[1-2], restarted 1 times",
        "",
        "[##..........................................................]   4%",
        "step 4/100  loss 3.0000  grad norm missing  100 ms/step  ETA 10 s",
        "loss  █▅▃▁",
        "      steps 1-4: from 5.0000, least 3.0000",
        "",
        "attempt 0 (first): steps 1-3, failed: a node was lost [node failure]",
        "attempt 1 (resume): steps 3-4, running",
        "last decision: attempt 0 failed: node failure: n2 is down; requeued without n2",
        "latest: attempt 1 starts from checkpoint 2",
        "! look at n1",
        "",
        "q or Ctrl-C: leave; the run goes on",
    ]
    assert all(line.isascii() for line in lines(made, job, 60, blocks=False))
    assert all(len(line) <= 20 for line in lines(made, job, 20))


def test_many_attempts_are_cut() -> None:
    made = view([{"event": "attempt_started", "attempt": n} for n in range(9)])
    shown = lines(made, RUNNING, 80)
    assert "4 earlier attempts" in shown
    assert "attempt 3: no step, running" not in shown
    assert "attempt 8: no step, running" in shown


DECIDED = {"event": "decision", "decision": "stop", "exit_code": 83, "reason": "asked"}


@pytest.mark.parametrize(
    ("events", "ended"),
    [
        ([], False),
        ([DECIDED], True),
        ([DECIDED | {"decision": "requeue"}], False),
        ([DECIDED, {"event": "attempt_started", "attempt": 1}], False),
        ([DECIDED | {"decision": "restart"}], False),
        ([DECIDED, {"event": "supervisor_started"}], False),
        ([DECIDED, {"event": "submitted", "job_id": "8"}], False),
        ([DECIDED, {"event": "submitted", "job_id": "8", "submit_time": "2026-11-30T00:00:00+00:00"}], True),
    ],
)
def test_when_a_run_is_over(events: list[dict[str, Any]], ended: bool) -> None:
    assert view(events).ended is ended
