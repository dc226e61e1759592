"""What really ran: observed in the built model and in the calls, never copied from the configuration."""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
from typing import Any

import torch

from seatrial.run.releases import installed

PREFIX = "[seatrial evidence] "
SCHEMA = 1
# What a result may depend on too, where it is installed.
_ALSO = ("megatron-bridge", "mamba-ssm", "causal-conv1d", "flash-linear-attention", "transformers", "nvidia-modelopt")
_OF_THE_IMAGE = ("NVIDIA_PRODUCT_NAME", "NVIDIA_PYTORCH_VERSION", "NVIDIA_BUILD_ID", "NVIDIA_BUILD_REF", "CUDA_VERSION")


class Evidence:
    """Counts dispatches and graph captures from :meth:`install` on, and prints the evidence lines of rank 0."""

    def __init__(self, *, rank: int, world_size: int, device: str, rehearsal: bool) -> None:
        self.rank, self.world_size, self.device, self.rehearsal = rank, world_size, device, rehearsal
        self.dispatch_calls = 0
        self.captures = 0
        self.model: list[Any] = []

    def install(self) -> None:
        """Count from now on. After Megatron is imported, before the model is built."""
        from megatron.core.transformer.moe import fused_a2a

        buffer = getattr(fused_a2a, "HybridEPBuffer", None)
        if buffer is not None:
            self._count(buffer, "dispatch_with_permute", "dispatch_calls")
        graph: Any = torch.cuda.CUDAGraph
        if hasattr(graph, "capture_begin"):
            self._count(graph, "capture_begin", "captures")

    def _count(self, owner: Any, method: str, counter: str) -> None:
        original = getattr(owner, method)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            setattr(self, counter, getattr(self, counter) + 1)
            return original(*args, **kwargs)

        setattr(owner, method, counted)

    def see_model(self, model: list[Any]) -> list[Any]:
        """A hook for the built model; returns it unchanged."""
        self.model = model
        return model

    def line(self, when: str, iteration: int) -> str:
        """Return the evidence line; ``iteration`` counts finished steps of the run."""
        dispatcher, backend = dispatcher_of(self.model)
        record = {
            "schema": SCHEMA,
            "when": when,
            "iteration": iteration,
            "world_size": torch.distributed.get_world_size() if torch.distributed.is_initialized() else self.world_size,
            "device": self.device,
            "rehearsal": self.rehearsal,
            "dispatcher": dispatcher,
            "dispatcher_backend": backend,
            "deep_ep": deep_ep_found(),
            "dispatch_calls": self.dispatch_calls,
            "cuda_graphs_captured": self.captures,
            "transformer_impl": transformer_impl(self.model),
            "versions": versions(self.device),
            "container": container(),
            "gpu": None if self.device == "cpu" else torch.cuda.get_device_name(),
        }
        return PREFIX + json.dumps(record)

    def print(self, when: str, iteration: int) -> None:
        """Print the line, on rank 0 only."""
        if self.rank == 0:
            print(self.line(when, iteration), flush=True)


def dispatcher_of(model: list[Any]) -> tuple[str | None, str | None]:
    """Return class and backend of the token dispatcher in the built modules; (None, None) for a dense model."""
    for chunk in model:
        for module in chunk.modules():
            dispatcher = getattr(module, "token_dispatcher", None)
            if dispatcher is not None:
                manager = getattr(dispatcher, "_comm_manager", None)
                name = type(manager).__name__.lstrip("_").removesuffix("Manager").lower() if manager else None
                return type(dispatcher).__name__, name
    return None, None


def transformer_impl(model: list[Any]) -> str:
    """Return whose linear layers the model is made of: ``transformer_engine`` or ``local``."""
    for chunk in model:
        for module in chunk.modules():
            if any(base.__module__.startswith("transformer_engine") for base in type(module).__mro__):
                return "transformer_engine"
    return "local"


def deep_ep_found() -> dict[str, Any] | None:
    """Return where the imported ``deep_ep`` came from, or None if none was imported."""
    module = sys.modules.get("deep_ep")
    if module is None:
        return None
    return {
        "file": getattr(module, "__file__", None),
        "version": getattr(module, "__version__", None) or installed("deep_ep"),
        "stand_in": bool(getattr(module, "stand_in", False)),
    }


def versions(device: str) -> dict[str, str | None]:
    """Return the versions that a result depends on."""
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "megatron_core": installed("megatron-core"),
        "transformer_engine": installed("transformer-engine"),
        "cuda": None if device == "cpu" else torch.version.cuda,
        "nccl": None if device == "cpu" else ".".join(map(str, torch.cuda.nccl.version())),
    }
    return found | {name.replace("-", "_"): installed(name) for name in _ALSO if installed(name)}


def container() -> dict[str, str]:
    """Return what the image says of itself in the variables that NVIDIA's images set; empty outside of one."""
    return {name: os.environ[name] for name in _OF_THE_IMAGE if os.environ.get(name)}
