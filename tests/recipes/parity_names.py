"""Upstream fields that Megatron's command line knows under another name, in another form, or derives.

A field named like an argument needs no entry here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]  # Megatron argument (positive key) -> our value, or Megatron's default


def _same(value: Any) -> Any:
    return value


def _not(value: Any) -> bool:
    return not value


@dataclass(frozen=True)
class Equal:
    """``ours`` of our values must equal ``theirs`` of upstream's value."""

    ours: Callable[[Values], Any]
    theirs: Callable[[Any], Any] = _same


def named(key: str, form: Callable[[Any], Any] = _same, theirs: Callable[[Any], Any] = _same) -> Equal:
    """The field is argument ``key``; ``form`` brings our value into upstream's form."""
    return Equal(lambda values: form(values[key]), theirs)


_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16"}
_PARAMS_DTYPE = named("bf16", lambda on: _DTYPES["bf16" if on else "fp32"])
_FP32_REDUCE = named("accumulate_allreduce_grads_in_fp32")
_NAN_CHECKS = named("check_for_nan_in_loss_and_grad")
_HYBRID_SPEC = ["megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"]


def _std(text: str) -> float:
    """Return the standard deviation of a printed ``partial(<function normal_ ...>, mean=0.0, std=...)``."""
    match = re.search(r"function normal_ .*mean=0\.0, std=([0-9.e-]+)\)", text)
    assert match, text
    return float(match[1])


def layers(values: Values) -> int:
    """The number of layers, which a hybrid pattern gives."""
    return len(values["hybrid_layer_pattern"] or "") or values["num_layers"]


def _output_std(values: Values) -> float:
    """Megatron's scaled initialisation: std / sqrt(2 x layers), or / sqrt(layers) for a hybrid model."""
    return values["init_method_std"] / math.sqrt((1 if values["hybrid_layer_pattern"] else 2) * layers(values))


def _activation(values: Values) -> str:
    return "silu" if values["swiglu"] else "squared_relu" if values["squared_relu"] else "gelu"


def _bias_activation_fusion(values: Values) -> bool:
    if values["swiglu"]:
        return bool(values["bias_swiglu_fusion"])
    return bool(values["bias_gelu_fusion"] and values["add_bias_linear"])


def _overlap_p2p(values: Values) -> bool:
    """Megatron overlaps stages only where the pipeline has virtual ones."""
    return bool(values["overlap_p2p_comm"] and values["num_virtual_stages_per_pipeline_rank"])


def _default(key: str, other: str) -> Equal:
    """Unset, argument ``key`` takes the value of ``other``."""
    return Equal(lambda values: values[key] or values[other])


def _samples(iterations: Equal) -> Equal:
    """Megatron counts the schedule in samples: iterations x global batch."""
    return Equal(lambda values: iterations.ours(values) * values["global_batch_size"])


_DECAY_ITERS = _default("lr_decay_iters", "train_iters")

MODEL = {
    "model.num_moe_experts": named("num_experts"),
    "model.num_layers": Equal(layers),
    "model.vocab_size": named("padded_vocab_size"),
    "model.should_pad_vocab": named("padded_vocab_size", lambda size: size is None),
    "model.share_embeddings_and_output_weights": named("untie_embeddings_and_output_weights", _not),
    "model.activation_func": Equal(_activation),
    "model.gated_linear_unit": named("swiglu"),
    "model.bias_activation_fusion": Equal(_bias_activation_fusion),
    "model.attention_backend": named("attention_backend", theirs=lambda name: name.removeprefix("AttnBackend.")),
    "model.rope_scaling": named("use_rope_scaling"),
    "model.seq_len_interpolation_factor": named("rotary_seq_len_interpolation_factor"),
    "model.use_te_rng_tracker": named("te_rng_tracker"),
    "model.use_cpu_initialization": named("use_cpu_initialization", bool),
    "model.mtp_num_layers": named("mtp_num_layers", theirs=lambda count: count or None),  # none is 0 there, unset here
    "model.is_hybrid_model": named("hybrid_layer_pattern", bool),
    # Upstream's default stack is the one that we name, and its layer spec the one behind the attention variant.
    "model.mamba_stack_spec": named("spec", lambda spec: spec == _HYBRID_SPEC and "get_default_mamba_stack_spec"),
    "model.transformer_layer_spec": named(
        "experimental_attention_variant",
        lambda variant: variant and "get_transformer_block_with_experimental_attention_variant_spec",
    ),
    # Initialisation
    "model.init_method": named("init_method_std", theirs=_std),
    "model.embedding_init_method": named("embedding_init_method_std", theirs=_std),
    "model.output_layer_init_method": Equal(_output_std, _std),
    # 0.19 has one number of SMs for every flex backend.
    "model.moe_hybridep_num_sms": named("moe_flex_dispatcher_num_sms"),
}

