"""Bytes on disk: what the run's checkpoints take, against what is free where they go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.check.blame import Finding, argument, profile
from seatrial.check.parameters import count_parameters
from seatrial.check.shape import CannotTell, shape_of
from seatrial.run import retention
from seatrial.spec.runspec import RunSpec

# A torch_dist checkpoint of BF16 training under Adam, bytes for each parameter: the weight, and in FP32 the parameter
# and Adam's two moments. The verification card of Nemotron 3.5 Lightning (32.91 billion parameters) writes 430 GiB,
# 14.0 for each.
WEIGHT, OPTIMIZER = 2, 12
ROOMY = 2.0  # below this many times the need, other users of the file system may take the rest


@dataclass(frozen=True)
class Storage:
    """``checkpoint``: bytes of one; ``written``: how many the run writes; ``kept``: the most that lie there at the same
    time, the one being written among them; ``at_once``: how many of these there are from the first slots on."""

    checkpoint: int
    written: int
    kept: int
    at_once: int

    @property
    def needed(self) -> int:
        """Bytes of all that are kept."""
        return self.checkpoint * self.kept


def storage_of(spec: RunSpec) -> Storage:
    """Return what the run writes. A gate's checkpoints stay until its verdict; of a convergence run's the last ones,
    and every so many steps one (profile.recovery). Raises CannotTell where the model's size is unknown."""
    size = WEIGHT if spec.get("bf16", False) or spec.get("fp16", False) else 2 * WEIGHT
    if spec.get("save_optim", True):
        # Without mixed precision the parameters are the FP32 ones.
        size += OPTIMIZER if size == WEIGHT else OPTIMIZER - 2 * WEIGHT
    saves = save_steps(spec)
    checkpoint = count_parameters(shape_of(spec)).whole_model.total * size
    if spec.kind == "gate":
        return Storage(checkpoint, len(saves), len(saves), len(saves))
    last, every = retention.keep(spec.profile["recovery"])
    # While the last one is written, those that are kept of the others are still there.
    earlier = saves[:-1]
    kept = len(earlier) - len(retention.superseded(earlier, last, every))
    return Storage(checkpoint, len(saves), kept + 1, min(len(saves), last + 1))


def save_steps(spec: RunSpec) -> list[int]:
    """Return the steps at which an undisturbed run saves: every save_interval, and the last."""
    steps, every = int(spec.get("train_iters")), spec.get("save_interval")
    return [*range(every, steps, every), steps] if every else [steps]


def free_bytes(folder: str) -> int | None:
    """Return the bytes that this user may still write under ``folder``, by statvfs (a quota does not show);
    None where there is no such folder."""
    try:
        there = os.statvfs(Path(folder).expanduser())
    except (OSError, ValueError, RuntimeError):  # no such folder, no name a folder can have, no home for ~
        return None
    return there.f_bavail * there.f_frsize


def check_storage(spec: RunSpec) -> Iterator[Finding]:
    """The checkpoints fit where the run folder goes. Reads how much is free, and nothing else."""
    try:
        storage = storage_of(spec)
    except CannotTell:
        return  # check_memory names what is unknown
    yield from judge_storage(spec, storage, free_bytes(str(spec.profile["paths"]["runs"])))


def judge_storage(spec: RunSpec, storage: Storage, free: int | None) -> Iterator[Finding]:
    """Hold ``storage`` against the ``free`` bytes (None: not known). A run needs room for what lies there from its
    first slots on, and is warned where not all fit that it keeps in the end. A rehearsal gets no note."""
    if not spec.rehearsal:
        kept = f"{storage.kept} checkpoints of {size_text(storage.checkpoint)} = {size_text(storage.needed)}"
        rule = f"{kept} in the run folder{_retention(spec, storage)}{_save_time(spec, storage)}"
        yield argument(spec, "save_interval", rule, severity="note")
    if free is None:
        return
    must = storage.checkpoint * storage.at_once
    where = spec.profile["paths"]["runs"]
    fix = "free some, or --set profile.paths.runs=… on a larger file system"
    keep_fewer = "" if spec.kind == "gate" else "; or keep fewer: --set profile.recovery.checkpoints_kept=…"
    rule = f"{size_text(free)} are free there"
    if free < must:
        rule += f", the run writes {storage.at_once} checkpoints of {size_text(storage.checkpoint)} = {size_text(must)}"
        yield profile(spec, "paths.runs", rule, fix + keep_fewer, value=where)
    elif free < storage.needed:
        rule += f", all {storage.kept} checkpoints take {size_text(storage.needed)}"
        fix += "; or keep fewer: --set profile.recovery.checkpoints_kept_every=…"
        yield profile(spec, "paths.runs", rule, fix, severity="warning", value=where)
    elif free < ROOMY * must:
        rule += f", less than twice the {size_text(must)} that the run needs"
        yield profile(spec, "paths.runs", rule, fix, severity="warning", value=where)


def _retention(spec: RunSpec, storage: Storage) -> str:
    """Say which of them are kept, where not all are."""
    if storage.kept == storage.written:
        return ""
    last, every = retention.keep(spec.profile["recovery"])
    return f": the last {last}, " + (f"every {every:,} steps one, " if every else "") + "and the one being written"


def _save_time(spec: RunSpec, storage: Storage) -> str:
    """Say how long one save takes at the file system's stated write rate (GB/s, all ranks together)."""
    rate = spec.profile.get("disk_gb_per_second")
    return f"; one save takes about {storage.checkpoint / (rate * 1e9):,.0f} s at {rate:g} GB/s" if rate else ""


def size_text(count: float) -> str:
    """Return bytes as people write them."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.0f} kB"
