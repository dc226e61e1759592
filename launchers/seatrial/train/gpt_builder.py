"""The builder of a GPT model for a loop that builds the model itself (megatron-core 0.19)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.training.models.gpt import GPTModelBuilder, GPTModelConfig, default_layer_spec

from .gpt_model import BlockBuilder


@dataclass(kw_only=True)
class BlockGPTModelConfig(GPTModelConfig):  # type: ignore[misc]
    """The wheel's GPT configuration, built by :class:`BlockGPTModelBuilder`."""

    builder: ClassVar[str] = "seatrial.train.gpt_builder.BlockGPTModelBuilder"
    spec_transform: Callable[[Any], Any] | None = None
    """Rewrites layer specs, for a rehearsal on the CPU."""


class BlockGPTModelBuilder(BlockBuilder, GPTModelBuilder):  # type: ignore[misc]
    """Builds decoder and prediction layers from one block spec."""

    def _layer_spec(self, vp_stage: int | None) -> Any:
        spec = self._model_config.transformer_layer_spec
        if spec is None:
            return default_layer_spec(self._model_config, vp_stage)
        if isinstance(spec, ModuleSpec) or not callable(spec):
            return spec
        takes_stage = "vp_stage" in inspect.signature(spec).parameters
        return spec(self._model_config, vp_stage=vp_stage) if takes_stage else spec(self._model_config)
