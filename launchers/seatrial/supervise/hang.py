"""When a run counts as hung: it made no progress for longer than its phase may take. Pure; the clock is an argument.

Progress is what the training loop itself tells: a step, the beginning and the end of a save, a line of an evaluation.
That a rank lives, or prints, is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any, Optional

from seatrial.supervise.follow import Seen
from seatrial.supervise.outcome import Target
from seatrial.supervise.plan import value
from seatrial.supervise.slot import Longest

STARTUP, STEP, SAVE, EVALUATION, END = "startup", "step", "save", "evaluation", "end"
_WORDS = {
    STARTUP: "no first step", STEP: "no step", SAVE: "no end of the save", EVALUATION: "no end of the evaluation",
    END: "no end of the ranks",
}  # fmt: skip
PAUSE = 30.0  # seconds between two looks: we stood still ourselves (a stopped process, a paused machine)
_WARM_UP = 2  # steps of an attempt in which kernels may still be compiled and graphs captured
_ENOUGH = 5  # step times that a median is made from
_LAST = 501  # as many count
_TIMES = 5.0  # the longest save or evaluation that was seen


@dataclass(frozen=True)
class Limits:
    """Seconds without progress, and what tells the phase. ``step_factor`` times the median step.

    ``evaluation_interval``: in steps, 0: none. ``log_interval``: how many steps one line stands for. ``trains``: False
    where only the final evaluation is to be made up for.
    """

    target: Target
    startup: float = 1800.0
    step_factor: float = 10.0
    step_minimum: float = 180.0
    save: float = 900.0
    evaluation: float = 1800.0
    evaluation_interval: int = 0
    log_interval: int = 1
    trains: bool = True

    @classmethod
    def of(cls, spec: Mapping[str, Any], target: Target, trains: bool) -> Optional[Limits]:
        """Return the limits that a profile's ``hang`` block states; None where it turns the watch off."""
        said = spec["profile"].get("hang") or {}
        if not said.get("enabled", True):
            return None
        return cls(
            target,
            startup=60 * said.get("startup_minutes", 30),
            step_factor=said.get("step_factor", 10.0),
            step_minimum=said.get("step_minimum_seconds", 180),
            save=60 * said.get("save_minutes", 15),
            evaluation=60 * said.get("evaluation_minutes", 30),
            evaluation_interval=(value(spec, "eval_interval") or 0) if value(spec, "eval_iters", 0) else 0,
            log_interval=max(1, value(spec, "log_interval") or 1),
            trains=trains,
        )


@dataclass(frozen=True)
class Hang:
    """No progress for ``silent`` seconds where ``limit`` are allowed. ``step``: the one that was next; None before the
    attempt's first."""

    phase: str
    silent: float
    limit: float
    step: Optional[int]

    @property
    def what(self) -> str:
        """What did not come."""
        return _WORDS[self.phase]


class Watchdog:
    """Watches one attempt. ``longest``: of the attempts before; ``now``: seconds of any clock, here and in ``look``."""

    def __init__(self, limits: Limits, longest: Longest, now: float) -> None:
        self._limits, self._longest = limits, longest
        self._since = self._looked = now
        self._progress = self._steps = 0
        self._times: deque[float] = deque(maxlen=_LAST)
        self._median: Optional[float] = None

    def look(self, seen: Seen, now: float) -> Optional[Hang]:
        """Return the hang, if it is one by now."""
        paused = now - self._looked > PAUSE
        self._looked = now
        if paused or seen.progress != self._progress:
            self._progress, self._since = seen.progress, now
            self._take(seen)
            return None
        silent, phase = now - self._since, phase_of(self._limits, seen)
        limit = self.limit(phase, seen)
        if silent <= limit:
            return None
        return Hang(phase, silent, limit, None if seen.last_step is None else seen.last_step + 1)

    def limit(self, phase: str, seen: Seen) -> float:
        """Return how many seconds ``phase`` may go without progress, by what this run has needed so far."""
        limits, before = self._limits, self._longest
        if phase == STARTUP:
            return limits.startup
        if phase == STEP:
            return self._step_limit()
        if phase == EVALUATION:
            return max(limits.evaluation, _TIMES * max(before.evaluation or 0.0, seen.longest_evaluation or 0.0))
        # What a run does at its end may be part of its last save.
        return max(limits.save, _TIMES * max(before.save or 0.0, seen.longest_save or 0.0))

    def _step_limit(self) -> float:
        limits = self._limits
        if len(self._times) >= _ENOUGH:
            if self._median is None:
                self._median = median(self._times)
            typical: Optional[float] = self._median
        else:
            typical = self._longest.step if self._steps >= _WARM_UP else None
        if typical is None:
            return max(limits.startup, limits.step_minimum)
        return max(limits.step_minimum, limits.step_factor * typical * limits.log_interval)

    def _take(self, seen: Seen) -> None:
        """Take in the times of the steps that are new."""
        new = list(islice(reversed(seen.steps), len(seen.steps) - self._steps))
        for record in reversed(new):
            self._steps += 1
            time = record.step_time_ms
            if self._steps > _WARM_UP and time is not None and 0 <= time < float("inf"):
                self._times.append(time / 1000)
                self._median = None


def phase_of(limits: Limits, seen: Seen) -> str:
    """Return what the run is at. Megatron's loop: a step, its line, its evaluation, its save; after the last step the
    last save, then the final evaluations. It announces saves and the final evaluations, no other evaluation.
    """
    if seen.leaving:
        return END
    target = limits.target
    if limits.trains:
        last = seen.last_step
        if last is None:
            return STARTUP
        if seen.saving_since is not None and last <= (seen.saving_step or last):
            return SAVE
        if _evaluation_due(limits, seen, last):
            return EVALUATION
        if last < target.step:
            return STEP
        if target.step not in seen.saved_steps:
            return SAVE
    elif not seen.evaluating and not seen.evaluations:
        return STARTUP
    missing = any((target.step, which) not in seen.evaluations for which in target.evaluations)
    return EVALUATION if missing else END


def _evaluation_due(limits: Limits, seen: Seen, last: int) -> bool:
    """Whether an evaluation comes after the last step that is known, before the next line, and is not over."""
    every = limits.evaluation_interval
    if every <= 0:
        return False
    newest = min(last + limits.log_interval - 1, limits.target.step)
    due = newest - newest % every
    if due < max(last, 1):
        return False
    saved = max(seen.saved_steps[-1:], default=0)
    return (due, "interval") not in seen.evaluations and saved < due
