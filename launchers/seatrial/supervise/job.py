"""What all attempts of one supervisor share."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from seatrial.run.layout import Attempt, RunFolder, SecondPass
from seatrial.supervise import termination
from seatrial.supervise.control import Control
from seatrial.supervise.janitor import Janitor
from seatrial.supervise.job_watch import JobWatch
from seatrial.supervise.journal import Journal
from seatrial.supervise.notify import Notifier
from seatrial.supervise.outcome import Target
from seatrial.supervise.owner import Owner
from seatrial.supervise.plan import value
from seatrial.supervise.ranks import LocalRanks
from seatrial.supervise.srun import SrunRanks

_RANK_PROGRAM = Path(__file__).resolve().parents[1] / "train" / "rank.py"


@dataclass(frozen=True)
class Patience:
    """Seconds. ``fellows``: for ranks that fail with another to leave their own records. ``stragglers``: for the other
    ranks to end once one has ended well. ``answer``: for Slurm to say why it sent a signal. ``lock``: for a supervisor
    that Slurm has taken this run from to be gone."""

    poll: float = 0.1
    fellows: float = 1.0
    stragglers: float = 300.0
    answer: float = 3.0
    lock: float = 90.0


@dataclass(frozen=True)
class Job:
    """What all attempts of this supervisor share. ``rank_command`` replaces the rank program (the plan is appended).

    ``watch`` and ``owner``: None outside of a Slurm job. ``log_size``: bytes of the batch log when it began.
    ``withheld``: variables of the job that only a new job of this run gets, and nothing else that is started from here.
    """

    folder: RunFolder
    spec: Mapping[str, Any]
    journal: Journal
    control: Control
    rank_command: Optional[Sequence[str]] = None
    patience: Patience = Patience()
    watch: Optional[JobWatch] = None
    owner: Optional[Owner] = None
    janitor: Optional[Janitor] = None
    log_size: int = 0
    notifier: Optional[Notifier] = None
    withheld: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def target(self) -> Target:
        """What proves this run complete."""
        step = int(value(self.spec, "train_iters"))
        return Target(step) if value(self.spec, "eval_iters", 0) else Target(step, ())

    @property
    def recovery(self) -> Mapping[str, Any]:
        """The profile's recovery settings."""
        return dict(self.spec["profile"].get("recovery") or {})

    @property
    def signal_lead(self) -> float:
        """How many seconds ahead of the job's end Slurm signals; the floor for our own timer."""
        return float((self.spec["profile"].get("slurm") or {}).get("signal_lead_seconds") or 300)

    @property
    def may_requeue(self) -> bool:
        """Whether this is a job of the run's own: in somebody's allocation there is no queue to go back to."""
        return self.watch is not None and (self.folder.path / "batch.sh").is_file()

    @property
    def on_slurm(self) -> bool:
        """Whether the ranks are a job step."""
        return bool(self.spec["profile"].get("executor") == "slurm")

    def ended_by(self) -> Optional[str]:
        """Return Slurm's word for the end of this start of the job, from its batch log; None: it has begun none."""
        if self.watch is None:
            return None
        home = self.folder.first_pass if isinstance(self.folder, SecondPass) else self.folder
        log = termination.batch_log(home.path, self.watch.job)
        return termination.said_in(log, self.watch.job, self.log_size)

    def command(self, attempt: Attempt) -> list[str]:
        """Return the words that start a rank."""
        program = (str(self.spec["profile"].get("rank_python") or sys.executable), str(_RANK_PROGRAM))
        return [*(self.rank_command or program), str(attempt.plan)]

    def ranks(
        self, attempt: Attempt, logs: Sequence[Path], nodes: Optional[Sequence[str]] = None
    ) -> Union[LocalRanks, SrunRanks]:
        """Return the ranks of ``attempt``, not started yet: a job step on ``nodes``, or processes of this host."""
        if self.on_slurm:
            return SrunRanks(self.spec, attempt, self.command(attempt), os.environ, nodes)
        return LocalRanks(self.command(attempt), logs, self.spec["environment"], os.environ)
