"""What only the run may tell Megatron-Bridge: folders, checkpoint, time-outs; as KEY=VALUE overrides. Pure.

``spec.owners.BRIDGE_RUN_OWNED`` keeps recipes and command lines from these keys.

The exit signal is none of them: its field takes no text, so the rank sets it from the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from seatrial.run import overrides
from seatrial.run.layout import RunFolder
from seatrial.supervise import trackers
from seatrial.supervise.resume import Start


def ranks_part(
    spec: Mapping[str, Any], folder: RunFolder, start: Start, timeout: int, duration: Optional[int]
) -> Optional[dict[str, Any]]:
    """Return what stands in the plan: its recipe and all overrides; None where another engine runs.

    ``timeout`` of a collective and ``duration`` of the loop in minutes; ``plan.run_arguments`` says the same in
    Megatron's arguments.
    """
    asked = spec.get("bridge")
    if not asked:
        return None
    values = run_values(folder, start, timeout, duration)
    values |= {f"logger.{name}": value for name, value in trackers.values(spec, folder).items()}
    if spec["profile"].get("device") == "cpu":
        values["dist.distributed_backend"] = "gloo"
    return {"recipe": str(asked["recipe"]), "overrides": [*asked["overrides"], *overrides.words(values)]}


def run_values(folder: RunFolder, start: Start, timeout: int, duration: Optional[int]) -> dict[str, Any]:
    """Return key -> value. Which checkpoints are kept, the supervisor alone decides: Bridge keeps all."""
    values: dict[str, Any] = {
        "checkpoint.save": str(folder.checkpoints),
        "checkpoint.load": None,  # its recipes would look into a folder of their own
        "checkpoint.most_recent_k": -1,
        "logger.tensorboard_dir": str(folder.tensorboard),
        "dataset.path_to_cache": str(folder.data_cache),
        "train.exit_signal_handler": True,
        "dist.distributed_timeout_minutes": timeout,
    }
    if start.step is not None:
        values["checkpoint.load"] = str(start.root or folder.checkpoints)
        values |= {"checkpoint.ckpt_step": start.step, "checkpoint.exit_on_missing_checkpoint": True}
    if duration is not None:
        values["train.exit_duration_in_mins"] = duration
    if start.evaluate_only:
        values |= {"validation.skip_train": True, "checkpoint.load_optim": False}
    return values
