"""The Megatron-Bridge engine: what of a run Megatron-Bridge is told, as the KEY=VALUE overrides of its own recipes.

Its recipe, from the image, is what is trained. Told are the run controls, batch, layout, vocabulary and data, what the
kind, the site and the command line change, and what our recipe's ``bridge.overrides`` name. Keys are those of
Megatron-Bridge 0.5's ConfigContainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.run.overrides import words
from seatrial.spec.engine import MEGATRON_BRIDGE
from seatrial.spec.owners import RUN_CONTROLS
from seatrial.spec.runspec import Field

# Our key -> Bridge's. An argument of Megatron's that is not here, Bridge derives or has no field for.
_SAME_IN = {
    "model": (
        "seq_length", "hidden_size", "ffn_hidden_size", "num_layers", "num_attention_heads", "num_query_groups",
        "kv_channels", "hybrid_layer_pattern", "mtp_num_layers", "mtp_loss_scaling_factor", "hidden_dropout",
        "attention_dropout", "attention_backend", "apply_rope_fusion", "persist_layer_norm", "bias_dropout_fusion",
        "cross_entropy_fusion_impl", "cuda_graph_impl", "recompute_granularity", "recompute_method",
        "recompute_num_layers", "recompute_modules", "moe_router_topk", "moe_router_dtype", "moe_router_fusion",
        "moe_router_load_balancing_type", "moe_router_force_load_balancing", "moe_router_bias_update_rate",
        "moe_aux_loss_coeff", "moe_permute_fusion", "moe_grouped_gemm", "moe_token_dispatcher_type",
        "moe_flex_dispatcher_backend", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size",
        "moe_shared_expert_overlap", "tensor_model_parallel_size", "pipeline_model_parallel_size",
        "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel",
        "gradient_accumulation_fusion", "masked_softmax_fusion", "mamba_num_heads", "mamba_head_dim", "mamba_state_dim",
        "mamba_num_groups", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim",
    ),
    "train": (
        "train_iters", "global_batch_size", "micro_batch_size", "manual_gc", "manual_gc_interval",
    ),
    "scheduler": (
        "lr_warmup_iters", "lr_warmup_init", "lr_decay_iters", "lr_decay_style", "override_opt_param_scheduler",
    ),
    "optimizer": ("lr", "min_lr", "adam_beta1", "adam_beta2", "adam_eps", "clip_grad"),
    "checkpoint": (
        "save_interval", "async_save", "save_optim", "save_rng", "load_optim", "load_rng", "dist_ckpt_strictness",
        "ckpt_assume_constant_structure",
    ),
    "validation": ("eval_interval", "eval_iters"),
    "logger": ("log_interval", "log_throughput", "log_timers_to_tensorboard", "logging_level"),
    "dataset": ("num_workers", "split", "mmap_bin_files", "dataloader_type"),
    "tokenizer": ("tokenizer_type", "tokenizer_model", "vocab_size"),
    "ddp": ("overlap_grad_reduce", "overlap_param_gather", "use_distributed_optimizer"),
}  # fmt: skip
_OTHERWISE = {
    "num_experts": ("model.num_moe_experts",),
    "moe_flex_dispatcher_num_sms": ("model.moe_hybridep_num_sms",),
    "padded_vocab_size": ("model.vocab_size",),
    "weight_decay": ("scheduler.start_weight_decay", "scheduler.end_weight_decay"),  # its scheduler's win at each step
    "seed": ("rng.seed", "dataset.random_seed"),
    "ddp_average_in_collective": ("ddp.average_in_collective",),
    "ddp_bucket_size": ("ddp.bucket_size",),
    "accumulate_allreduce_grads_in_fp32": ("ddp.grad_reduce_in_fp32",),
    "check_for_nan_in_loss_and_grad": ("rerun_state_machine.check_for_nan_in_loss", "ddp.check_for_nan_in_grad"),
    "rerun_mode": ("rerun_state_machine.rerun_mode",),
    "te_rng_tracker": ("rng.te_rng_tracker", "model.use_te_rng_tracker"),
    "data_path": ("dataset.data_path",),
    "mock_data": ("dataset.mock",),
    "max_position_embeddings": (),  # it follows the sequence length
}
KEYS: Mapping[str, tuple[str, ...]] = {
    **{key: (f"{section}.{key}",) for section, keys in _SAME_IN.items() for key in keys},
    **_OTHERWISE,
    "seq_length": ("model.seq_length", "dataset.sequence_length"),
}

# Told even where our recipe's value stands: what the checks of a run count on, whatever Bridge's recipe has there.
ALWAYS = RUN_CONTROLS | {
    "micro_batch_size", "seed", "data_path", "split", "tokenizer_type", "tokenizer_model", "sequence_parallel",
    "padded_vocab_size",
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size",
}  # fmt: skip


def overrides(fields: Mapping[str, Field], own: Mapping[str, Any]) -> list[str]:
    """Return the KEY=VALUE words: of ALWAYS and every field that something changed, then ``own``, for Bridge alone.

    Raises SeatrialError for a changed field that has no key there.
    """
    told: dict[str, Any] = {}
    for full, field in fields.items():
        if field.changed or (full.partition(".")[2] in ALWAYS and field.value is not None):
            told |= dict.fromkeys(_keys(full, field), field.value)
    pattern = told.get("model.hybrid_layer_pattern")
    if pattern:
        told["model.num_layers"] = sum(symbol not in "/|" for symbol in pattern)
    return words({**told, **own})


def _keys(full: str, field: Field) -> tuple[str, ...]:
    key = full.partition(".")[2]
    if key not in KEYS:
        raise SeatrialError(
            f"the engine {MEGATRON_BRIDGE} has no override for {key!r}", file=field.source, key=full, value=field.value,
            rule="what a kind or the command line changes must reach the ranks",
            fix=f"{did_you_mean(key, KEYS, otherwise='')} "
            f"or leave it out, and write --set bridge.SECTION.FIELD=VALUE in Megatron-Bridge's own words".lstrip(),
        )  # fmt: skip
    return KEYS[key]
