"""The steps of a synthetic run: its curve, and the iteration lines that Megatron prints of it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from seatrial.judge.parse import recover_second_step
from seatrial.judge.records import StepRecord

FIRST_STEP_SECONDS = 25.0  # kernels are compiled
TERAFLOPS = 41_500.0  # of one step, on all GPUs
SPIKES = (0.31, 0.68)  # of the whole curve
_WARM_UP = 10


@dataclass(frozen=True)
class Step:
    """``record``: what metrics.jsonl holds. ``printed``: what the loop prints: a mean on the second line of a start."""

    record: StepRecord
    printed: StepRecord
    seconds: float


class Curve:
    """Losses and gradients of every step, the same however often it is made.

    ``whole``: the steps after which the loss is down; a gate makes the first of them only. ``samples``: a step's global
    batch. ``rates``: most and least learning rate, steps of warm-up. ``names``: of the losses that lines print.
    """

    def __init__(
        self, steps: int, whole: int, samples: int, gpus: int, rates: tuple[float, float, int], seed: int,
        names: Sequence[str],
    ) -> None:  # fmt: skip
        dice = random.Random(seed)
        self.steps, self._samples, self._gpus, self._rates, self._names = steps, samples, gpus, rates, names
        self._loss, self._grad = [math.nan], [math.nan]
        width = max(1.5, whole / 800)
        for step in range(1, steps + 1):
            done = step / whole
            since = [step - round(share * whole) for share in SPIKES]
            spike = sum(math.exp(-gap / width) for gap in since if gap >= 0)
            base = 1.95 + 10.0 / (1 + 800 * done) ** 0.55
            self._loss.append(_printed(base + 2.4 * spike + dice.gauss(0, 0.018)))
            self._grad.append(round(0.35 + 4 * math.exp(-40 * done) + 9 * spike + abs(dice.gauss(0, 0.06)), 3))

    def loss(self, step: int) -> float:
        return self._loss[step]

    def attempt(self, number: int, first: int, dice: random.Random) -> Iterator[Step]:
        """Yield the steps of an attempt from ``first`` on. Times are the reader's to set (``at``)."""
        before = None
        for step in range(first, self.steps + 1):
            place = step - first
            seconds = round(self._seconds(place, dice), 4)
            record = StepRecord(
                step=step, of=self.steps, attempt=number, consumed_samples=step * self._samples,
                step_time_ms=round(seconds * 1000, 1), tflops_per_gpu=round(TERAFLOPS / seconds / self._gpus, 1),
                learning_rate=self._rate(step), global_batch_size=self._samples,
                losses={name: self._loss_of(name, step) for name in self._names},
                loss_scale=1.0, grad_norm=self._grad[step], skipped=0, nan=0,
            )  # fmt: skip
            printed = record
            if place == 1 and before is not None:
                printed = _mean(before, record)
                record = recover_second_step(before, printed)
            before = record
            yield Step(record, printed, seconds)

    def _loss_of(self, name: str, step: int) -> float:
        if name == "lm loss":
            return self._loss[step]
        return _printed(1 + 0.3 / step if "balancing" in name else self._loss[step] * 1.05)

    def _seconds(self, place: int, dice: random.Random) -> float:
        if place == 0:
            return FIRST_STEP_SECONDS + dice.uniform(0, 10)
        late = dice.uniform(0.4, 4.0) if dice.random() < 1 / 400 else 0.0
        warm = 0.3 * (_WARM_UP - place) / _WARM_UP if place < _WARM_UP else 0.0
        return max(5.0, dice.gauss(5.2, 0.03)) + late + warm

    def _rate(self, step: int) -> float:
        most, least, warm_up = self._rates
        if step <= warm_up:
            return _printed(most * step / warm_up)
        done = (step - warm_up) / max(1, self.steps - warm_up)
        return _printed(least + (most - least) * (1 + math.cos(math.pi * done)) / 2)


def at(step: Step, seconds: float) -> Step:
    """Return the step as printed at a time (seconds since 1970): Megatron says local time, and no zone."""
    time = datetime.fromtimestamp(seconds).isoformat(timespec="microseconds")
    return Step(replace(step.record, time=time), replace(step.printed, time=time), step.seconds)


def line(record: StepRecord) -> str:
    """Return the iteration line of ``record`` as megatron-core 0.19 prints it."""
    losses = "".join(f" {name}: {value:.6E} |" for name, value in record.losses.items())
    return (
        f" [{(record.time or '').replace('T', ' ')}] iteration {record.step:8d}/{record.of:8d} |"
        f" consumed samples: {record.consumed_samples:12d} |"
        f" elapsed time per iteration (ms): {record.step_time_ms:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {record.tflops_per_gpu:.1f} |"
        f" learning rate: {record.learning_rate:.6E} | global batch size: {record.global_batch_size:5d} |{losses}"
        f" loss scale: {record.loss_scale:.1f} | grad norm: {record.grad_norm:.3f} |"
        f" number of skipped iterations: {record.skipped:3d} | number of nan iterations: {record.nan:3d} |"
    )


def _mean(first: StepRecord, second: StepRecord) -> StepRecord:
    """Megatron does not reset its totals after the first step of a start."""
    assert first.step_time_ms and second.step_time_ms and second.tflops_per_gpu
    time = round((first.step_time_ms + second.step_time_ms) / 2, 1)
    losses = {name: _printed((first.losses[name] + value) / 2) for name, value in second.losses.items()}
    tflops = round(second.tflops_per_gpu * second.step_time_ms / time, 1)
    return replace(second, losses=losses, step_time_ms=time, tflops_per_gpu=tflops)


def _printed(value: float) -> float:
    return float(f"{value:.6E}")
