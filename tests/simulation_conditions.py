"""What simulated runs meet, and the goodput that nobody can beat there. Pure; the formula stands in docs/goodput.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

HOUR, DAY = 3600.0, 86400.0
STEP_SECONDS = {8: 10.7, 64: 1.34}  # at 24,404 tokens/s/GPU, the best public figure near to it, were scaling perfect

# Mean time between failures of one GPU, in seconds. The published figures do not agree with each other.
RATES = {
    "RSC-1: 6.50 per 1000 node-days of 8 GPUs": 8 * 1000 * DAY / 6.50,
    "Llama 3: one per 3.1 h at 16,384 GPUs": 3.1 * HOUR * 16_384,
    "RSC-1, measured: one per 7.9 h at 1,024 GPUs": 7.9 * HOUR * 1_024,
}


@dataclass(frozen=True)
class Conditions:
    """Times in seconds. ``mttf``: mean time between failures of the whole job. ``cluster``: nodes; 36 are two racks."""

    gpus: int
    mttf: float
    slot: float
    startup: float
    save: float
    cluster: int = 36

    @property
    def step(self) -> float:
        return STEP_SECONDS[self.gpus]


def all_conditions(per_gpu: float | None = None, mttf: float | None = None, cluster: int = 36) -> list[Conditions]:
    """Return what the runs of one failure rate meet, by turns. ``per_gpu``: mean time between failures of one GPU;
    ``mttf``: of the job, whatever its size."""
    return [
        Conditions(gpus, mttf or (per_gpu or math.inf) / gpus, hours * HOUR, startup, save, cluster)
        for gpus in (64, 8) for hours in (4, 24) for startup in (600.0, 60.0) for save in (60.0, 20.0)
    ]  # fmt: skip


def ideal_goodput(at: Conditions) -> float:
    """Return productive / wall without queue where every failure is seen at once and saves come just often enough."""
    return _best(at)[1]


def best_interval(at: Conditions) -> int:
    """Return the steps between two saves that the ideal has, in whole hundreds."""
    saves, _ = _best(at)
    return max(100, round(_interval(at, saves) / at.step / 100) * 100)


def _interval(at: Conditions, saves: int) -> float:
    """Return the seconds between two saves where a slot has so many, the last one at its end."""
    return (at.slot - at.startup - saves * at.save) / saves


@lru_cache
def _best(at: Conditions) -> tuple[int, float]:
    def goodput(saves: int) -> float:
        in_slot = 1 - (at.startup + saves * at.save) / at.slot
        return in_slot * (1 - (at.startup + _interval(at, saves) / 2) / at.mttf)

    most = max(1, int((at.slot - at.startup) / (at.save + at.step)))
    return max(((saves, goodput(saves)) for saves in range(1, most + 1)), key=lambda found: found[1])