PARALLEL = {
    "model.overlap_p2p_comm": Equal(_overlap_p2p),
    "ddp.align_param_gather": Equal(lambda values: bool(values["align_param_gather"] and _overlap_p2p(values))),
    "model.microbatch_group_size_per_vp_stage": _default(
        "microbatch_group_size_per_vp_stage", "pipeline_model_parallel_size"
    ),
    "model.deallocate_pipeline_outputs": Equal(lambda values: True),  # Megatron's command line always sets it
    "model.num_layers_in_first_pipeline_stage": named("decoder_first_pipeline_num_layers"),
    "model.num_layers_in_last_pipeline_stage": named("decoder_last_pipeline_num_layers"),
    "model.virtual_pipeline_model_parallel_size": named("num_virtual_stages_per_pipeline_rank"),
    "ddp.average_in_collective": named("ddp_average_in_collective"),
    "ddp.bucket_size": named("ddp_bucket_size"),
    "ddp.num_buckets": named("ddp_num_buckets"),
    "ddp.pad_buckets_for_high_nccl_busbw": named("ddp_pad_buckets_for_high_nccl_busbw"),
    "ddp.reduce_scatter_with_fp32_accumulation": named("ddp_reduce_scatter_with_fp32_accumulation"),
    "ddp.param_name_patterns_for_fp32_local_accumulation": named("ddp_param_name_patterns_for_fp32_local_accumulation"),
    "ddp.megatron_fsdp_use_decoupled_grad": named("use_precision_aware_optimizer"),
    "ddp.megatron_fsdp_main_params_dtype": named("megatron_fsdp_main_params_dtype", _DTYPES.get),
    "dist.enable_megatron_core_experimental": named("enable_experimental"),
}

PRECISION = {
    "model.params_dtype": _PARAMS_DTYPE,
    "model.pipeline_dtype": _PARAMS_DTYPE,
    "mixed_precision.params_dtype": _PARAMS_DTYPE,
    "mixed_precision.pipeline_dtype": _PARAMS_DTYPE,
    "optimizer.params_dtype": _PARAMS_DTYPE,
    "mixed_precision.fp32": Equal(lambda values: not (values["bf16"] or values["fp16"])),
    "mixed_precision.grad_reduce_in_fp32": _FP32_REDUCE,
    "ddp.grad_reduce_in_fp32": _FP32_REDUCE,
    "ddp.check_for_nan_in_grad": _NAN_CHECKS,
    "rerun_state_machine.check_for_nan_in_loss": _NAN_CHECKS,
    "model.fp8_param": named("fp8_param_gather"),
    "model.fp4_param": named("fp4_param_gather"),
    "mixed_precision.fp8_param": named("fp8_param_gather"),
    "mixed_precision.fp4_param": named("fp4_param_gather"),
    "optimizer.main_grads_dtype": named("main_grads_dtype", _DTYPES.get),
    "optimizer.main_params_dtype": named("main_params_dtype", _DTYPES.get),
    "optimizer.exp_avg_dtype": named("exp_avg_dtype", _DTYPES.get),
    "optimizer.exp_avg_sq_dtype": named("exp_avg_sq_dtype", _DTYPES.get),
}

SCHEDULE = {
    # The decay that counts: with the constant style Megatron takes start and end from --weight-decay.
    "scheduler.start_weight_decay": named("weight_decay"),
    "scheduler.end_weight_decay": named("weight_decay"),
    "scheduler.lr_decay_iters": _DECAY_ITERS,
    "scheduler.lr_decay_steps": _samples(_DECAY_ITERS),
    "scheduler.lr_warmup_steps": _samples(named("lr_warmup_iters")),
    "scheduler.wd_incr_steps": _samples(named("train_iters")),
}

REST = {
    "dataset.blend": named("data_path"),
    "dataset.blend_per_split": named("per_split_data_args_path"),
    "dataset.random_seed": named("seed"),
    "dataset.sequence_length": named("seq_length"),
    "dataset.create_attention_mask": named("create_attention_mask_in_dataloader"),
    "dataset.fast_cache_load": named("dataloader_fast_cache_load"),
    "dataset.defer_npy_index_mmap": named("dataloader_defer_npy_index_mmap"),
    "validation.eval_global_batch_size": _default("eval_global_batch_size", "global_batch_size"),
    "validation.eval_micro_batch_size": _default("eval_micro_batch_size", "micro_batch_size"),
    "train.manual_gc_eval": named("manual_gc_eval", theirs=bool),  # a number there, a switch here
    "checkpoint.fully_parallel_save": named("ckpt_fully_parallel_save"),
    "checkpoint.fully_parallel_load": named("ckpt_fully_parallel_load"),
    "checkpoint.async_strategy": named("async_save", lambda on: None if on else "mcore"),  # forced where saves are sync
    "profiling.use_nsys_profiler": named("profile"),
    "inprocess_restart": named("inprocess_restart", lambda on: on or None),
}

EQUAL: dict[str, Equal] = MODEL | PARALLEL | PRECISION | SCHEDULE | REST
