"""What Slurm says of this job while it runs: asked in the background, so that no answer holds the supervisor up."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from seatrial.supervise.ask import ask

EVERY_SECONDS = 30.0
_QUICK_SECONDS = 10.0
KILL_WAIT_SECONDS = 30.0  # Slurm's default
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+)", re.MULTILINE)
_FIELD = re.compile(r"(?:^|\s)(JobState|Restarts|EndTime|PreemptTime|NodeList)=(\S*)")


@dataclass(frozen=True)
class JobFacts:
    """One answer. Times are seconds since 1970; None where Slurm names none. ``asked_at``: time.monotonic().
    ``nodes``: as Slurm writes a list of them."""

    state: str
    restarts: int
    end_time: Optional[float] = None
    preempt_time: Optional[float] = None
    asked_at: float = 0.0
    nodes: str = ""

    def taken_away(self, restart: int) -> bool:
        """Whether Slurm has put the job back into the queue, or has it elsewhere, since its start ``restart``."""
        return self.restarts > restart or self.state == "PENDING"


def parse(said: str, asked_at: float = 0.0) -> Optional[JobFacts]:
    """Return what ``scontrol show job`` said; None for anything else."""
    fields = dict(reversed(_FIELD.findall(said)))  # the first counts: a comment stands behind, and may say anything
    if "JobState" not in fields:
        return None
    restarts = fields.get("Restarts", "")
    return JobFacts(
        fields["JobState"], int(restarts) if restarts.isdecimal() else 0, seconds_since_1970(fields.get("EndTime")),
        seconds_since_1970(fields.get("PreemptTime")), asked_at, fields.get("NodeList", "").replace("(null)", ""),
    )  # fmt: skip


def look(job: str, environment: Optional[Mapping[str, str]] = None, seconds: float = 30.0) -> Optional[JobFacts]:
    """Ask about a job; None where Slurm does not answer within ``seconds``, or does not know it."""
    asked = time.monotonic()
    said = ask(["scontrol", "--oneliner", "show", "job", job], environment, seconds)
    return None if said is None else parse(said, asked)


def seconds_since_1970(text: Optional[str]) -> Optional[float]:
    """Return the time that Slurm prints: local, without a zone; None for None, Unknown, N/A. Pure."""
    try:
        return time.mktime(time.strptime(text or "", "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


class JobWatch:
    """The newest answer about one job. ``restart``: how often Slurm had restarted it when this supervisor began."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.job = environment.get("SLURM_JOB_ID", "")
        self.restart = int(environment.get("SLURM_RESTART_COUNT") or 0)
        self._environment = dict(environment)
        self._facts: Optional[JobFacts] = None
        end = environment.get("SLURM_JOB_END_TIME", "")
        self._first_end = float(end) if end.isdecimal() else None
        self.kill_wait = KILL_WAIT_SECONDS
        self._wake, self._over = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="job-watch", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._over = True
        self._wake.set()

    def refresh(self) -> None:
        """Ask again now, without waiting for the answer."""
        self._wake.set()

    @property
    def facts(self) -> Optional[JobFacts]:
        """The newest answer; None before the first."""
        return self._facts

    @property
    def end_time(self) -> Optional[float]:
        """When Slurm ends the job, in seconds since 1970, as it last said."""
        return self._facts.end_time if self._facts and self._facts.end_time else self._first_end

    @property
    def preempted(self) -> bool:
        """Whether Slurm has said that the job must make room."""
        return self._facts is not None and self._facts.preempt_time is not None

    def is_back(self) -> bool:
        """Ask now whether Slurm has put the job back into the queue, or has it elsewhere. Without an answer: no."""
        facts = look(self.job, seconds=_QUICK_SECONDS)
        return facts is not None and facts.taken_away(self.restart)

    def _run(self) -> None:
        found = _KILL_WAIT.search(ask(["scontrol", "show", "config"], self._environment) or "")
        self.kill_wait = float(found[1]) if found else self.kill_wait
        while not self._over:
            self._wake.clear()
            self._facts = look(self.job, self._environment) or self._facts
            self._wake.wait(EVERY_SECONDS)
