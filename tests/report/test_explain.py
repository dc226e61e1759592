"""What `explain` says of a run: new, old, live, torn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.report.explain import explanation
from seatrial.report.explain_words import lines
from seatrial.run import records
from tests.judge.run_builder import NEW_KEYS, Builder, as_of_old, at, seconds_at, three_attempts

WHOLE = """\
run-1 (convergence, nano, slurm-sandbox)
admission: by gate gate-1

attempt 0: the run's first
  started     2026-12-01 10:01:00 UTC, job 12
  nodes       n1, n2
  from        step 1, no checkpoint
  steps       1-40; saved 40; newest whole checkpoint 40
  ended       2026-12-01 10:02:00 UTC, after 60 s: stopped: asked to stop by the time limit; step 40 of 100, \
checkpoint 40 saved
  stop asked  by the time limit; saved on signal: yes
  class       time limit: the slot's end was near
  decision    requeued: the slot is used up; it got from step 0 to 40
  time        start-up 10.0 s, productive 40.0 s, saving 5.0 s, idle 5.0 s

attempt 1: resumed
  started     2026-12-01 10:02:30 UTC, job 12 (restart 1)
  nodes       n1, n2
  from        checkpoint 40
  steps       41-60; saved 50; newest whole checkpoint 50
  ended       2026-12-01 10:03:20 UTC, after 50 s: failed: rank 3 ended with signal SIGKILL, without an exit record
  class       network: 'NCCL WARN' in rank 3's log
  failed      rank 3 first, on n2, at step 61
    | NCCL WARN timeout
    | Killed [red]
  decision    restarting in place without n2 in 10 s: 1 of 3 failures without a newer checkpoint
  time        start-up 10.0 s, productive 20.0 s, idle 20.0 s

attempt 2: resumed
  started     2026-12-01 10:03:30 UTC, job 12 (restart 1)
  nodes       n1, n2
  from        checkpoint 50: the newest whole one
  passed over iter_0000060: it lacks 2 files
  steps       51-100 (10 of them again); saved 100; newest whole checkpoint 100
  ended       2026-12-01 10:04:40 UTC, after 70 s: completed: 100 steps
  class       complete
  decision    done: 100 steps
  time        start-up 10.0 s, productive 40.0 s, replayed 10.0 s, saving 5.0 s, idle 5.0 s

nodes left out: n2 (after attempt 1)
done (exit code 0, complete): 100 steps

