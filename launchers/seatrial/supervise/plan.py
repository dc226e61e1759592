"""The plan of an attempt: what the ranks run. Pure: from the spec and the run folder to data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run.layout import Attempt, RunFolder
from seatrial.run.records import SCHEMA
from seatrial.supervise import bridge, trackers
from seatrial.supervise.resume import Start

EXIT_SIGNAL = "SIGUSR2"
FIRST_TIMEOUT_MINUTES = 30  # cold JIT caches: the first collective can wait for minutes
LATER_TIMEOUT_MINUTES = 10  # Megatron's default
_SHORT_SLOT_MINUTES, _LAST_MINUTES = 20, 2

# What is added below, as argparse dests: no recipe, kind or command line may set them.
RUN_OWNED = frozenset({
    "save", "load", "ckpt_step", "exit_on_missing_checkpoint", "exit_signal", "exit_signal_handler", "tensorboard_dir",
    "data_cache_path", "distributed_timeout_minutes", "distributed_backend", "skip_train", "exit_duration_in_mins",
}) | trackers.OWNED  # fmt: skip


def value(spec: Mapping[str, Any], dest: str, default: Any = None) -> Any:
    """Return the resolved value of Megatron argument ``dest``."""
    for key, field in spec["fields"].items():
        if key.partition(".")[2] == dest and field["value"] is not None:
            return field["value"]
    return default


def timeout_minutes(cold: bool) -> int:
    """Return how long a collective may take; ``cold``: the nodes have not compiled the kernels yet."""
    return FIRST_TIMEOUT_MINUTES if cold else LATER_TIMEOUT_MINUTES


def duration_minutes(minutes_left: Optional[float]) -> Optional[int]:
    """Return after how many minutes the loop ends by itself, before the job does; None in a short or endless slot."""
    if minutes_left is None or minutes_left <= _SHORT_SLOT_MINUTES:
        return None
    return int(minutes_left - _LAST_MINUTES)


def run_arguments(
    device: str, folder: RunFolder, start: Start, cold: bool, minutes_left: Optional[float] = None
) -> list[str]:
    """Return the arguments that only the run may set: folders, exit signal, time-outs, backend.

    Without a checkpoint there is no --load, and Megatron looks for none. With it the step is named (the tracker file
    may name one that is not whole), and a missing one ends the ranks instead of starting them at 0. ``cold``: the
    nodes have not compiled the kernels yet. ``minutes_left`` of the job: the loop saves and ends by itself shortly
    before, should nobody have asked it to; not in short slots, as it counts in whole minutes. The final evaluation
    alone loads no optimizer: Megatron demands that.
    """
    words = [
        "--save", str(folder.checkpoints),
        "--tensorboard-dir", str(folder.tensorboard),
        "--data-cache-path", str(folder.data_cache),
        "--exit-signal-handler", "--exit-signal", EXIT_SIGNAL,
        "--distributed-timeout-minutes", str(timeout_minutes(cold)),
        "--distributed-backend", "gloo" if device == "cpu" else "nccl",
    ]  # fmt: skip
    if start.step is not None:
        root = start.root or folder.checkpoints
        words += ["--load", str(root), "--ckpt-step", str(start.step), "--exit-on-missing-checkpoint"]
    minutes = duration_minutes(minutes_left)
    if minutes is not None:
        words += ["--exit-duration-in-mins", str(minutes)]
    if start.evaluate_only:
        words += ["--skip-train", "--no-load-optim"]
    return words


def make_plan(
    spec: Mapping[str, Any],
    folder: RunFolder,
    attempt: Attempt,
    start: Start,
    cold: bool = True,
    minutes_left: Optional[float] = None,
) -> dict[str, Any]:
    """Return the document that the ranks read as plan.json. ``cold``, ``minutes_left``: as in ``run_arguments``.

    Raises:
        SeatrialError: the spec sets an argument of the run's own.
    """
    words = [str(word) for word in spec["arguments"]]
    _refuse_ours(words, folder)
    device = str(spec["profile"]["device"])
    return {
        "schema": SCHEMA,
        "run_id": spec["run_id"],
        "attempt": attempt.number,
        "arguments": [
            *words,
            *run_arguments(device, folder, start, cold, minutes_left),
            *trackers.arguments(spec, folder),
        ],
        "megatron_core": str(spec["megatron_core"]),
        "bridge": bridge.ranks_part(spec, folder, start, timeout_minutes(cold), duration_minutes(minutes_left)),
        "world_size": int(spec["world_size"]),
        "device": device,
        "rehearsal": spec["rehearsal"],
        "attempt_folder": str(attempt.path),
        "stop_file": str(attempt.stop_file),
        "exit_signal": EXIT_SIGNAL,
        "schedule_iters": value(spec, "lr_decay_iters") or value(spec, "train_iters"),
        "environment": dict(spec["environment"]),
        "wandb": trackers.ranks_part(spec, folder),
        "resume_step": start.step,
    }


def _refuse_ours(words: Sequence[str], folder: RunFolder) -> None:
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name[2:].replace("-", "_") in RUN_OWNED:
            raise SeatrialError("only the run itself sets this", file=folder.spec, key=name, fix="leave it out")
