"""Who asks a running attempt to save and end: a person, Slurm's signals, or our own timer ahead of the job's end."""

from __future__ import annotations

import time
from typing import Optional

from seatrial.run.layout import Attempt
from seatrial.supervise.control import Control
from seatrial.supervise.follow import Seen
from seatrial.supervise.job_watch import JobWatch
from seatrial.supervise.slot import SIGNAL_SLACK, Longest, lead

PERSON, FILE = "seatrial stop", "the stop file"
TIMER, RANKS = "the time limit", "SIGTERM to the ranks"
_POLL_SECONDS = 0.05


class Stops:
    """``floor``: the profile's signal lead in seconds. ``answer``: how long Slurm may take to say why it signalled."""

    def __init__(
        self, control: Control, attempt: Attempt, watch: Optional[JobWatch], longest: Longest, floor: float,
        answer: float,
    ) -> None:  # fmt: skip
        self._control, self._attempt, self._watch = control, attempt, watch
        self._longest, self._floor, self._answer = longest, floor, answer
        self._signalled_at: Optional[float] = None
        self._deferred = False

    def who(self, seen: Seen) -> Optional[str]:
        """Return who asks for an end now, or None."""
        asked = self._control.stop
        if asked is not None and asked != "SIGUSR2":
            return asked
        if self._attempt.stop_file.exists():
            return self._by_file()
        if seen.rank_term:
            if self._watch is not None:
                self._watch.refresh()
            return RANKS
        if asked is not None and not self._deferred and self._signal_counts(seen):
            return asked
        return TIMER if self.late(seen) else None

    def ask_why(self) -> None:
        """Let Slurm say, for a moment, whether a signal that came between attempts was its own."""
        if self._watch is None:
            return
        asked = time.monotonic()
        self._watch.refresh()
        while time.monotonic() - asked < self._answer:
            facts = self._watch.facts
            if facts is not None and facts.asked_at >= asked:
                return
            time.sleep(_POLL_SECONDS)

    def late(self, seen: Seen) -> bool:
        """Whether the job's end is so near that the ranks must be asked now."""
        end = self._watch.end_time if self._watch is not None else None
        return end is not None and time.time() >= end - lead(self.longest(seen), self._floor)

    def longest(self, seen: Seen) -> Longest:
        """Return the longest times of this attempt and those before it."""
        here = Longest(seen.longest_step, seen.longest_evaluation, seen.longest_save)
        return Longest.of([self._longest.to_json(), here.to_json()])

    def _by_file(self) -> str:
        try:
            said = self._attempt.stop_file.read_text()
        except OSError:
            return FILE
        return PERSON if said.startswith(PERSON) else FILE

    def _signal_counts(self, seen: Seen) -> bool:
        """Whether SIGUSR2 asks for an end now.

        Ahead of the time limit it comes generously early: where our own timer knows better, the timer decides. It
        may mean a preemption, too; so Slurm is asked first, for a moment.
        """
        if self._watch is None:
            return True
        now = time.monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
            self._watch.refresh()
        facts = self._watch.facts
        answered = facts is not None and facts.asked_at >= self._signalled_at
        if not answered and now - self._signalled_at < self._answer:
            return False
        longest, end = self.longest(seen), self._watch.end_time
        self._deferred = (
            answered and not self._watch.preempted and end is not None and longest.save is not None
            and time.time() >= end - self._floor - SIGNAL_SLACK
        )  # fmt: skip
        return not self._deferred
