"""Rehearsal of Megatron-Bridge's loop without a GPU: what ``train.cpu`` gives Megatron-Core's, and what Bridge adds.

The recipe, the overrides and the loop stay Bridge's own. Layers keep their parameters' names and lose Transformer
Engine; packages that Bridge only imports are stood in for.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from .. import cpu
from . import stand_in

# They bind Megatron's functions of the same name when they are imported.
_LOOPS = ("megatron.bridge.training.train", "megatron.bridge.training.eval")


def install() -> list[str]:
    """Install the device shim and the stand-ins; returns what was stood in beside them. Before Megatron is imported."""
    _ask_transformers()
    cpu.install()
    return stand_in.packages()


def _ask_transformers() -> None:
    """Let transformers look for optional kernels, and remember the answer, before any is stood in for."""
    utils: Any = importlib.import_module("transformers.utils.import_utils")
    for name in ("causal_conv1d", "flash_linear_attention", "mamba_ssm", "mamba_2_ssm"):
        getattr(utils, f"is_{name}_available", bool)()


def prepare(config: Any) -> None:
    """Give the model layers that run on a CPU, and the loop no distillation, which it asks a stand-in for."""
    from megatron.bridge.models import gpt_provider

    from ..cpu.specs import te_to_local

    model = config.model
    for name in ("mamba_stack_spec", "hybrid_stack_spec", "transformer_layer_spec"):
        if callable(getattr(model, name, None)):
            setattr(model, name, _then(getattr(model, name), te_to_local))
    gpt_provider.mtp_block_spec = _then(gpt_provider.mtp_block_spec, te_to_local)
    for name in _LOOPS:
        loop = importlib.import_module(name)
        if "modelopt" in sys.modules and getattr(sys.modules["modelopt"], "stand_in", False):
            vars(loop)["get_tensor_shapes_adjust_fn_for_distillation"] = lambda *_, **__: None


def _then(make: Callable[..., Any], transform: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return ``make`` with ``transform`` of what it makes; its signature, which Bridge asks for, stays."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        spec = make(*args, **kwargs)
        return None if spec is None else transform(spec)

    return made
