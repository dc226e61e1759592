"""Bytes on disk: what the run's checkpoints take, against what is free where they go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.check.blame import Finding, argument, profile
from seatrial.check.parameters import count_parameters
from seatrial.check.shape import CannotTell, shape_of
from seatrial.spec.runspec import RunSpec

# A torch_dist checkpoint of BF16 training under Adam, bytes for each parameter: the weight, and in FP32 the parameter
# and Adam's two moments. The verification card of Nemotron 3.5 Lightning (32.91 billion parameters) writes 430 GiB,
# 14.0 for each.
WEIGHT, OPTIMIZER = 2, 12
ROOMY = 2.0  # below this many times the need, other users of the file system may take the rest


@dataclass(frozen=True)
class Storage:
    """``checkpoint``: bytes of one; ``kept``: how many lie there at the end; ``at_once``: how many must fit for the run
    to go on at all (the last whole one, and the one being written)."""

    checkpoint: int
    kept: int
    at_once: int

    @property
    def needed(self) -> int:
        """Bytes of all that are kept."""
        return self.checkpoint * self.kept


def storage_of(spec: RunSpec) -> Storage:
    """Return what the run writes. Nothing removes a checkpoint on the way but ``save_retain_interval``, which keeps its
    multiples and the last. Raises CannotTell where the model's size is."""
    size = WEIGHT if spec.get("bf16", False) or spec.get("fp16", False) else 2 * WEIGHT
    if spec.get("save_optim", True):
        # Without mixed precision the parameters are the FP32 ones.
        size += OPTIMIZER if size == WEIGHT else OPTIMIZER - 2 * WEIGHT
    steps, every = int(spec.get("train_iters")), spec.get("save_interval")
    saves = -(-steps // every) if every else 1
    retain = spec.get("save_retain_interval")
    kept = min(saves, steps // retain + 1) if retain else saves
    return Storage(count_parameters(shape_of(spec)).whole_model.total * size, kept, min(saves, 2))


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
    """Hold ``storage`` against the ``free`` bytes (None: not known). A gate needs room for all it saves; a convergence
    run stops without room for two checkpoints, and is warned where not all fit. A rehearsal gets no note."""
    if not spec.rehearsal:
        kept = f"{storage.kept} checkpoints of {_size(storage.checkpoint)} = {_size(storage.needed)} in the run folder"
        none = "" if spec.get("save_retain_interval") or spec.kind == "gate" else "; nothing removes the earlier ones"
        yield argument(spec, "save_interval", kept + none + _save_time(spec, storage), severity="note")
    if free is None:
        return
    gate = spec.kind == "gate"
    must = storage.needed if gate else storage.checkpoint * storage.at_once
    count = storage.kept if gate else storage.at_once
    where = spec.profile["paths"]["runs"]
    fix = "free some, or --set profile.paths.runs=… on a larger file system"
    rule = f"{_size(free)} are free there"
    if free < must:
        rule += f", the run writes {count} checkpoints of {_size(storage.checkpoint)} = {_size(must)}"
        yield profile(spec, "paths.runs", rule, fix, value=where)
    elif free < storage.needed:
        rule += f", all {storage.kept} checkpoints take {_size(storage.needed)}"
        fix += "; or keep fewer with --set checkpoint.save_retain_interval=…"
        yield profile(spec, "paths.runs", rule, fix, severity="warning", value=where)
    elif free < ROOMY * must:
        rule += f", less than twice the {_size(must)} that the run needs"
        yield profile(spec, "paths.runs", rule, fix, severity="warning", value=where)


def _save_time(spec: RunSpec, storage: Storage) -> str:
    """Say how long one save takes at the file system's stated write rate (GB/s, all ranks together)."""
    rate = spec.profile.get("disk_gb_per_second")
    return f"; one save takes about {storage.checkpoint / (rate * 1e9):,.0f} s at {rate:g} GB/s" if rate else ""


def _size(count: float) -> str:
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.0f} kB"
