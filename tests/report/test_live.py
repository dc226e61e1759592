"""Following a run over several attempts and jobs, as a reader beside the writer sees it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.report.live import follow
from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.judge.run_builder import three_attempts

LINES = [
    "attempt 0 stopped: asked to stop by the time limit; step 40 of 100, checkpoint 40 saved",
    "attempt 0 ended: time limit: the slot is used up; it got from step 0 to 40; requeued",
    "attempt 1 starts from checkpoint 40",
    "attempt 1 failed: rank 3 ended with signal SIGKILL, without an exit record",
    "attempt 1 failed: network: 1 of 3 failures without a newer checkpoint; restarting in place without n2 in 10 s",
    "attempt 2 starts from checkpoint 50",
    "attempt 2 completed: 100 steps",
    "decision: done (exit code 0, complete): 100 steps",
]


def steps_of(text: str) -> list[int]:
    return [int(line.split()[1].split("/")[0]) for line in text.splitlines() if line.startswith("step ")]


def told(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("step ")]


def test_a_run_of_several_attempts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = three_attempts(tmp_path)
    assert follow(folder, 100, lambda: True) is False  # a convergence run has no verdict
    text = capsys.readouterr().out
    assert told(text) == LINES
    # Step 60 is printed by both attempts that did it.
    assert steps_of(text) == [1, 10, 20, 30, 40, 50, 60, 60, 70, 80, 90, 100]


def test_it_reads_on_while_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same records, written bit by bit beside the reader: no decision but the last one ends it."""
    source = three_attempts(tmp_path, "source")
    folder = RunFolder.create(tmp_path / "run")
    ended = threading.Event()

    def write() -> None:
        events = list(records.read_lines(source.events))
        metrics = list(records.read_lines(source.metrics))
        for event in events:
            attempt = event.get("attempt")
            if event["event"] == "attempt_ended":
                for step in [step for step in metrics if step["attempt"] == attempt]:
                    records.append_line(folder.metrics, step)
                time.sleep(0.3)
            records.append_line(folder.events, event)
            if event["event"] == "decision":
                time.sleep(0.3)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    follow(folder, 100, lambda: True)
    writer.join()
    assert ended.is_set()
    text = capsys.readouterr().out
    assert told(text) == LINES
    assert steps_of(text)[-1] == 100


def brought_back(folder: RunFolder) -> None:
    records.append_event(folder.events, "supervisor_started", job_id="13", restart_count=0, host="n1", nodes=["n1"])


def judged(folder: RunFolder) -> None:
    records.write_json(folder.verdict, {"verdict": "PASS"})


def nothing(folder: RunFolder) -> None:
    pass


@pytest.mark.parametrize(
    ("more", "polls", "verdict"),
    [(nothing, 1, False), (judged, 1, True), (brought_back, 3, False)],
    ids=["a final decision", "with a verdict", "brought back: until its job is gone"],
)
def test_when_following_ends(
    more: Callable[[RunFolder], None], polls: int, verdict: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = three_attempts(tmp_path)
    more(folder)
    left = iter([True, True, False])
    asked: list[bool] = []
    assert follow(folder, 100, lambda: asked.append(next(left)) or asked[-1]) is verdict
    assert len(asked) == polls


def test_a_job_that_is_gone_ends_it_without_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = three_attempts(tmp_path)
    judged(folder)  # of an earlier end
    folder.events.unlink()
    assert follow(folder, 100, lambda: False) is False
