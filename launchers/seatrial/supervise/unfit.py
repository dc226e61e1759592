"""What to do where too few nodes are fit for an attempt. Pure. It costs no attempt, and so no budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.supervise import classes, policy
from seatrial.supervise.berths import Found
from seatrial.supervise.policy import Budgets, Decision, Slot

MOST_VAIN_STARTS = 5


def decide(found: Found, wanted: int, vain: int, budgets: Budgets, slot: Slot, gate: bool, most: int) -> Decision:
    """Return what follows: back to the queue without those nodes, where there is one, or the end.

    ``wanted``: how many nodes there must be; ``vain``: starts of the job before this one that met the same. A gate is
    not repeated. ``most``: how many nodes may be left out; what all nodes lack is no node's fault.
    """
    why = "; ".join(f"{node}: {words}" for node, words in found.failed.items())
    reason = f"fit nodes: {found.fit}, needed: {wanted}" + (f" ({why})" if why else "")
    if gate or not slot.can_requeue or vain >= MOST_VAIN_STARTS:
        more = f"; {vain} starts before it met the same" if vain else ""
        return Decision(policy.STOP, reason + more, classes.NODE_FAILURE)
    exclude = () if found.everywhere else tuple(found.failed)[:most]
    delay = min(budgets.backoff * 2.0 ** min(vain, 20), budgets.longest_backoff)
    action = policy.REQUEUE_EXCLUDING if exclude else policy.REQUEUE
    return Decision(action, reason, classes.NODE_FAILURE, exclude, delay)


def vain_starts(events: Sequence[Mapping[str, Any]]) -> int:
    """Count the starts of the job that found too few fit nodes, since the last attempt or a person's hand."""
    count = 0
    for event in reversed(events):
        if event.get("event") in ("attempt_started", "requeue_requested"):
            break
        count += event.get("event") == "decision" and event.get("attempt") is None
    return count
