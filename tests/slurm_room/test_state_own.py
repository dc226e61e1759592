"""What a run folder says of its own job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.run.layout import RunFolder
from seatrial.run.records import append_event
from seatrial.slurm.state_own import read_own
from tests.slurm_room.state_cases import REF

EVENTS = {
    "nothing": ([], None, "recorded nothing yet"),
    "only submitted": (["submitted"], None, "recorded nothing yet"),
    "an attempt": (["submitted", "attempt_started", "evaluation"], None, "'evaluation'"),
    "done": (["submitted", "attempt_started", ("done", 0)], "COMPLETED", "decided 'done'"),
    "done before the submission was noted": (
        ["attempt_started", ("done", 0), "submitted"],
        "COMPLETED",
        "decided 'done'",
    ),
    "stopped": (["submitted", "attempt_started", ("stop", 83)], "FAILED", "decided 'stop'"),
    "requeued": (["submitted", "attempt_started", ("requeue", 80)], None, "decided 'requeue'"),
    "stopped, then started again": (["submitted", ("stop", 83), "attempt_started"], None, "'attempt_started'"),
    "an earlier job of the run, and this one waits": (
        [("stop", 83), "again", "submitted"],
        None,
        "recorded nothing yet",
    ),
    "an earlier job of the run": ([("stop", 83), "again", "submitted", "attempt_started"], None, "'attempt_started'"),
}


@pytest.mark.parametrize("name", EVENTS)
def test_what_the_run_folder_says(tmp_path: Path, name: str) -> None:
    events, state, words = EVENTS[name]
    folder = RunFolder.create(tmp_path / "run")
    sent = "2000-01-01"
    for event in events:
        if event == "again":
            sent = json.loads(folder.events.read_text().splitlines()[-1])["time"] + "z"
        elif event == "submitted":
            append_event(folder.events, "submitted", job_id="7", submit_time=sent)
        elif isinstance(event, str):
            append_event(folder.events, event)
        else:
            append_event(folder.events, "decision", decision=event[0], exit_code=event[1], reason="why")
    own = read_own(replace(REF, folder=folder.path))
    assert own.state == state and words in own.words
    assert own.exit_code == (None if state is None else "0:0" if state == "COMPLETED" else "83:0")


def test_a_run_folder_that_is_gone_or_torn(tmp_path: Path) -> None:
    assert read_own(replace(REF, folder=tmp_path / "gone")).state is None
    (tmp_path / "events.jsonl").write_text('[1]\n"x"\nnull\n{"event": 5}\n{"event": "decision", "decis')
    assert read_own(replace(REF, folder=tmp_path)).state is None
