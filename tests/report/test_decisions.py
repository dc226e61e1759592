"""Decisions and requests in words, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.report.decisions import decision_words, request_words


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"decision": "done", "exit_code": 0, "reason": "all"}, "done (exit code 0): all"),
        (
            {"decision": "stop", "class": "crash_loop", "exit_code": 1, "reason": "step 7 failed twice"},
            "stop (exit code 1, crash loop): step 7 failed twice",
        ),
        (
            {"decision": "restart", "action": "restart", "class": "network", "attempt": 1, "reason": "time-out",
             "exclude": [], "delay_seconds": 10.0},
            "attempt 1 failed: network: time-out; restarting in place in 10 s",
        ),
        (
            {"decision": "restart", "action": "restart_on_spare", "class": "gpu_fault", "attempt": 0,
             "reason": "Xid 79", "exclude": ["n3"], "delay_seconds": 0},
            "attempt 0 failed: GPU fault: Xid 79; restarting on a spare node without n3",
        ),
        (
            {"decision": "requeue", "action": "requeue_excluding", "class": "node_failure", "attempt": None,
             "reason": "fit nodes: 1, needed: 2", "exclude": ["n3"], "delay_seconds": 10},
            "node failure: fit nodes: 1, needed: 2; requeued without n3 in 10 s",
        ),
        (
            {"decision": "requeue", "action": "requeue", "class": "time_limit", "attempt": 4, "reason": "slot used up"},
            "attempt 4 ended: time limit: slot used up; requeued",
        ),
        (
            {"decision": "requeue", "action": "requeue_excluding", "class": "node_failure", "attempt": 4,
             "reason": "down", "exclude": ["n1", "n2"]},
            "attempt 4 failed: node failure: down; requeued without n1, n2",
        ),
        (
            {"decision": "restart", "action": "earlier_checkpoint", "class": "checkpoint_bad", "attempt": 4,
             "reason": "torn"},
            "attempt 4 failed: checkpoint bad: torn; restarting in place from an earlier checkpoint",
        ),
        (
            {"decision": "requeue", "action": "earlier_checkpoint", "class": "nan", "attempt": 4, "reason": "x"},
            "attempt 4 failed: NaN or Inf: x; requeued from an earlier checkpoint",
        ),
        # of a version that says less, or more
        ({"decision": "requeue", "reason": "a node was lost"}, "a node was lost; requeued"),
        ({"decision": "restart", "action": "of_later", "attempt": 1, "reason": "x"}, "attempt 1 failed: x; of_later"),
    ],
)  # fmt: skip
def test_decisions(event: dict[str, Any], said: str) -> None:
    assert decision_words(event) == said


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"by": "ada"}, "requeue asked for by ada"),
        (
            {"by": "ada", "from_step": 0, "exclude": ["n1"], "force_class": "oom_gpu", "profile": "gb200-8gpu"},
            "requeue asked for by ada, from step 0, without n1, taking the last end as out of memory on a GPU, "
            "on profile gb200-8gpu",
        ),
    ],
)
def test_requests(event: dict[str, Any], said: str) -> None:
    assert request_words(event) == said
