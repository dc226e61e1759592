"""RunSpecs for tests, written as what differs from a recipe on gb200-8gpu.

build("nano", expert_model_parallel_size=48)
build("9b", profile={"nodes": 3}, env={"USE_MNNVL": "0"}, kind="convergence")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.check.blame import Finding
from seatrial.check.findings import run_checks
from seatrial.spec.profile import Recovery
from seatrial.spec.runspec import Field, Kind, RunSpec

COMMON = {
    "model": {"seq_length": 4096, "max_position_embeddings": 4096, "cuda_graph_impl": "none", "te_rng_tracker": False,
              "normalization": "RMSNorm", "add_bias_linear": False, "position_embedding_type": "none",
              "group_query_attention": True, "num_query_groups": 2, "padded_vocab_size": 131072},
    "parallel": {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
                 "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 1, "sequence_parallel": False,
                 "use_distributed_optimizer": True},
    "precision": {"bf16": True},
    "optimizer": {"lr": 1.6e-3, "min_lr": 1.6e-5},
    "schedule": {"train_iters": 100, "lr_decay_iters": 48000, "lr_warmup_iters": 480, "global_batch_size": 512,
                 "micro_batch_size": 2},
    "data": {"data_path": None, "mock_data": True, "split": "60,20,20", "tokenizer_type": "HuggingFaceTokenizer"},
    "checkpoint": {"save_interval": 50},
    "evaluation": {"eval_interval": 800, "eval_iters": 32},
}  # fmt: skip
MOE = {
    "moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep", "moe_flex_dispatcher_num_sms": 16,
    "moe_router_force_load_balancing": False,
}  # fmt: skip
RECIPES = {
    "nano": {
        "model": {"hidden_size": 2688, "ffn_hidden_size": 1856, "num_attention_heads": 32, "kv_channels": 128,
                  "mamba_num_heads": 64,
                  "hybrid_layer_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
        "moe": MOE | {"num_experts": 128, "moe_router_topk": 6, "moe_router_num_groups": 1, "moe_router_group_topk": 1},
        "parallel": {"expert_model_parallel_size": 8},
    },
    "35b": {
        "model": {"hidden_size": 2048, "num_attention_heads": 16, "kv_channels": 256, "num_layers": 40, "swiglu": True,
                  "experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 4,
                  "mtp_num_layers": 1, "padded_vocab_size": 248320},
        "moe": MOE | {"num_experts": 256, "moe_router_topk": 8, "moe_ffn_hidden_size": 512,
                      "moe_flex_dispatcher_num_sms": 32},
        "parallel": {"expert_model_parallel_size": 8},
        "schedule": {"micro_batch_size": 1},
    },
    "9b": {
        "model": {"hidden_size": 4096, "ffn_hidden_size": 12288, "num_attention_heads": 16, "kv_channels": 256,
                  "num_layers": 32, "num_query_groups": 4, "swiglu": True,
                  "experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 4,
                  "mtp_num_layers": 1, "padded_vocab_size": 248320},
    },
}  # fmt: skip
PROFILE = {
    "name": "gb200-8gpu", "device": "cuda", "executor": "slurm", "nodes": 2, "gpus_per_node": 4, "gpu_type": "gb200",
    "nvlink_domain": 72, "segment": 2, "spare_nodes": 0, "account": "lab", "partition": "batch",
    "container": {"image": "/images/train.sqsh", "mounts": []}, "env": {"pass": [], "set": {}},
    "paths": {"runs": "/runs", "data": "/data"}, "slurm": {"capabilities": ["segment", "requeue"]},
    "time_limit_minutes": 240, "recovery": Recovery().model_dump(),
}  # fmt: skip
PROFILES = {
    "gb200-8gpu": {},
    "gb200-64gpu": {"nodes": 16, "segment": 16},
    "local-cpu": {"device": "cpu", "executor": "local", "nodes": 1, "gpus_per_node": 2, "gpu_type": None,
                  "segment": None, "account": None, "partition": None, "container": {"image": None, "mounts": []}},
}  # fmt: skip


def build(
    recipe: str = "nano",
    on: str = "gb200-8gpu",
    *,
    kind: Kind = "gate",
    profile: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    **dests: Any,
) -> RunSpec:
    """Return the spec of ``recipe`` on profile ``on``, with Megatron arguments ``dests`` replaced or added."""
    values: dict[str, Any] = {}
    for part in (COMMON, RECIPES[recipe]):
        values |= {f"{section}.{dest}": value for section, items in part.items() for dest, value in items.items()}
    sections = {key.partition(".")[2]: key for key in values}
    for dest, value in dests.items():
        section = "moe" if dest.startswith("moe_") else "data" if dest.endswith("_path") else "model"
        values[sections.get(dest, f"{section}.{dest}")] = value
    where = PROFILE | PROFILES[on] | {"name": on} | dict(profile or {})
    environment = {"USE_MNNVL": "1", "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API": "128"}
    if recipe != "9b":
        environment["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] = str(values["parallel.expert_model_parallel_size"])
    environment |= env or {}
    return RunSpec(
        recipe=recipe,
        recipe_file=f"{recipe}.yaml",
        kind=kind,
        profile=where,
        fields={key: Field(value, "recipe", f"{recipe}.yaml:{i}") for i, (key, value) in enumerate(values.items(), 1)},
        environment={name: value for name, value in environment.items() if value},
        gate={},
        megatron_core="0.19.2",
    )


def errors(spec: RunSpec) -> list[Finding]:
    """Return the errors that the checks find."""
    return [finding for finding in run_checks(spec) if finding.severity == "error"]
