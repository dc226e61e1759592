"""Which waiting jobs wait in vain, and what a person can do about each. Pure; a table."""

from __future__ import annotations

import re

from seatrial.slurm.state_records import WAITING
from seatrial.supervise.classes import DEPENDENCY_FAILED

NEVER = "DependencyNeverSatisfied"

# (pattern over the reason with blanks for underscores, advice). The first match counts.
NEEDS: tuple[tuple[str, str], ...] = (
    (r"launch fail\w*.*held", "a node failed to start it and Slurm holds it: exclude that node, then release the job"),
    (r"requeued.*held|held state|JobHo?e?ldMaxRequeue", "Slurm requeued and holds it: release or cancel it"),
    (r"JobHeldAdmin", "an administrator holds it: ask why"),
    (r"JobHeldUser", "it is held: release it"),
    (NEVER, f"{DEPENDENCY_FAILED}: the job it waits for did not pass: cancel it and submit again"),
    (r"BadConstraints", "no node can ever meet its request: cancel it and change the profile"),
    (r"InvalidAccount|AccountNotAllowed", "its account is not admitted: cancel it and change profile.account"),
    (r"InvalidQOS|QOSNotAllowed", "its QOS is not admitted: cancel it and change profile.qos"),
    (r"PartitionTimeLimit|MaxWallDurationPerJob|AssociationTimeLimit", "it asks for more time than allowed: cancel it"),
    (r"PartitionNodeLimit|Max\w+PerJob", "it asks for more than a job may have: cancel it"),
    (r"PartitionInactive", "its partition takes no jobs: ask the administrators"),
    (r"Reservation ?Deleted|InvalidReservation", "its reservation is gone: cancel it and submit again"),
)  # fmt: skip


def dependency_failed(state: str, reason: str) -> bool:
    """Return whether a job in ``state`` waits for one that ended otherwise than asked."""
    return state in WAITING and NEVER in reason.replace("_", "")


def needs_action(state: str, reason: str, node: str | None = None) -> str | None:
    """Return what a person has to do before a job in ``state`` can go on, or None: it goes on by itself.

    ``node``: the node that is to blame, if one is known.
    """
    if state not in WAITING:
        return None
    plain = reason.replace("_", " ")
    for pattern, advice in NEEDS:
        if re.search(pattern, plain, re.IGNORECASE):
            return f"{advice} ({node})" if node and "that node" in advice else advice
    if state in ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"):
        return "Slurm requeued and holds it: release or cancel it"
    return None
