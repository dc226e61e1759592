"""What a Megatron log says, one frozen record per statement. ``to_json``/``from_json`` are inverses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from seatrial.run.records import decode_float, encode_float

SCHEMA_VERSION = 1
LM_LOSS = "lm loss"


def encode_losses(losses: Mapping[str, float]) -> dict[str, Any]:
    """Return ``losses`` as JSON data; non-finite values become the strings "nan", "inf", "-inf"."""
    return {name: encode_float(value) for name, value in losses.items()}


def decode_losses(data: Mapping[str, Any]) -> dict[str, float]:
    """Inverse of ``encode_losses``. Raises TypeError or ValueError for what is no number."""
    return {str(name): float(value) for name, value in data.items()}


def finite(value: Optional[float]) -> Optional[float]:
    """Return a finite number; None for one that is missing, NaN or infinite: a chart shows it as a gap."""
    return value if value is not None and math.isfinite(value) else None


def _decode_int(value: Any) -> Optional[int]:
    return None if value is None else int(value)


@dataclass(frozen=True)
class StepRecord:
    """One ``iteration`` line. A field that the line does not print is None, or absent from ``losses``.

    ``step_time_ms`` is milliseconds, ``tflops_per_gpu`` TFLOP/s, ``skipped``/``nan`` the counts since the line
    before. ``recovered``: losses and step time were computed from the mean that the line printed (see parse.py).
    """

    step: int
    of: int
    attempt: int = 0
    time: Optional[str] = None
    consumed_samples: Optional[int] = None
    step_time_ms: Optional[float] = None
    tflops_per_gpu: Optional[float] = None
    learning_rate: Optional[float] = None
    global_batch_size: Optional[int] = None
    losses: Mapping[str, float] = field(default_factory=dict)
    loss_scale: Optional[float] = None
    grad_norm: Optional[float] = None
    skipped: Optional[int] = None
    nan: Optional[int] = None
    recovered: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return one line of metrics.jsonl as plain data."""
        return {
            "schema": SCHEMA_VERSION,
            "attempt": self.attempt,
            "step": self.step,
            "of": self.of,
            "time": self.time,
            "consumed_samples": self.consumed_samples,
            "step_time_ms": encode_float(self.step_time_ms),
            "tflops_per_gpu": encode_float(self.tflops_per_gpu),
            "learning_rate": encode_float(self.learning_rate),
            "global_batch_size": self.global_batch_size,
            "losses": encode_losses(self.losses),
            "loss_scale": encode_float(self.loss_scale),
            "grad_norm": encode_float(self.grad_norm),
            "skipped": self.skipped,
            "nan": self.nan,
            "recovered": self.recovered,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepRecord:
        """Rebuild from ``to_json``'s data. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            step=int(data["step"]),
            of=int(data["of"]),
            attempt=int(data.get("attempt", 0)),
            time=data.get("time"),
            consumed_samples=_decode_int(data.get("consumed_samples")),
            step_time_ms=decode_float(data.get("step_time_ms")),
            tflops_per_gpu=decode_float(data.get("tflops_per_gpu")),
            learning_rate=decode_float(data.get("learning_rate")),
            global_batch_size=_decode_int(data.get("global_batch_size")),
            losses=decode_losses(data.get("losses", {})),
            loss_scale=decode_float(data.get("loss_scale")),
            grad_norm=decode_float(data.get("grad_norm")),
            skipped=_decode_int(data.get("skipped")),
            nan=_decode_int(data.get("nan")),
            recovered=bool(data.get("recovered", False)),
        )


@dataclass(frozen=True)
class EvaluationRecord:
    """Losses of one evaluation. ``which``: "interval" (while training), or "validation" or "test" at the end."""

    iteration: int
    which: str
    losses: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {"iteration": self.iteration, "which": self.which, "losses": encode_losses(self.losses)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EvaluationRecord:
        return cls(int(data["iteration"]), str(data["which"]), decode_losses(data["losses"]))


@dataclass(frozen=True)
class SaveRecord:
    """A checkpoint save, as the log tells it. ``phase``: "started" or "finished". ``path``: the --save folder."""

    iteration: int
    path: str
    phase: str

    def to_json(self) -> dict[str, Any]:
        return {"iteration": self.iteration, "path": self.path, "phase": self.phase}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SaveRecord:
        return cls(int(data["iteration"]), str(data["path"]), str(data["phase"]))


@dataclass(frozen=True)
class Evidence:
    """The ``[seatrial evidence]`` line of rank 0: what really ran, seen from inside the process.

    ``when``: "first step" or "end". ``deep_ep``: file, version and whether it is the CPU stand-in.
    """

    when: str
    iteration: int
    world_size: Optional[int] = None
    device: Optional[str] = None
    rehearsal: bool = False
    dispatcher: Optional[str] = None
    dispatcher_backend: Optional[str] = None
    deep_ep: Optional[Mapping[str, Any]] = None
    dispatch_calls: Optional[int] = None
    cuda_graphs_captured: Optional[int] = None
    transformer_impl: Optional[str] = None
    versions: Mapping[str, Any] = field(default_factory=dict)
    gpu: Optional[str] = None

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA_VERSION, **self.__dict__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evidence:
        """Rebuild from the line's JSON object. Raises KeyError, TypeError or ValueError for anything else."""
        deep_ep = data.get("deep_ep")
        gpu = data.get("gpu")
        return cls(
            when=str(data["when"]),
            iteration=int(data["iteration"]),
            world_size=_decode_int(data.get("world_size")),
            device=data.get("device"),
            rehearsal=bool(data.get("rehearsal", False)),
            dispatcher=data.get("dispatcher"),
            dispatcher_backend=data.get("dispatcher_backend"),
            deep_ep=None if deep_ep is None else dict(deep_ep),
            dispatch_calls=_decode_int(data.get("dispatch_calls")),
            cuda_graphs_captured=_decode_int(data.get("cuda_graphs_captured")),
            transformer_impl=data.get("transformer_impl"),
            versions=dict(data.get("versions") or {}),
            gpu=None if gpu is None else str(gpu),
        )


@dataclass(frozen=True)
class ArgumentDump:
    """Megatron's argument dump: name -> printed value. ``complete`` only where header and footer were seen."""

    values: Mapping[str, str]
    complete: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"values": dict(self.values), "complete": self.complete}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ArgumentDump:
        return cls(dict(data["values"]), bool(data["complete"]))


@dataclass(frozen=True)
class Start:
    """The training loop is about to run its first step. ``loaded``: iteration of the checkpoint it loaded."""

    loaded: Optional[int] = None

    def to_json(self) -> dict[str, Any]:
        return {"loaded": self.loaded}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Start:
        return cls(_decode_int(data["loaded"]))


@dataclass(frozen=True)
class ExitNotice:
    """Why the loop ended, in its own words.

    ``reason``: "signal" (whichever it was), "duration", "interval", or "done" after the last iteration.
    """

    reason: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"reason": self.reason, "text": self.text}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ExitNotice:
        return cls(str(data["reason"]), str(data["text"]))


Record = Union[StepRecord, EvaluationRecord, SaveRecord, Evidence, ArgumentDump, Start, ExitNotice]
