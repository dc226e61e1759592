"""Upstream fields that are not simply equal to a Megatron argument: what was forced, what has none, what we change.

Every field of the resolved upstream recipes (Megatron-Bridge 987244934) is named like an argument, stands in
``parity_names.EQUAL``, or stands in exactly one table here; a field in none of them fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.recipes.parity_names import Values

MODELS = {
    "nemotron_3_nano": "nemotron_3_nano_gb200",
    "qwen35_35b_a3b": "qwen35_35b_a3b_gb200",
    "qwen35_9b": "qwen35_9b_gb200",
}

# What upstream's runs put over all three recipes, so that we compare like with like. Micro batch 2 is not the 35B
# recipe's own (1), and batch 512 only the 35B recipe's: our kinds keep the recipe's micro batch.
_BATCH = {"schedule.global_batch_size": 512, "schedule.micro_batch_size": 2}
FORCED: dict[str, dict[str, int]] = {
    "gate8": {"schedule.train_iters": 100, "schedule.lr_warmup_iters": 10} | _BATCH,
    "conv64": {"schedule.train_iters": 48000, "schedule.lr_warmup_iters": 480} | _BATCH,
}
PROFILE = {"gate8": "gb200-8gpu", "conv64": "gb200-64gpu"}

# Null means "not set" there: fine wherever we do not set it either. (`comm_overlap` is a layer of requests over the
# settings in `ddp` and `model`, which are compared; `train.eval_*` are deprecated spellings of `validation.*`.)
NULL_IS_UNSET = frozenset({
    "comm_overlap.align_param_gather", "comm_overlap.defer_embedding_wgrad_compute",
    "comm_overlap.delay_wgrad_compute", "comm_overlap.overlap_grad_reduce",
    "comm_overlap.overlap_moe_expert_parallel_comm", "comm_overlap.overlap_p2p_comm",
    "comm_overlap.overlap_param_gather", "comm_overlap.overlap_param_gather_with_optimizer_step",
    "comm_overlap.wgrad_deferral_limit",
    "dataset.context_parallel_size", "dataset.full_validation", "dataset.multiple_validation_sets",
    "dataset.trust_remote_code", "ddp.delay_wgrad_compute", "model.offload_modules",
    "train.eval_interval", "train.eval_iters", "train.skip_train",
})  # fmt: skip

# No argument. Megatron-Core uses this value by itself: a test holds it against the defaults of its config classes.
CORE_DEFAULT: Mapping[str, Mapping[str, Any]] = {
    "checkpoint": {"save_tokenizer_assets": True},
    "dataset": {
        "add_extra_token_to_sequence": True, "data_parallel_size": 1, "drop_last_partial_validation_sequence": True,
        "sequence_parallel_size": 0, "sequences_per_dataset": None, "token_dtype_code": None, "tokenizer": None,
    },
    "ddp": {
        "fsdp_all_gather_in_start_param_sync": True, "megatron_fsdp_cuda_graph_mode": False, "use_custom_fsdp": False,
    },
    "logger": {
        "filter_warnings": True, "log_l2_norm_grad_to_tensorboard": False, "log_runtime_to_tensorboard": False,
        "log_throughput_to_tensorboard": False, "memory_keys": None, "modules_to_filter": None,
        "runtime_time_unit": "hours", "save_config_filepath": None, "set_level_for_all_loggers": False,
        "throughput_window_size": 100,
    },
    "mixed_precision": {
        "autocast_dtype": None, "fp8_dot_product_attention": False, "fp8_multi_head_attention": False,
    },
    "model": {
        "activation_func_fp8_input_store": False, "batch_p2p_sync": True, "cpu_offloading": False,
        "cpu_offloading_activations": True, "cpu_offloading_double_buffering": False, "cpu_offloading_weights": False,
        "cuda_graph_retain_backward_graph": False, "cuda_graph_scope": None, "cuda_graph_use_single_mempool": True,
        "disable_parameter_transpose_cache": False, "enable_autocast": False, "finalize_model_grads_func": None,
        "fp8_dot_product_attention": False, "fp8_multi_head_attention": False, "fused_single_qkv_rope": False,
        "grad_scale_func": None, "grad_sync_func": None, "heterogeneous_block_specs": False,
        "hybrid_attention_ratio": 0.0, "hybrid_mlp_ratio": 0.0, "memory_efficient_layer_norm": False,
        "moe_router_topk_limited_devices": None, "moe_token_dropping": False, "no_sync_func": None,
        "num_microbatches_with_partial_activation_checkpoints": None, "parallel_output": True, "param_sync_func": None,
        "quant_recipe": None, "restore_modelopt_state": False, "scatter_embedding_sequence_parallel": True,
        "softmax_scale": None, "timers": None, "tp_comm_atomic_ag": False, "tp_comm_atomic_rs": False,
        "tp_comm_overlap_disable_fc1": False, "tp_comm_overlap_disable_qkv": False, "tp_only_amax_red": False,
        "use_arbitrary_attention_mask": None, "use_inference_optimized_layers": False, "use_kitchen": False,
        "variable_seq_lengths": False,
    },
    "optimizer": {
        "adaptive_muon_beta2": 0.95, "adaptive_muon_eps": 1e-8, "adaptive_muon_moment2_method": "adamuon",
        "decoupled_weight_decay": True, "grad_norm_skip_threshold": float("inf"), "soap_precondition_frequency": 1,
        "soap_shampoo_beta": 0.95, "soap_use_kl_shampoo": True, "store_param_remainders": True, "timers": None,
        "use_layer_wise_distributed_optimizer": False,
    },
    "scheduler": {"wsd_decay_steps": None},
}  # fmt: skip

# No argument and no such thing in Megatron-Core: features of Megatron-Bridge, all off or at the only value that fits.
BRIDGE_ONLY: Mapping[str, Any] = {
    "checkpoint.custom_manager_class": None,
    "comm_overlap.batch_p2p_comm": None,
    "comm_overlap.bucket_size": None,
    "dataset.drop_last": True,
    "dataset.persistent_workers": True,
    "dataset.pin_memory": True,
    "dist.eval_context_parallel_size": None,
    "dist.external_gpu_device_mapping": False,
    "dist.use_decentralized_pg": False,
    "ft": None,
    "mixed_precision.autocast_enabled": False,
    "model.dense_grouped_gemm": False,
    "model.hf_model_id": None,
    "model.keep_mtp_spec_in_bf16": False,
    "model.mtp_enabled": False,
    "model.use_transformer_engine_full_layer_spec": False,
    "nvrx_straggler": None,
    "optimizer_config_override_provider": {},
    "peft": None,
    "rerun_state_machine.spiky_loss_factor": 10.0,
    "straggler": None,
    "tensor_inspect": None,
    "tokenizer.force_system_message": False,
    "tokenizer.hf_tokenizer_kwargs": {},
    "tokenizer.image_tag_type": None,
    "tokenizer.rank": 0,
    "tokenizer.sp_tokenizer_kwargs": {},
    "tokenizer.tokenizer_prompt_format": None,
    "train.skip_sync_grad_norm_across_mp": False,
    "logger.skip_train_metrics_log": False,
    **{f"logger.comet_{name}": None for name in ("api_key", "experiment_name", "project", "tags", "workspace")},
    **{f"logger.mlflow_{name}": None for name in ("description", "experiment", "run_name", "tags", "tracking_uri")},
    "logger.mlflow_log_artifacts": True,
}


def _always(values: Values) -> bool:
    return True


@dataclass(frozen=True)
class Difference:
    """Fields that we want different, why, and what must hold for the reason to be true."""

    reason: str
    fields: frozenset[str]
    while_: Callable[[Values], Any] = field(default=_always)


def _differs(reason: str, *fields: str, while_: Callable[[Values], Any] = _always) -> Difference:
    return Difference(reason, frozenset(fields), while_)


INTENDED = (
    # Ours to decide
    _differs("set by the run at each attempt", "checkpoint.load", "checkpoint.save", "logger.tensorboard_dir",
             "train.exit_signal", "dataset.path_to_cache"),
    _differs("ours: how many checkpoints stay is decided outside the training loop", "checkpoint.most_recent_k"),
    _differs("the nominal 0.1 never acts: upstream's scheduler overwrites it with 0.033, which is compared",
             "optimizer.weight_decay", while_=lambda v: v["weight_decay"] == 0.033),
    _differs("no data by default: upstream falls back to mock data, which forces this split",
             "dataset.mock", "dataset.split", "dataset.split_matrix",
             while_=lambda v: not v["mock_data"] and v["data_path"] is None),
    # No counterpart: dropped
    _differs("Megatron writes with its own number of processes", "checkpoint.storage_writers_per_rank",
             "checkpoint.async_write_results_mp_mode"),
    _differs("Megatron counts skipped iterations, which the judge reads", "train.check_optimizer_step_success"),
    _differs("no argument; linear_attention_freq above 1 saves layers one by one just the same",
             "model.hetereogenous_dist_checkpoint", while_=lambda v: (v["linear_attention_freq"] or 2) > 1),
    # One argument where upstream has two fields that contradict each other
    _differs("padded_vocab_size says the exact size, so that nothing is padded",
             "tokenizer.padded_vocab_size", "tokenizer.make_vocab_size_divisible_by",
             while_=lambda v: v["padded_vocab_size"] and not v["pad_vocab_size"]),
    _differs("upstream switches it off itself at TP 1: model.tp_comm_overlap is false", "comm_overlap.tp_comm_overlap",
             while_=lambda v: v["tensor_model_parallel_size"] == 1),
    _differs("data parallel size follows from the world size; a test computes it", "comm_overlap.data_parallel_size"),
    _differs("only for level-1 timers, whose barrier Megatron sets by one argument", "optimizer.barrier_with_L1_time",
             while_=lambda v: v["timing_log_level"] == 0),
    # Without effect, because what they belong to is off
    _differs("no pipeline", "model.batch_p2p_comm", "model.wgrad_deferral_limit",
             while_=lambda v: v["pipeline_model_parallel_size"] == 1 and not v["defer_embedding_wgrad_compute"]),
    _differs("no context parallelism", "model.cp_comm_type", while_=lambda v: v["context_parallel_size"] == 1),
    _differs("no FP8", "model.fp8_recipe", "mixed_precision.fp8_recipe", "optimizer.fp8_recipe",
             while_=lambda v: v["fp8"] is None),
    _differs("no layers of another precision", "model.num_layers_at_start_in_bf16", "model.num_layers_at_end_in_bf16",
             "mixed_precision.num_layers_at_start_in_bf16", "mixed_precision.num_layers_at_end_in_bf16",
             while_=lambda v: not v["first_last_layers_bf16"]),
    _differs("no autocast: the parameters are BF16", "model.autocast_dtype", while_=lambda v: v["bf16"]),
    _differs("no DeepEP", "model.moe_deepep_num_sms",
             while_=lambda v: v["num_experts"] is None or v["moe_flex_dispatcher_backend"] == "hybridep"),
    _differs("no recomputation: Megatron fills this in", "model.recompute_modules",
             while_=lambda v: v["recompute_granularity"] is None),
    _differs("plain rotary embedding or none, no scaling", "model.rope_scaling_factor", "model.rotary_scaling_factor",
             "model.yarn_rotary_scaling_factor", "model.yarn_mscale", "model.yarn_mscale_all_dim",
             while_=lambda v: v["position_embedding_type"] in ("rope", "none") and not v["use_rope_scaling"]),
    _differs("no Megatron FSDP", "checkpoint.strict_fsdp_dtensor_load", "ddp.megatron_fsdp_grad_comm_dtype",
             "ddp.megatron_fsdp_main_grads_dtype", while_=lambda v: not v["use_megatron_fsdp"]),
    _differs("not Muon", "optimizer.muon_momentum", while_=lambda v: v["optimizer"] == "adam"),
    _differs("no offload of the optimizer", "optimizer.optimizer_offload_fraction",
             while_=lambda v: not v["optimizer_cpu_offload"]),
    _differs("not the warm-up, stable, decay schedule", "scheduler.lr_wsd_decay_style",
             while_=lambda v: v["lr_decay_style"] == "cosine"),
    _differs("no asynchronous saves", "checkpoint.use_persistent_ckpt_worker", while_=lambda v: not v["async_save"]),
    _differs("no profiling", "profiling.memory_snapshot_path", "profiling.profile_ranks",
             while_=lambda v: not v["profile"] and not v["record_memory_history"]),
    _differs("no inference", "model.inference_cuda_graph_scope", "model.inference_sampling_seed",
             while_=lambda v: v["cuda_graph_impl"] == "none"),
)  # fmt: skip

# What may never stand in INTENDED (shell patterns over upstream's names).
PROTECTED = (
    # dimensions
    "model.num_layers", "model.hybrid_layer_pattern", "model.*hidden_size", "model.num_attention_heads",
    "model.num_query_groups", "model.kv_channels", "model.mamba_*", "model.vocab_size", "model.seq_length",
    "dataset.sequence_length", "model.normalization", "model.layernorm_*", "model.activation_func",
    "model.gated_linear_unit", "model.share_embeddings_and_output_weights", "model.*_dropout",
    # experts, top-k, routing, score function, auxiliary loss, dispatcher
    "model.num_moe_experts", "model.moe_ffn_*", "model.moe_shared_*", "model.moe_router_*", "model.moe_*_loss_coeff",
    "model.moe_token_*", "model.moe_flex_*", "model.moe_hybridep_*", "model.moe_layer_freq",
    # attention, gated delta net, MTP
    "model.experimental_attention_variant", "model.linear_*", "model.attention_*", "model.qk_*", "model.softmax_type",
    "model.position_embedding_type", "model.rotary_base", "model.rotary_percent", "model.mtp_num_layers",
    "model.mtp_loss_scaling_factor", "model.*init_method*",
    # optimizer and schedule
    "optimizer.optimizer", "optimizer.lr", "optimizer.min_lr", "optimizer.adam_*", "optimizer.clip_grad",
    "scheduler.lr_decay_*", "scheduler.lr_warmup_*", "scheduler.*_weight_decay", "scheduler.weight_decay_incr_style",
    "scheduler.override_opt_param_scheduler", "rng.seed", "dataset.random_seed",
    "train.train_iters", "train.global_batch_size", "train.micro_batch_size",
    # parallelism, reduction, overlap, NaN checks, graphs
    "model.*_parallel_size", "ddp.grad_reduce_in_fp32", "mixed_precision.grad_reduce_in_fp32", "ddp.overlap_*",
    "optimizer.overlap_param_gather", "ddp.average_in_collective", "ddp.bucket_size", "ddp.check_for_nan_in_grad",
    "rerun_state_machine.check_for_nan_in_loss", "model.cuda_graph_impl", "model.use_te_rng_tracker",
)  # fmt: skip
