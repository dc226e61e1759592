"""How fast training ran: step times, tokens and FLOPs a second, over windows of steps. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, Optional

from seatrial.judge.records import StepRecord

# Kernels are compiled, caches filled and clocks raised in the first steps after a start.
WARM_UP_STEPS = 10
LAST_STEPS = 10
AFTER_WARM_UP = "after warm-up"
_LONGEST_MS = 1e12  # more is no time of a step, and sums of it are no numbers

# Dense BF16 peaks in TFLOP/s a GPU, from NVIDIA's data sheets (with sparsity they state twice as much).
PEAK_TFLOPS: Mapping[str, float] = {
    "gb300": 2500.0, "b300": 2250.0, "gb200": 2500.0, "b200": 2250.0, "gh200": 989.5, "h200": 989.5, "h100": 989.5,
    "a100": 312.0,
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What turns step times into rates. None: nobody knows. ``peak_tflops``: of a GPU; ``peak``: whose, in words."""

    gpus: Optional[int] = None
    sequence_length: Optional[int] = None
    peak_tflops: Optional[float] = None
    peak: str = "no peak is known for these GPUs"


@dataclass(frozen=True)
class Window:
    """Steps ``first`` to ``last``, ``steps`` of them. Times in milliseconds; p99 is the nearest-rank percentile.

    ``tokens_per_second_per_gpu``: tokens of the steps / (their time x GPUs). ``tflops_per_gpu``: the mean of what the
    loop printed. ``mfu``: that / the peak. None: something that it takes is not known.
    """

    name: str
    first: int
    last: int
    steps: int
    mean_ms: float
    median_ms: float
    p99_ms: float
    tokens_per_second_per_gpu: Optional[float] = None
    tflops_per_gpu: Optional[float] = None
    mfu: Optional[float] = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def words(self) -> str:
        """Return the window in one line."""
        parts = [f"mean {self.mean_ms:.1f} ms, median {self.median_ms:.1f}, p99 {self.p99_ms:.1f}"]
        if self.tokens_per_second_per_gpu is not None:
            parts.append(f"{self.tokens_per_second_per_gpu:,.0f} tokens/s/GPU")
        if self.tflops_per_gpu is not None:
            parts.append(f"{self.tflops_per_gpu:.1f} TFLOP/s/GPU")
        if self.mfu is not None:
            parts.append(f"MFU {self.mfu:.1%}")
        return f"{self.name}: {', '.join(parts)}"


def peak_of(gpu: Optional[str], device: Optional[str]) -> tuple[Optional[float], str]:
    """Return the peak of a GPU (a profile's type, or the name that the driver prints), and whose it is in words."""
    if device == "cpu":
        return None, "a CPU rehearsal: no MFU"
    name = gpu_type_of(gpu)
    if name is None:
        return None, f"no peak is known for {gpu}" if gpu else Setting.peak
    return PEAK_TFLOPS[name], f"{PEAK_TFLOPS[name]:g} TFLOP/s, dense BF16 of {name.upper()}"


def gpu_type_of(gpu: Optional[str]) -> Optional[str]:
    """Return a profile's word for a GPU that a driver, or a profile, names; None for one without a known peak."""
    spoken = "".join(sign for sign in (gpu or "").lower() if sign.isalnum())
    return next((name for name in PEAK_TFLOPS if name in spoken), None)  # gb200 before b200


def tokens_per_second(record: StepRecord, gpus: Optional[int], sequence_length: Optional[int]) -> Optional[float]:
    """Return the tokens a second and GPU of one step; None where something that it takes is not known."""
    time, samples = record.step_time_ms, record.global_batch_size
    if not gpus or not sequence_length or not samples or time is None or not 0 < time < math.inf:
        return None
    return samples * sequence_length / (time / 1000) / gpus


def warm(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """Return the steps that are past the warm-up of their attempt: half of a curve that is shorter than two of them."""
    begun: dict[int, int] = {}
    for record in steps:
        begun[record.attempt] = min(begun.get(record.attempt, record.step), record.step)
    skipped = min(WARM_UP_STEPS, len(steps) // 2)
    return [record for record in steps if record.step >= begun[record.attempt] + skipped]


def windows(steps: Sequence[StepRecord], setting: Setting) -> tuple[Window, ...]:
    """Return the last steps and all but the warm-up of a merged curve; a window without any step time is left out."""
    past = warm(steps)
    found = (
        _window(f"last {LAST_STEPS} steps", past[-LAST_STEPS:], setting),
        _window(AFTER_WARM_UP, past, setting),
    )
    return tuple(window for window in found if window is not None)


def after_warm_up(found: Sequence[Window]) -> Optional[Window]:
    """Return the window of all steps after the warm-up; None where a step has no time."""
    return next((window for window in found if window.name == AFTER_WARM_UP), None)


def _window(name: str, steps: Sequence[StepRecord], setting: Setting) -> Optional[Window]:
    timed = [(record, record.step_time_ms) for record in steps]
    times = [time for _, time in timed if time is not None and 0 < time < _LONGEST_MS]
    if not times or len(times) < len(steps):
        return None  # of a step without a time nothing is known: a mean of the others would be better than it was
    samples = [record.global_batch_size for record in steps]
    rate = None
    if setting.gpus and setting.sequence_length and all(samples):
        tokens = sum(count or 0 for count in samples) * setting.sequence_length
        rate = tokens / (math.fsum(times) / 1000) / setting.gpus
    flops = [record.tflops_per_gpu for record in steps if record.tflops_per_gpu is not None]
    tflops = fmean(flops) if len(flops) == len(steps) and all(abs(value) < _LONGEST_MS for value in flops) else None
    ordered = sorted(times)
    return Window(
        name, steps[0].step, steps[-1].step, len(steps), fmean(times), median(times),
        ordered[math.ceil(0.99 * len(ordered)) - 1], rate, tflops,
        tflops / setting.peak_tflops if tflops is not None and setting.peak_tflops else None,
    )  # fmt: skip


def to_json(found: Sequence[Window], setting: Setting, tokens_per_step: Optional[int]) -> dict[str, Any]:
    """Return the ``speed`` of verdict.json."""
    return {
        "gpus": setting.gpus, "tokens_per_step": tokens_per_step, "windows": [window.to_json() for window in found],
        "peak_tflops": setting.peak_tflops, "peak": setting.peak,
    }  # fmt: skip
