"""Declared stand-ins for what Megatron-Bridge imports and a machine without a GPU lacks, so that a recipe resolves.

They let modules be imported and classes derived, and compute nothing. No rank of a run on GPUs has them.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterable
from typing import Any

from .. import stand_in

# Package -> what of Megatron-Bridge asks for it when its recipes are imported.
PACKAGES = {
    "transformer_engine": "layers and adapters",
    "transformer_engine_torch": "diffusion models",
    "modelopt": "quantization and distillation",
    "nvidia_resiliency_ext": "in-process restart and asynchronous saves",
    "diffusers": "diffusion models",
    "datasets": "fine-tuning data",
    "webdataset": "multimodal data",
    "megatron.energon": "multimodal data",
    "torchvision": "image data",
    "PIL": "image data",
    "imageio": "video data",
    "easydict": "diffusion models",
    "qwen_vl_utils": "image data",
    "timm": "vision models",
    "open_clip": "vision models",
    "decord": "video data",
}

# They ask which packages there are when they are imported, and must not find stand-ins.
_ASKING = (
    "megatron.core.dist_checkpointing", "megatron.core.optimizer", "megatron.training.training",
    "megatron.core.models.gpt.experimental_attention_variant_module_specs", "megatron.core.ssm.gated_delta_net",
    "transformers",
)  # fmt: skip


class _Name(abc.ABCMeta):
    """A class for any name of an absent module: it can be derived from, subscripted, used as a decorator."""

    def __getattr__(cls, name: str) -> Any:
        return _named(cls, name)

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]  # @decorator
        if kwargs and not args:
            return lambda decorated: decorated  # @decorator(option=True)
        return super().__call__()


def _named(owner: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    made = _Name(name, (), {"__module__": owner.__name__})
    setattr(owner, name, made)
    return made


class _Module(types.ModuleType):
    stand_in = True

    def __getattr__(self, name: str) -> Any:
        return _named(self, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules of absent packages. Last in line: what is installed is found before."""

    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = tuple(packages)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not any(name == package or name.startswith(f"{package}.") for package in self.packages):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def declare() -> list[str]:
    """Set the stand-ins in this process; returns what was stood in, one sentence each. What is installed stays."""
    declared = stand_in.declare()  # a GPU, a release of Transformer Engine, fused kernels
    import torch

    cuda: Any = torch.cuda
    if not cuda.is_available():
        major, minor = stand_in.CAPABILITY
        cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=major, minor=minor, name="NVIDIA GB200")
    return declared + packages()


def packages() -> list[str]:
    """Stand in for the absent packages alone; returns them, one sentence each."""
    for name in _ASKING:
        importlib.import_module(name)
    absent = [name for name in PACKAGES if not _installed(name)]
    sys.meta_path.append(_Finder(absent))
    return [f"{name}, for {PACKAGES[name]}" for name in absent]


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
