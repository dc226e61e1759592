"""Where the script that NeMo-Run renders is not the one that we submit: every directive, with the reason. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """``directive``: sbatch's option. ``ours`` and ``nemo_run``: what stands in the two scripts, in words."""

    directive: str
    ours: str
    nemo_run: str
    reason: str


DIFFERENCES = (
    Difference(
        "job-name", "the run's id", "seatrial. and the task's name",
        "NeMo-Run names a job after its task; the job takes the run's id as its name when it starts",
    ),
    Difference(
        "comment", "the run's id", "none",
        "an executor may serve several tasks, so it knows no run; the job takes the run's id when it starts",
    ),
    Difference(
        "dependency", "singleton", "none, or afterok and the tasks that it depends on",
        "until the job starts its name is the task's, and tasks of one name need not wait for each other; from then on "
        "its name is the run's, so that what resubmits the run waits for it",
    ),
    Difference(
        "chdir", "the run folder", "none",
        "the run folder is made when the job starts; the supervisor then changes to it",
    ),
    Difference(
        "output", "batch-%j.log in the run folder", "sbatch_….out in the task's folder",
        "NeMo-Run looks for its logs there; in the run folder batch-<job>.log is the same file",
    ),
    Difference(
        "requeue", "--no-requeue for a gate", "the same directive, but --requeue on sbatch's command line",
        "NeMo-Run always adds it, and the command line wins; a gate's job turns it off when it starts",
    ),
)  # fmt: skip
# Directives of one run, which an executor cannot have.
BOUND = frozenset(item.directive for item in DIFFERENCES if item.directive != "requeue")


def parse(script: str) -> dict[str, str | None]:
    """Return a batch script's directives: name -> value, None for a flag."""
    found: dict[str, str | None] = {}
    for line in script.splitlines():
        if line.startswith("#SBATCH "):
            for word in shlex.split(line.removeprefix("#SBATCH ")):
                name, equals, value = word.removeprefix("--").partition("=")
                found[name] = value if equals else None
    return found


def compare(ours: str, theirs: str) -> Mapping[str, tuple[str, str]]:
    """Return directive -> (ours, theirs) of those in which two scripts differ, as they stand there; "" where absent."""
    sides = parse(ours), parse(theirs)
    names = sorted(sides[0].keys() | sides[1].keys())
    return {
        name: (_shown(name, sides[0]), _shown(name, sides[1]))
        for name in names
        if _shown(name, sides[0]) != _shown(name, sides[1])
    }


def _shown(name: str, side: Mapping[str, str | None]) -> str:
    if name not in side:
        return ""
    return f"--{name}" if side[name] is None else f"--{name}={side[name]}"