time              seconds      %
queue                90.0   32.0
start-up             30.0   10.7
productive          100.0   35.6
replayed             10.0    3.6
saving               10.0    3.6
evaluating            0.0    0.0
idle                 41.0   14.6
wall                281.0  100.0
goodput: 35.6% of the wall time, 52.4% without the queue
steps: 100 for the first time, 10 again"""


def text(data: dict[str, Any]) -> str:
    json.dumps(data, allow_nan=False)
    return "\n".join(lines(data))


def test_the_whole(tmp_path: Path) -> None:
    assert text(explanation(three_attempts(tmp_path), None)) == WHOLE


def test_one_attempt(tmp_path: Path) -> None:
    data = explanation(three_attempts(tmp_path), None, 1)
    assert [one["attempt"] for one in data["attempts"]] == [1]
    assert data["goodput"]["attempts"] == 3
    assert "Killed [red]" in text(data)
    with pytest.raises(SeatrialError, match="no attempt 7"):
        explanation(three_attempts(tmp_path, "run-2"), None, 7)


def test_an_old_run_says_what_is_not_recorded(tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    as_of_old(folder)
    data = explanation(folder, None)
    assert set(data["attempts"][1]["not_recorded"]) == set(NEW_KEYS) - {"checkpoint_why", "seconds", "steps"}
    shown = text(data)
    assert "  class       not recorded" in shown
    assert "  decision    not recorded" in shown
    assert "  failed      rank 3 first, on a node that is not recorded" in shown
    assert "saved on signal: not recorded" in shown
    assert "productive          100.0" in shown
    # The last decision is on record, though it names no attempt.
    assert data["attempts"][2]["decision"]["decision"] == "done"


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    builder.event(0, "submitted", job_id="12", submit_time=at(0))
    assert "no attempt yet" in text(explanation(builder.folder, seconds_at(10)))
    builder.event(10, "supervisor_started", job_id="12", restart_count=0, host="n1", nodes=["n1"])
    builder.start(10, 0, "first", None)
    builder.steps(0, 1, 10, 20)
    data = explanation(builder.folder, seconds_at(40))
    assert data["attempts"][0]["not_recorded"] == []
    shown = text(data)
    for line in ("  started     2026-12-01 10:00:10 UTC, job 12", "  steps       10 so far", "  ended       not yet",
                 "it goes on", "  time        start-up 10.0 s, productive 10.0 s, idle 10.0 s"):  # fmt: skip
        assert line in shown.splitlines()
    # Its job is gone, and left no word.
    assert "its job is over, and its supervisor left no decision" in text(explanation(builder.folder, None))


def test_requests_by_hand_stand_where_they_were_made(tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    for second in (205, 400):
        asked = {"from_step": 50, "exclude": ["n9"], "force_class": None, "profile": None, "by": "ada"}
        records.append_line(folder.events, {"time": at(second), "event": "requeue_requested", **asked})
    data = explanation(folder, None)
    shown = text(data).splitlines()
    wanted = "2026-12-01 10:03:25 UTC: requeue asked for by ada, from step 50, without n9"
    assert shown.index(wanted) < shown.index("attempt 2: resumed")
    assert shown.index("attempt 2: resumed") < shown.index(wanted.replace("10:03:25", "10:06:40"))
    assert {"node": "n9", "by": "ada"} in data["excluded_nodes"]
    # Asked for after the final decision: it is not over, and where nobody took it up no decision is left.
    assert data["decision"] is None


@pytest.mark.parametrize(
    ("admission", "said"),
    [
        (None, None),
        ({"how": "none", "reason": "the gate's node is gone"}, "admission: without a gate: the gate's node is gone"),
        ({"how": "after-gate", "gate": "g"}, "admission: by gate g (submitted with it)"),
    ],
)
def test_admissions(admission: Any, said: str | None, tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    records.write_json(folder.spec, {**records.read_json(folder.spec), "admission": admission})
    found = [line for line in lines(explanation(folder, None)) if line.startswith("admission")]
    assert found == ([said] if said else [])


@pytest.mark.parametrize("name", ["spec.json", "events.jsonl", "metrics.jsonl", "attempts/001/record.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]\n", b"\xff\xfe\x00", b'{"attempt":1,"decision":[1],"nodes":7}\n'])
def test_whatever_is_torn_the_rest_is_told(name: str, content: bytes, tmp_path: Path) -> None:
    folder = three_attempts(tmp_path)
    (folder.path / name).write_bytes(content)
    shown = text(explanation(folder, None))
    assert "attempt 2: resumed" in shown
    assert "goodput:" in shown


def test_preflights(tmp_path: Path) -> None:
    """Each before its attempt; one that no attempt followed stands alone."""
    builder = Builder(tmp_path)
    asked = {"tries": 1, "nodes": ["n1", "n2", "n3"], "failed": {}, "skipped": ["xid"], "seconds": 1.2, "asked": True}
    builder.event(5, "preflight", attempt=0, **asked)
    builder.start(10, 0, "first", None)
    failed = {"n2": ["gpus: 3 GPUs are visible, 4 are promised", "disk: full"]}
    builder.event(60, "preflight", attempt=1, **asked | {"failed": failed, "tries": 3, "skipped": []})
    builder.event(70, "preflight", attempt=1, **asked | {"asked": False})
    shown = text(explanation(builder.folder, None)).splitlines()
    assert shown[3:5] == ["attempt 0: the run's first", "  preflight   3 of 3 nodes fit, in 1 s; not checked: xid"]
    at_last = shown.index("2026-12-01 10:01:00 UTC: before attempt 1, which has not begun")
    assert shown[at_last + 1 : at_last + 3] == [
        "  preflight   2 of 3 nodes fit, in 1 s",
        "  preflight   n2 not fit (3 tries): gpus: 3 GPUs are visible, 4 are promised; disk: full",
    ]
    assert "  preflight   could not be made: nobody could be asked" in shown
    assert len(explanation(builder.folder, None, 0)["preflights"]) == 1
