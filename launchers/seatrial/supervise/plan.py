"""The plan of an attempt: what the ranks run. Pure: from the spec and the run folder to data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.run.layout import Attempt, RunFolder

EXIT_SIGNAL = "SIGUSR2"
_FIRST_TIMEOUT_MINUTES = 30  # cold JIT caches: the first collective can wait for minutes


def value(spec: Mapping[str, Any], dest: str, default: Any = None) -> Any:
    """Return the resolved value of Megatron argument ``dest``."""
    for key, field in spec["fields"].items():
        if key.partition(".")[2] == dest and field["value"] is not None:
            return field["value"]
    return default


def run_arguments(spec: Mapping[str, Any], folder: RunFolder, *, resume: bool) -> list[str]:
    """Return the arguments that only the run may set: folders, exit signal, time-outs, backend."""
    words = [
        "--save", str(folder.checkpoints),
        "--tensorboard-dir", str(folder.tensorboard),
        "--data-cache-path", str(folder.data_cache),
        "--exit-signal-handler", "--exit-signal", EXIT_SIGNAL,
        "--distributed-timeout-minutes", str(_FIRST_TIMEOUT_MINUTES),
    ]  # fmt: skip
    if resume:
        words += ["--load", str(folder.checkpoints), "--exit-on-missing-checkpoint"]
    if spec["profile"]["device"] == "cpu":
        words += ["--distributed-backend", "gloo"]
    return words


def make_plan(spec: Mapping[str, Any], folder: RunFolder, attempt: Attempt, *, resume: bool = False) -> dict[str, Any]:
    """Return the document that the ranks read as plan.json."""
    return {
        "schema": 1,
        "run_id": spec["run_id"],
        "attempt": attempt.number,
        "arguments": [*spec["arguments"], *run_arguments(spec, folder, resume=resume)],
        "world_size": spec["world_size"],
        "device": spec["profile"]["device"],
        "rehearsal": spec["rehearsal"],
        "attempt_folder": str(attempt.path),
        "stop_file": str(attempt.stop_file),
        "exit_signal": EXIT_SIGNAL,
        "schedule_iters": value(spec, "lr_decay_iters") or value(spec, "train_iters"),
        "environment": dict(spec["environment"]),
    }
