"""A GPT model whose multi-token prediction layer comes from the decoder block itself.

Megatron's own builder makes the prediction layer from ``get_gpt_decoder_layer_specs``, which refuses the gated delta
net. Here it is the last layer of the block that the decoder is built from (for Qwen3.5 gated attention).
"""

from __future__ import annotations

from typing import Any

from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel.utils import (
    is_pp_first_stage,
    is_pp_last_stage,
    is_vp_first_stage,
    is_vp_last_stage,
)
from megatron.training.vocab_utils import calculate_padded_vocab_size


class BlockBuilder:
    """Builds stages of ``_model_config`` (Megatron's GPT configuration, with a ``spec_transform``) from its block spec,
    by the contract of Megatron's builders. A release's builder says which block that is."""

    _model_config: Any

    def _layer_spec(self, vp_stage: int | None) -> Any:
        raise NotImplementedError

    def build_model(
        self,
        pg_collection: Any,
        pre_process: bool | None = None,
        post_process: bool | None = None,
        vp_stage: int | None = None,
    ) -> GPTModel:
        """Build one stage."""
        config, block = self._model_config, self._layer_spec(vp_stage)
        transformer = config.transformer
        transform = config.spec_transform or (lambda spec: spec)
        prediction = None
        if transformer.mtp_num_layers:
            prediction = get_gpt_mtp_block_spec(transformer, block, use_transformer_engine=True, vp_stage=vp_stage)
        vp_size = transformer.virtual_pipeline_model_parallel_size
        if pre_process is None:
            pre_process = is_vp_first_stage(vp_stage=vp_stage, vp_size=vp_size) and is_pp_first_stage(pg_collection.pp)
        if post_process is None:
            post_process = is_vp_last_stage(vp_stage=vp_stage, vp_size=vp_size) and is_pp_last_stage(pg_collection.pp)
        return GPTModel(
            config=transformer,
            transformer_layer_spec=transform(block),
            mtp_block_spec=transform(prediction),
            vocab_size=_padded_vocab_size(config),
            max_sequence_length=config.seq_length,
            fp16_lm_cross_entropy=config.fp16_lm_cross_entropy,
            parallel_output=config.parallel_output,
            share_embeddings_and_output_weights=config.share_embeddings_and_output_weights,
            position_embedding_type=config.position_embedding_type,
            rotary_percent=config.rotary_percent,
            rotary_base=config.rotary_base,
            rope_scaling=config.rope_scaling,
            rope_scaling_factor=config.rope_scaling_factor,
            seq_len_interpolation_factor=config.seq_len_interpolation_factor,
            scatter_embedding_sequence_parallel=config.scatter_embedding_sequence_parallel,
            pre_process=pre_process,
            post_process=post_process,
            pg_collection=pg_collection,
            vp_stage=vp_stage,
        )


def _padded_vocab_size(config: Any) -> int:
    if not config.should_pad_vocab:
        return int(config.vocab_size)
    return int(
        calculate_padded_vocab_size(
            config.vocab_size,
            config.make_vocab_size_divisible_by,
            config.transformer.tensor_model_parallel_size,
        )
    )
