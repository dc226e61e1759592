"""A drill's fault in this rank: at the beginning of one step, once, and on record before it happens.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from seatrial.run import records
from seatrial.run.layout import Attempt

from .plan import Fault, Place, Plan
from .stopping import note

# What the faults that begin in a rank are for it: it dies without a word, or stands still and lives.
SIGNALS = {
    "kill-rank": signal.SIGKILL,
    "kill-node": signal.SIGKILL,
    "truncate-checkpoint": signal.SIGKILL,
    "hang": signal.SIGSTOP,
}


class Disturbance:
    """What the forward step calls before each step; ``mark``: the file that tells the supervisor."""

    def __init__(self, fault: Fault, rank: int, mark: Path) -> None:
        self.fault, self.rank, self.mark = fault, rank, mark

    def __call__(self, step: int) -> None:
        """At the fault's step leave the mark, then do it. Raises OSError, and does nothing, where no mark can be."""
        if step != self.fault.step:
            return
        name, number = self.fault.name, SIGNALS[self.fault.name]
        note(f"drill {name}@{step}: rank {self.rank} sends itself {number.name}")
        mark = {"schema": records.SCHEMA, "fault": name, "step": step, "rank": self.rank,
                "host": socket.gethostname(), "signal": number.name, "time": records.now()}  # fmt: skip
        records.write_json(self.mark, mark)
        while True:  # continued for the sake of its stack, a rank that hangs stands still again
            os.kill(os.getpid(), number)


def of(plan: Plan, place: Place) -> Disturbance | None:
    """Return this rank's part of the plan's drill; None where it has none."""
    if plan.drill is None or place.rank not in plan.drill.ranks or plan.drill.name not in SIGNALS:
        return None
    mark = Attempt(plan.attempt_folder, plan.attempt).drill_mark(place.rank)
    return Disturbance(plan.drill, place.rank, mark)
