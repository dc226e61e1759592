"""Let code written for CUDA run on the CPU: ``torch.cuda`` answers, ``device="cuda"`` means the CPU, NCCL means gloo.

Only names in ``torch`` are rebound (and two in Megatron that reach into CUDA's generators); Megatron's files are
read as shipped. Rebinding beats a ``TorchFunctionMode`` here: a mode would slow down every operator, this costs
something only where a tensor is made or moved.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import time
import types
from collections.abc import Callable
from typing import Any

import torch

from seatrial.errors import SeatrialError

from . import gloo

CPU = torch.device("cpu")
CAPABILITY = (10, 0)  # a GB200's, so that Megatron takes the branches of the hardware that is rehearsed

# Every factory that takes ``device=``.
FACTORIES = (
    "arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace",
    "ones", "ones_like", "rand", "randint", "randn", "randperm", "tensor", "zeros", "zeros_like",
)  # fmt: skip
METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
LEGACY_TYPES = (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "IntTensor", "LongTensor", "ByteTensor",
    "BoolTensor",
)  # fmt: skip
NOTHING_TO_DO = (
    "synchronize", "empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated", "init", "ipc_collect",
    "set_device", "set_stream", "set_per_process_memory_fraction",
)  # fmt: skip


class Stream:
    """A stream that is always done."""

    cuda_stream = 0
    device = CPU

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def wait_stream(self, *_: Any) -> None: ...
    def wait_event(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, 0)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class Event:
    """An event that happens when it is recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.time = time.perf_counter()

    def record(self, *_: Any) -> None:
        self.time = time.perf_counter()

    def wait(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this event to ``other``."""
        return (other.time - self.time) * 1e3


def refuse_gpu() -> None:
    """Raise if this process sees a GPU: a rehearsal on it would be neither a rehearsal nor a run.

    Raises:
        SeatrialError: a CUDA device is visible.
    """
    if torch.cuda.is_available():
        raise SeatrialError(
            f"device 'cpu' on a machine with {torch.cuda.device_count()} visible GPU(s)",
            key="profile.device",
            value="cpu",
            rule="a rehearsal stands in for CUDA and must not touch a GPU",
            fix="set CUDA_VISIBLE_DEVICES to the empty string, or use a profile with device: cuda",
        )


def install() -> None:
    """Rebind the names. Refuses where a GPU is visible."""
    refuse_gpu()
    _install_cuda_module()
    _install_tensors()
    gloo.install()
    _install_random()


def _install_cuda_module() -> None:
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": CPU,
        "get_device_capability": CAPABILITY,
        "get_device_name": "CPU (rehearsal)",
        "get_device_properties": types.SimpleNamespace(
            major=CAPABILITY[0],
            minor=CAPABILITY[1],
            multi_processor_count=1,
            total_memory=1 << 34,
            name="CPU",
        ),
        "mem_get_info": (1 << 34, 1 << 34),
        "is_current_stream_capturing": False,
        "is_bf16_supported": True,
    }
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, _answer=answer, **__: _answer)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_, **__: 0)
    for name in NOTHING_TO_DO:
        setattr(cuda, name, lambda *_, **__: None)
    # The data loader asks this one whether to pin memory.
    torch.accelerator.is_available = lambda: False
    cuda.memory_stats = lambda *_, **__: collections.defaultdict(int)
    stream = Stream()
    cuda.current_stream = cuda.default_stream = lambda *_, **__: stream
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.Stream, cuda.Event = Stream, Event
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_, **__: None
    for name in LEGACY_TYPES:
        setattr(cuda, name, getattr(torch, name))


def on_cpu(device: Any) -> Any:
    """Return the CPU for every way to name a CUDA device, anything else unchanged."""
    if isinstance(device, torch.device):
        return CPU if device.type == "cuda" else device
    if isinstance(device, str):
        return CPU if device.startswith("cuda") else device
    if isinstance(device, int) and not isinstance(device, bool):
        return CPU
    return device


def _with_device(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = on_cpu(kwargs["device"])
        return function(*args, **kwargs)

    return wrapped


def _install_tensors() -> None:
    for name in FACTORIES:
        setattr(torch, name, _with_device(getattr(torch, name)))
    tensor: Any = torch.Tensor
    for name in METHODS:
        setattr(tensor, name, _with_device(getattr(tensor, name)))

    tensor_to, tensor_type = tensor.to, tensor.type

    @functools.wraps(tensor_to)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], (str, torch.device, int)):
            args = (on_cpu(args[0]), *args[1:])
        if kwargs.get("device") is not None:
            kwargs["device"] = on_cpu(kwargs["device"])
        return tensor_to(self, *args, **kwargs)

    @functools.wraps(tensor_type)
    def type_(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # The optimizer asserts on the name: torch.cuda.FloatTensor and kin.
        name = tensor_type(self, *args, **kwargs)
        return name.replace("torch.", "torch.cuda.", 1) if isinstance(name, str) else name

    tensor.to, tensor.type = to, type_
    tensor.cuda = tensor.pin_memory = lambda self, *_, **__: self
    tensor.record_stream = lambda self, *_: None
    torch.nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign, assignment, return-value]


def _install_random() -> None:
    """The CUDA generator is the CPU's."""
    cuda: Any = torch.cuda
    cuda.manual_seed = cuda.manual_seed_all = lambda seed: torch.default_generator.manual_seed(seed)
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    from megatron.core.tensor_parallel import random as megatron_random

    megatron_random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    megatron_random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
