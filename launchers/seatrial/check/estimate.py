"""What a run will take: tokens, slots, checkpoints, time. Pure; the step time is a gate's, and never a guess."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from seatrial.check.blame import Finding, argument, count_text, profile
from seatrial.check.shape import CannotTell
from seatrial.check.storage import Storage, storage_of
from seatrial.spec.runspec import RunSpec


@dataclass(frozen=True)
class Measured:
    """What gate ``run`` measured on ``gpus`` GPUs, in seconds; None: it has no record of it.

    ``tokens_per_step``: sequences of a step times their length.
    """

    run: str
    gpus: int
    tokens_per_step: int
    step_seconds: float
    startup_seconds: float | None = None
    save_seconds: float | None = None


@dataclass(frozen=True)
class Estimate:
    """What a run will take. Times in seconds; None: unknown, as nothing was measured.

    ``step_seconds``: the gate's, scaled to this run's GPUs by their numbers alone. ``save_seconds``: the gate's, else
    from the file system's stated rate. ``first_save_seconds``: from the first step to the first save.
    ``slots``: time limits that the run fills, each without its start-up and one save. ``wall_seconds``: their sum.
    Evaluations, waiting in the queue and failures come on top.
    """

    steps: int
    sequences: int
    length: int
    gpus: int
    slot_seconds: float
    storage: Storage | None
    measured: Measured | None = None
    step_seconds: float | None = None
    save_seconds: float | None = None
    first_save_seconds: float | None = None
    slots: int | None = None
    wall_seconds: float | None = None

    @property
    def tokens(self) -> int:
        return self.steps * self.sequences * self.length

    @property
    def startup_seconds(self) -> float | None:
        return self.measured.startup_seconds if self.measured else None

    @property
    def usable_seconds(self) -> float:
        """A slot without its start-up and one save; what is unknown of these counts as nothing."""
        return self.slot_seconds - (self.startup_seconds or 0.0) - (self.save_seconds or 0.0)


def estimate(spec: RunSpec, measured: Measured | None = None) -> Estimate:
    """Return what the run will take, from what its admitting gate measured."""
    try:
        storage = storage_of(spec)
    except CannotTell:
        storage = None
    rate = spec.profile.get("disk_gb_per_second")
    save = measured.save_seconds if measured else None
    if save is None and rate and storage:
        save = storage.checkpoint / (rate * 1e9)
    found = Estimate(
        steps=int(spec.get("train_iters")), sequences=int(spec.get("global_batch_size")),
        length=int(spec.get("seq_length")), gpus=spec.world_size,
        slot_seconds=60.0 * int(spec.profile["time_limit_minutes"]), storage=storage, measured=measured,
        save_seconds=save,
    )  # fmt: skip
    return _timed(found, measured, spec.get("save_interval")) if measured else found


def _timed(found: Estimate, measured: Measured, save_interval: int | None) -> Estimate:
    step = measured.step_seconds * measured.gpus / found.gpus
    saves = found.storage.written if found.storage else math.ceil(found.steps / (save_interval or found.steps))
    work = found.steps * step + saves * (found.save_seconds or 0.0)
    slots = math.ceil(work / found.usable_seconds) if found.usable_seconds > 0 else None
    overhead = found.slot_seconds - found.usable_seconds
    return replace(
        found,
        step_seconds=step,
        first_save_seconds=step * min(save_interval or found.steps, found.steps),
        slots=slots,
        wall_seconds=None if slots is None else work + slots * overhead,
    )


def judge_estimate(spec: RunSpec, found: Estimate) -> Iterator[Finding]:
    """Say how many slots the run fills; warn where a slot ends before the first save."""
    key, minutes = "time_limit_minutes", spec.profile["time_limit_minutes"]
    startup = found.startup_seconds or 0.0
    if found.step_seconds is None or found.first_save_seconds is None:
        rule = "slots needed: unknown, as no gate that admits this run has measured a step"
        yield profile(spec, key, rule, severity="note")
        return
    if found.slots is not None:
        rule = f"{found.slots:,} slots of {hours(found.slot_seconds)} at {found.step_seconds:,.1f} s a step"
        yield profile(spec, key, rule, severity="note")
    if found.first_save_seconds > found.slot_seconds - startup:
        rule = f"the first save comes after {hours(found.first_save_seconds)} ({found.step_seconds:,.1f} s a step), "
        rule += f"and the slot ends after {hours(found.slot_seconds)}"
        rule += f", {hours(startup)} of them start-up" if startup >= 60 else ""
        most = math.floor(max(0.0, found.usable_seconds) / found.step_seconds)
        longer = f"a longer time limit than --set profile.time_limit_minutes={minutes}"
        fix = f"--set {spec.key_of('save_interval')}=… of at most {most:,}, or {longer}" if most else longer
        yield argument(spec, "save_interval", rule, fix, severity="warning")


def tokens_text(found: Estimate) -> str:
    """Return the tokens as a sum that can be checked."""
    parts = f"{found.steps:,} steps x {found.sequences:,} sequences x {found.length:,} tokens"
    return f"{parts} = {count_text(found.tokens)} tokens"


def hours(seconds: float) -> str:
    """Return a time as people write it: ``12.0 s``, ``3.5 min``, ``6.7 h``, ``5.2 d``."""
    for size, unit, least in ((86400, "d", 2 * 86400), (3600, "h", 3600), (60, "min", 100)):
        if seconds >= least:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"
