"""When to stop ahead of the job's end: from this run's own step, evaluation and save times. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Optional

# Slurm looks at time limits every 30 s only, and its signal may come that much early (sbatch, --signal: 60 s).
SIGNAL_SLACK = 90.0
# For the ranks to notice, to agree and to end.
TEARDOWN = 10.0
UNKNOWN_STARTUP = 60.0


@dataclass(frozen=True)
class Longest:
    """The longest step, evaluation, save and start-up that were seen, in seconds; None where none was."""

    step: Optional[float] = None
    evaluation: Optional[float] = None
    save: Optional[float] = None
    startup: Optional[float] = None

    def to_json(self) -> dict[str, Optional[float]]:
        """Return ``longest`` of an attempt's record."""
        return asdict(self)

    @classmethod
    def of(cls, all_of_them: Iterable[Mapping[str, Any]]) -> Longest:
        """Return the longest of several; what is no number of seconds is passed over."""
        found: dict[str, float] = {}
        for one in all_of_them:
            for field in fields(cls):
                value = one.get(field.name)
                if isinstance(value, (int, float)) and 0 <= value < float("inf"):
                    found[field.name] = max(found.get(field.name, 0.0), float(value))
        return cls(**found)


def lead(longest: Longest, floor: float) -> float:
    """Return how many seconds ahead of the job's end the ranks must be asked to stop.

    The flag is looked at after a step, its evaluation and its regular save; then the save follows that it asks for.
    Steps and saves vary, so both count twice. Before a save was seen it is ``floor``, the signal lead of the profile.
    """
    if longest.save is None or longest.step is None:
        return floor
    return 2 * longest.step + (longest.evaluation or 0.0) + 2 * longest.save + TEARDOWN


def needed(longest: Longest, floor: float) -> float:
    """Return the seconds that a slot must have left for a start in it to pay: start-up, a step, and the way out."""
    return (longest.startup or UNKNOWN_STARTUP) + 2 * (longest.step or 0.0) + lead(longest, floor)
