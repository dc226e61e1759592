"""What an admitting gate measured: the time of a step, of the start-up, of a save."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from seatrial.check.estimate import Measured
from seatrial.run import records
from seatrial.slurm.admission import Gate

_LAST_STEPS = 10  # by then the caches are warm


def measured(gate: Gate) -> Measured | None:
    """Return what is on record; None without step times. Never raises for what lies in the folder."""
    lines = records.read_objects(gate.folder.metrics)[-_LAST_STEPS:]
    times = [time for time in (_number(line.get("step_time_ms")) for line in lines) if time]
    gpus, sequences, length = (
        gate.spec.get("world_size"), _field(gate.spec, "global_batch_size"), _field(gate.spec, "seq_length")
    )  # fmt: skip
    if not times or not isinstance(gpus, int) or not isinstance(sequences, int) or not isinstance(length, int):
        return None
    attempts = gate.folder.attempts()
    record = (records.read_object(attempts[-1].record) if attempts else None) or {}
    seconds = record.get("seconds")
    seconds = seconds if isinstance(seconds, dict) else {}
    saves, saving = len(record.get("saved_steps") or []), _number(seconds.get("saving"))
    return Measured(
        run=gate.run_id, gpus=gpus, tokens_per_step=sequences * length, step_seconds=median(times) / 1000,
        startup_seconds=_number(seconds.get("startup")), save_seconds=saving / saves if saving and saves else None,
    )  # fmt: skip


def _field(spec: Mapping[str, Any], dest: str) -> Any:
    fields = spec.get("fields") or {}
    return next((f.get("value") for key, f in fields.items() if key.partition(".")[2] == dest), None)


def _number(value: Any) -> float | None:
    """Return a finite number, None for everything else (a record's "nan" among it)."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
