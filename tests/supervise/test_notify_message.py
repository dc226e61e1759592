"""What a run tells of itself: which events become messages, and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from seatrial.supervise import notify_message
from seatrial.supervise.notify_message import DECISION, DONE, START, STOP, Standing
from seatrial.supervise.policy import ACTIONS
from seatrial.supervise.policy import DONE as IS_DONE
from seatrial.supervise.policy import STOP as STOPS

SPEC = {
    "run_id": "nano-convergence-1", "recipe": "nano", "kind": "convergence", "rehearsal": False,
    "profile": {"name": "gb200-64gpu"}, "environment": {"HF_TOKEN": "hf_verysecret"},
}  # fmt: skip
JOB = {
    "SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "2", "SLURM_CLUSTER_NAME": "alps", "SLURMD_NODENAME": "n07",
    "HF_TOKEN": "hf_verysecret",
}  # fmt: skip
STARTED = {"event": "attempt_started", "attempt": 3, "resume_step": 12000, "why": "requeued after time_limit"}
RANKS = {"event": "ranks_started", "attempt": 3, "nodes": ["n07", "n08"]}
ENDED = {"event": "attempt_ended", "attempt": 3, "last_step": 12345, "class": "gpu_fault"}
VERDICT = {"event": "verdict", "verdict": "FAIL"}


def decision(action: str, **more: Any) -> dict[str, Any]:
    kind = action if action in ("done", "stop") else "requeue" if action.startswith("requeue") else "restart"
    return {"event": "decision", "time": "T", "decision": kind, "action": action, **more}


def told(events: Sequence[Mapping[str, Any]], **spec: Any) -> list[dict[str, Any]]:
    run = notify_message.run_of({**SPEC, **spec}, "/runs/nano-convergence-1", 48000, JOB, "login")
    standing, found = Standing(), []
    for event in events:
        before, standing = standing, notify_message.after(standing, event)
        about = notify_message.topic(event, before)
        if about is not None:
            found.append(notify_message.message(about, event, run, standing))
    return found


TURN = [STARTED, RANKS, ENDED]
CASES: list[tuple[str, list[dict[str, Any]], str, list[str]]] = [
    ("a start", [STARTED, RANKS], START,
     ["nano-convergence-1: attempt 3 started on 2 nodes, at step 12000 of 48000", "requeued after time_limit",
      "convergence of nano; profile gb200-64gpu; job 4711, restart 2; cluster alps, host n07"]),
    ("the first start", [{**STARTED, "attempt": 0, "resume_step": None}, {**RANKS, "nodes": ["n07"]}], START,
     ["attempt 0 started on 1 node, before the first of 48000 steps"]),
    ("a restart", [*TURN, decision("restart", delay_seconds=20.0, reason="failure 1 of 3", **{"class": "network"})],
     DECISION, ["restart after network in attempt 3, at step 12345 of 48000", "failure 1 of 3",
                "next: it goes on in this allocation, in 20 s"]),
    ("without a node", [*TURN, decision("requeue_excluding", exclude=["n08"], **{"class": "gpu_fault"})],
     DECISION, ["next: the job goes back into the queue, without n08"]),
    ("on a spare", [*TURN, decision("restart_on_spare", exclude=["n08"], **{"class": "gpu_fault"})],
     DECISION, ["next: it goes on in this allocation, on a spare node, without n08"]),
    ("an action to come", [*TURN, decision("repaint", **{"class": "gpu_fault"})], DECISION, ["next: repaint"]),
    ("done", [*TURN, decision("done", exit_code=0, reason="all steps")], DONE,
     ["done, at step 12345 of 48000", "all steps"]),
    ("a gate that fails", [*TURN, VERDICT, decision("stop", exit_code=81, **{"class": "complete"})], STOP,
     ["stopped (complete), verdict FAIL, at step 12345 of 48000, exit code 81",
      "next: nothing by itself: seatrial explain nano-convergence-1"]),
    ("not taken back", [*TURN, {"event": "returned", "done": False, "words": "Slurm does not requeue it: disabled"}],
     STOP, ["Slurm does not requeue it: disabled", "no job of it is left: seatrial requeue nano-convergence-1"]),
]  # fmt: skip


@pytest.mark.parametrize(("events", "about", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_message(events: list[dict[str, Any]], about: str, words: list[str]) -> None:
    said = told(events)[-1]
    assert said["event"] == about
    for word in words:
        assert word in said["text"]
    assert "verysecret" not in json.dumps(said)
    assert (said["schema"], said["job_id"], said["restart_count"], said["run_folder"]) == (
        1, "4711", 2, "/runs/nano-convergence-1",
    )  # fmt: skip
    assert said["time"] == events[-1].get("time")


def test_a_start_is_told_once_in_a_turn() -> None:
    events = [*TURN, decision("restart", **{"class": "network"}), *TURN, decision("done")]
    assert [said["event"] for said in told(events)] == [START, DECISION, DONE]


def test_a_job_that_is_back_in_the_queue_is_told_by_the_decision() -> None:
    events = [*TURN, decision("requeue", **{"class": "preempted"}), {"event": "returned", "done": True}]
    assert [said["event"] for said in told(events)] == [START, DECISION]


def test_every_action_has_words_of_its_own() -> None:
    going_on = set(ACTIONS) - {STOPS, IS_DONE}
    said = {action: told([*TURN, decision(action)])[-1]["follows"] for action in going_on}
    assert all(words != action and "goes" in words for action, words in said.items())


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ({"rehearsal": True}, " (a rehearsal): "),
        ({"rehearsal": True, "drill": {"fault": "kill-rank", "step": 30}}, " (a rehearsal, drill kill-rank@30): "),
    ],
)  # fmt: skip
def test_what_is_no_real_run_says_so(spec: dict[str, Any], label: str) -> None:
    (said,) = told([STARTED, RANKS], **spec)
    assert f"nano-convergence-1{label}" in said["text"]


def test_a_reason_is_cut_and_on_one_line() -> None:
    (_, said) = told([*TURN, decision("stop", reason="no\nend " + "x" * 5000)])
    assert said["reason"].startswith("no end x") and len(said["reason"]) == 600


def test_goodput_is_said() -> None:
    (_, said) = told([*TURN, decision("done")])
    known = notify_message.with_goodput(said, 0.91234)
    assert known["goodput"] == 0.9123 and "goodput 91.2%" in known["text"]
    assert notify_message.with_goodput(said, None)["text"] == said["text"]


def test_no_word_of_a_log_mentions_anybody() -> None:
    (_, said) = told([*TURN, decision("stop", reason="<!channel> & <@U1>")])
    assert notify_message.slack(said) == {
        "text": said["text"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    }
