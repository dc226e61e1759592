"""What follows where too few nodes are fit."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.supervise import classes, unfit
from seatrial.supervise.berths import Found
from seatrial.supervise.policy import REQUEUE, REQUEUE_EXCLUDING, STOP, Budgets, Slot

BAD = Found(None, 1, {"n3": "gpus: 3 are visible"})


@pytest.mark.parametrize(
    ("found", "vain", "slot", "gate", "action", "exclude", "name"),
    [
        (BAD, 0, Slot(), False, REQUEUE_EXCLUDING, ("n3",), classes.NODE_FAILURE),
        (BAD, 4, Slot(), False, REQUEUE_EXCLUDING, ("n3",), classes.NODE_FAILURE),
        (BAD, 5, Slot(), False, STOP, (), classes.NODE_FAILURE),
        (BAD, 0, Slot(may_exclude=False), False, REQUEUE, (), classes.NODE_FAILURE),
        (BAD, 0, Slot(can_requeue=False), False, STOP, (), classes.NODE_FAILURE),
        (BAD, 0, Slot(), True, STOP, (), classes.NODE_FAILURE),
        (
            Found(None, 1, {"n2": "a", "n3": "a"}, everywhere=True),
            0,
            Slot(),
            False,
            REQUEUE,
            (),
            classes.NODE_FAILURE,
        ),
        (Found(None, 1), 0, Slot(), False, REQUEUE, (), classes.NODE_FAILURE),
    ],
)
def test_decide(
    found: Found, vain: int, slot: Slot, gate: bool, action: str, exclude: tuple[str, ...], name: str
) -> None:
    decision = unfit.decide(found, 2, vain, Budgets(), slot, gate, 4 if slot.may_exclude else 0)
    assert (decision.action, decision.exclude, decision.name) == (action, exclude, name)
    assert "fit nodes: 1, needed: 2" in decision.reason
    assert all(node in decision.reason for node in found.failed)


def test_no_more_nodes_are_left_out_than_may_be() -> None:
    found = Found(None, 1, dict.fromkeys(["n1", "n2", "n3"], "no answer"))
    assert unfit.decide(found, 4, 0, Budgets(), Slot(), False, 1).exclude == ("n1",)


def test_waits_grow_and_have_a_limit() -> None:
    budgets = Budgets(backoff=10.0, longest_backoff=60.0)
    waits = [unfit.decide(BAD, 2, vain, budgets, Slot(), False, 4).delay_seconds for vain in range(5)]
    assert waits == [10.0, 20.0, 40.0, 60.0, 60.0]


VAIN = {"event": "decision", "attempt": None}


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([], 0),
        ([VAIN, {"event": "preflight"}, VAIN], 2),
        ([VAIN, {"event": "attempt_started"}, VAIN], 1),
        ([VAIN, {"event": "requeue_requested"}], 0),
        ([{"event": "decision", "attempt": 3}, VAIN], 1),
    ],
)
def test_starts_in_vain_are_counted_since_the_last_attempt(events: list[dict[str, Any]], count: int) -> None:
    assert unfit.vain_starts(events) == count
