"""The three GB200 text recipes for a release of Megatron-Bridge that does not export them, made of its own parts.

0.5 exports Nemotron 3 Nano for H100 and Qwen3.5 as vision models only; the GB200 text recipes came with 0.6. Values:
the public recipes at Megatron-Bridge 987244934, with CUDA graphs off for the two Qwen3.5 ones as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

SEQUENCE = 4096

# One rank holds a whole layer but for the experts.
_LAYOUT = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "virtual_pipeline_model_parallel_size": None,
    "pipeline_model_parallel_layout": None, "context_parallel_size": 1, "sequence_parallel": False,
    "expert_tensor_parallel_size": 1,
}  # fmt: skip
_EAGER = {"cuda_graph_impl": "none", "cuda_graph_scope": None, "use_te_rng_tracker": False}
_HYBRID_EP = {
    "moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep",
    "moe_shared_expert_overlap": False, "moe_router_force_load_balancing": False,
}  # fmt: skip
_NO_RECOMPUTATION = {
    "recompute_granularity": None, "recompute_method": None, "recompute_num_layers": None, "recompute_modules": None,
    "fine_grained_activation_offloading": False, "offload_modules": None,
}  # fmt: skip
_QWEN_KERNELS = {
    "transformer_impl": "transformer_engine", "bias_activation_fusion": True, "apply_rope_fusion": True,
    "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native",
}  # fmt: skip

# Dimensions that the published configurations share and transformers' classes leave at another default or without one.
_QWEN_PUBLISHED = {
    "vocab_size": 248320, "initializer_range": 0.02, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}  # fmt: skip
_QWEN_9B = {
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
}  # fmt: skip
_QWEN_35B_A3B = {
    "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "router_aux_loss_coef": 0.001,
}  # fmt: skip


def nemotron_3_nano() -> Any:
    """Return Nemotron 3 Nano for 8 GB200: Bridge's own recipe, laid out for HybridEP, at 4,096 tokens."""
    from megatron.bridge.recipes import nemotron_3_nano_pretrain_config

    config = nemotron_3_nano_pretrain_config()
    _set(config.model, _LAYOUT | _EAGER | _HYBRID_EP)
    _set(config.model, {"expert_model_parallel_size": 8, "moe_hybridep_num_sms": 16, "seq_length": SEQUENCE})
    config.rng.te_rng_tracker = config.comm_overlap.tp_comm_overlap = False
    config.dataset.sequence_length = SEQUENCE
    return config


def qwen35_9b() -> Any:
    """Return Qwen3.5-9B, text only, for 8 GB200."""
    config = _qwen("Qwen3_5ForCausalLM", _QWEN_9B, "Qwen/Qwen3.5-9B-Base")
    config.model.expert_model_parallel_size = 1
    _set(config.train, {"global_batch_size": 128, "micro_batch_size": 2})
    _overlap(config, on=True)
    return config


def qwen35_35b_a3b() -> Any:
    """Return Qwen3.5-35B-A3B, text only, for 8 GB200: experts over HybridEP, no overlap of the reduction."""
    config = _qwen("Qwen3_5MoeForCausalLM", _QWEN_35B_A3B, "Qwen/Qwen3.5-35B-A3B-Base")
    _set(config.model, _HYBRID_EP)
    _set(config.model, {
        "expert_model_parallel_size": 8, "moe_hybridep_num_sms": 32, "moe_router_fusion": True,
        "moe_permute_fusion": True, "moe_grouped_gemm": True, "moe_router_padding_for_fp8": False,
    })  # fmt: skip
    _set(config.train, {"global_batch_size": 512, "micro_batch_size": 1})
    _overlap(config, on=False)
    return config


RECIPES: Mapping[str, Callable[[], Any]] = {
    "nemotron_3_nano_gb200_pretrain_config": nemotron_3_nano,
    "qwen35_9b_pretrain_config": qwen35_9b,
    "qwen35_35b_a3b_pretrain_config": qwen35_35b_a3b,
    # 0.6's names of the same two.
    "qwen35_text_9b_pretrain_config": qwen35_9b,
    "qwen35_text_35b_a3b_pretrain_config": qwen35_35b_a3b,
}


def _qwen(architecture: str, dimensions: Mapping[str, Any], tokenizer: str) -> Any:
    """Return a configuration whose model Bridge's mapping makes of the published dimensions; no hub is asked."""
    import torch
    from megatron.bridge import AutoBridge
    from megatron.bridge.models.qwen import qwen35_bridge
    from megatron.bridge.recipes.common import _pretrain_common

    published = getattr(qwen35_bridge, architecture).config_class(**_QWEN_PUBLISHED, **dimensions)
    published.architectures = [architecture]
    config = _pretrain_common()
    config.model = AutoBridge.from_hf_config(published).to_megatron_provider(load_weights=False)
    _set(config.model, _LAYOUT | _EAGER | _NO_RECOMPUTATION | _QWEN_KERNELS)
    _set(config.model, {"pipeline_dtype": torch.bfloat16, "seq_length": SEQUENCE, "init_method_std": 0.02})
    config.rng.te_rng_tracker = False
    config.tokenizer.tokenizer_model = tokenizer
    _set(config.dataset, {"sequence_length": SEQUENCE, "num_workers": 8})
    config.ddp.use_megatron_fsdp = False
    return config


def _overlap(config: Any, *, on: bool) -> None:
    """Overlap gradient reduction and parameter gathering with compute, or not; 35B asks for neither, by name."""
    from megatron.bridge.training.comm_overlap import CommOverlapConfig

    _set(config.ddp, {"overlap_grad_reduce": on, "overlap_param_gather": on})
    asked = {} if on else {"overlap_grad_reduce": False, "overlap_param_gather": False}
    config.comm_overlap = CommOverlapConfig(tp_comm_overlap=not on, **asked)


def _set(section: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if not hasattr(section, name):
            raise AttributeError(f"{type(section).__name__} has no {name}")  # this release is not the one written for
        setattr(section, name, value)
