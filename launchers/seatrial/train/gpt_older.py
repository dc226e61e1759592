"""A GPT model for a megatron-core that has no configuration of one (0.18): made of the arguments, built by us."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from megatron.core.models.gpt.experimental_attention_variant_module_specs import (
    get_transformer_block_with_experimental_attention_variant_spec,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.spec_utils import import_module
from megatron.training.argument_utils import core_transformer_config_from_args
from megatron.training.models.base import ModelConfig

from .gpt_model import BlockBuilder


@dataclass(kw_only=True)
class OlderGPTModelConfig(ModelConfig):  # type: ignore[misc]
    """What a GPT model is built from, under the names that 0.19's configuration has."""

    builder: ClassVar[str] = "seatrial.train.gpt_older.OlderGPTModelBuilder"
    transformer: Any
    vocab_size: int
    should_pad_vocab: bool
    make_vocab_size_divisible_by: int
    seq_length: int
    share_embeddings_and_output_weights: bool
    fp16_lm_cross_entropy: bool
    position_embedding_type: str
    rotary_percent: float
    rotary_base: int
    rope_scaling: bool
    seq_len_interpolation_factor: float | None
    rope_scaling_factor: float = 8.0
    parallel_output: bool = True
    scatter_embedding_sequence_parallel: bool = True
    transformer_layer_spec: Any = None
    spec_transform: Callable[[Any], Any] | None = None

    def finalize(self) -> None:
        """Check the transformer's configuration once, where it can do so."""
        check = getattr(self.transformer, "finalize", None)
        if callable(check):
            check()


class OlderGPTModelBuilder(BlockBuilder):
    """Builds the block that the arguments ask for."""

    def __init__(self, model_config: OlderGPTModelConfig) -> None:
        self._model_config = model_config

    def _layer_spec(self, vp_stage: int | None) -> Any:
        return self._model_config.transformer_layer_spec or _block(self._model_config.transformer, vp_stage)


def _block(transformer: Any, vp_stage: int | None) -> Any:
    if transformer.experimental_attention_variant is not None:
        return get_transformer_block_with_experimental_attention_variant_spec(config=transformer, vp_stage=vp_stage)
    return get_gpt_decoder_block_spec(
        transformer,
        use_transformer_engine=transformer.transformer_impl == "transformer_engine",
        normalization=transformer.normalization,
        qk_l2_norm=transformer.qk_l2_norm,
        vp_stage=vp_stage,
    )


def config_from_args(args: Any, transform: Callable[[Any], Any] | None) -> OlderGPTModelConfig:
    """Return the configuration for parsed arguments, by the rules of 0.19's ``gpt_config_from_args``."""
    exact = args.padded_vocab_size is not None
    return OlderGPTModelConfig(
        transformer=core_transformer_config_from_args(args),
        vocab_size=args.padded_vocab_size if exact else args.vocab_size,
        should_pad_vocab=not exact,
        make_vocab_size_divisible_by=args.make_vocab_size_divisible_by,
        seq_length=args.max_position_embeddings,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        fp16_lm_cross_entropy=args.fp16_lm_cross_entropy,
        position_embedding_type=args.position_embedding_type,
        rotary_percent=args.rotary_percent,
        rotary_base=args.rotary_base,
        rope_scaling=args.use_rope_scaling,
        seq_len_interpolation_factor=args.rotary_seq_len_interpolation_factor,
        transformer_layer_spec=import_module(args.spec) if args.spec is not None else None,
        spec_transform=transform,
    )
