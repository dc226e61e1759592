"""Who may set which Megatron argument. Each has exactly one owner: recipe, kind, run or rehearsal."""

from __future__ import annotations

# What a kind may change: how long and how often, never what is trained.
RUN_CONTROLS = frozenset({
    "train_iters", "seq_length", "max_position_embeddings", "global_batch_size", "lr_warmup_iters", "lr_decay_iters",
    "save_interval", "eval_interval", "eval_iters", "log_interval", "log_throughput",
})  # fmt: skip

# What the supervisor adds at each attempt, and what would get in its way; nobody else may set it. save_retain_interval:
# which checkpoints are kept is decided by the supervisor alone (profile.recovery), which knows which of them are whole.
RUN_OWNED = frozenset({
    "save", "load", "ckpt_step", "exit_on_missing_checkpoint", "exit_signal", "exit_signal_handler",
    "exit_duration_in_mins", "exit_interval", "tensorboard_dir", "data_cache_path", "distributed_timeout_minutes",
    "distributed_backend", "skip_train", "rank", "local_rank", "world_size", "save_retain_interval",
    "wandb_project", "wandb_exp_name", "wandb_entity", "wandb_save_dir",
})  # fmt: skip

# The same for Megatron-Bridge, as keys of its ConfigContainer.
BRIDGE_RUN_OWNED = frozenset({
    "checkpoint.save", "checkpoint.load", "checkpoint.ckpt_step", "checkpoint.exit_on_missing_checkpoint",
    "checkpoint.most_recent_k", "checkpoint.save_retain_interval", "logger.tensorboard_dir", "dataset.path_to_cache",
    "train.exit_signal_handler", "train.exit_signal", "train.exit_duration_in_mins", "train.exit_interval",
    "validation.skip_train", "train.skip_train", "dist.distributed_timeout_minutes", "dist.distributed_backend",
    "logger.wandb_project", "logger.wandb_exp_name", "logger.wandb_entity", "logger.wandb_save_dir",
})  # fmt: skip

# What a rehearsal may change: sizes, expert parallelism and batch, evaluation iterations, data and tokenizer ...
_SIZES = frozenset({
    "num_layers", "hybrid_layer_pattern", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups",
    "kv_channels", "num_experts", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "mamba_num_heads",
    "mamba_head_dim", "mamba_state_dim", "mamba_num_groups", "linear_key_head_dim", "linear_value_head_dim",
    "linear_num_key_heads", "linear_num_value_heads", "vocab_size", "padded_vocab_size", "seq_length",
    "max_position_embeddings", "expert_model_parallel_size", "global_batch_size", "micro_batch_size", "eval_iters",
})  # fmt: skip
_DATA = frozenset({"data_path", "split", "num_workers", "tokenizer_type", "tokenizer_model"})
# ... and the kernels and fusions that have no CPU form.
_KERNELS = frozenset({
    "gradient_accumulation_fusion", "masked_softmax_fusion", "persist_layer_norm", "bias_dropout_fusion",
    "bias_swiglu_fusion", "bias_gelu_fusion", "apply_rope_fusion", "cross_entropy_loss_fusion", "moe_permute_fusion",
    "moe_router_fusion", "moe_grouped_gemm", "attention_backend", "use_fused_weighted_squared_relu",
})  # fmt: skip
REHEARSAL_MAY_CHANGE = _SIZES | _DATA | _KERNELS
