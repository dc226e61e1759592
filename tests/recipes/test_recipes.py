"""The shipped recipes: their own values, names, environment, and what must hold for each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from seatrial.spec.arguments import arguments
from seatrial.spec.recipe import recipe_aliases, recipe_names
from seatrial.spec.resolve import resolve

NANO, MOE, DENSE = "nemotron_3_nano_gb200", "qwen35_35b_a3b_gb200", "qwen35_9b_gb200"
ALL = (NANO, MOE, DENSE)


def test_the_three_recipes_are_shipped() -> None:
    assert set(recipe_names()) == set(ALL)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("nemotron_3_nano_pretrain_8gpu_gb200_bf16_config", NANO),
        ("nemotron_3_nano_gb200_pretrain_config", NANO),
        ("nemotron_3_nano_gb200", NANO),
        ("qwen35_35b_a3b_pretrain_8gpu_gb200_bf16_config", MOE),
        ("qwen35_35b_a3b_pretrain_config", MOE),
        ("qwen35_35b_a3b", MOE),
        ("qwen35_9b_pretrain_8gpu_gb200_bf16_config", DENSE),
        ("qwen35_9b_pretrain_config", DENSE),
        ("qwen35_9b", DENSE),
    ],
)
def test_upstreams_names_lead_to_one_recipe(name: str, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(name, "gb200-8gpu").recipe == recipe
    monkeypatch.setenv("MODEL_RECIPE_NAME", name)
    assert resolve(None, "gb200-8gpu").recipe == recipe


def test_no_alias_is_a_recipes_name_of_another_model() -> None:
    aliases = recipe_aliases()
    assert all(aliases.get(name, name) == name for name in recipe_names())
    assert Counter(aliases.values()).keys() == set(ALL)


@pytest.mark.parametrize(
    ("recipe", "own"),
    [
        (NANO, {"train_iters": 39735, "lr_warmup_iters": 333, "global_batch_size": 3072, "micro_batch_size": 2,
                    "save_interval": 200, "expert_model_parallel_size": 8, "moe_flex_dispatcher_num_sms": 16}),
        (MOE, {"train_iters": 300000, "lr_warmup_iters": 500, "global_batch_size": 512, "micro_batch_size": 1,
                   "save_interval": 500, "expert_model_parallel_size": 8, "moe_flex_dispatcher_num_sms": 32}),
        (DENSE, {"train_iters": 300000, "lr_warmup_iters": 500, "global_batch_size": 128, "micro_batch_size": 2,
                     "save_interval": 500, "expert_model_parallel_size": 1, "moe_flex_dispatcher_num_sms": None}),
    ],
)  # fmt: skip
def test_the_recipe_alone_has_its_own_run_controls(recipe: str, own: dict[str, Any]) -> None:
    spec = resolve(recipe, "gb200-8gpu")
    assert {key: spec.get(key) for key in own} == own
    assert {key: spec.get(key) for key in ("seq_length", "eval_interval", "eval_iters", "log_interval")} == {
        "seq_length": 4096, "eval_interval": 500, "eval_iters": 32, "log_interval": 10,
    }  # fmt: skip


@pytest.mark.parametrize("recipe", ALL)
@pytest.mark.parametrize(("profile", "kind"), [("gb200-8gpu", "gate"), ("gb200-64gpu", "convergence")])
def test_what_holds_for_every_recipe(recipe: str, profile: str, kind: str) -> None:
    spec = resolve(recipe, profile, kind)
    expected = {
        "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
        "expert_tensor_parallel_size": 1, "cuda_graph_impl": "none", "te_rng_tracker": False, "hidden_dropout": 0.0,
        "attention_dropout": 0.0, "seed": 1234, "bf16": True, "accumulate_allreduce_grads_in_fp32": True,
        "check_for_nan_in_loss_and_grad": True, "override_opt_param_scheduler": True, "ckpt_format": "torch_dist",
        "ckpt_fully_parallel_save": True, "async_save": False, "mock_data": False, "data_path": None,
    }  # fmt: skip
    assert {key: spec.get(key) for key in expected} == expected
    dispatcher = [spec.get(key) for key in ("moe_token_dispatcher_type", "moe_flex_dispatcher_backend")]
    assert dispatcher == ([None, None] if recipe == DENSE else ["flex", "hybridep"])
    assert not spec.get("moe_router_force_load_balancing")


@pytest.mark.parametrize("recipe", ALL)
def test_the_weight_decay_that_acts(recipe: str) -> None:
    words = arguments(resolve(recipe, "gb200-8gpu", "gate"))
    assert words[words.index("--weight-decay") + 1] == "0.033"
    assert not {"--start-weight-decay", "--end-weight-decay"} & set(words), "the constant style refuses them"


COMMON = {
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TORCH_NCCL_HIGH_PRIORITY": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_GRAPH_REGISTER": "0",
    "NCCL_NET_GDR_LEVEL": "PHB",
    "NCCL_NET_GDR_C2C": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "0",
    "TOKENIZERS_PARALLELISM": "False",
}
HYBRIDEP = {
    "NVLINK_DOMAIN_SIZE": "72",
    "USE_MNNVL": "1",
    "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": "8",
    "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API": "128",
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "20",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "20",
}
PLAIN = {"NVTE_FWD_LAYERNORM_SM_MARGIN": "16", "NVTE_BWD_LAYERNORM_SM_MARGIN": "16"}
CUDNN_NORM = {"NVTE_NORM_FWD_USE_CUDNN": "1", "NVTE_NORM_BWD_USE_CUDNN": "1"}


@pytest.mark.parametrize(
    ("recipe", "environment"),
    [(NANO, COMMON | HYBRIDEP | CUDNN_NORM), (MOE, COMMON | HYBRIDEP), (DENSE, COMMON | PLAIN)],
)
@pytest.mark.parametrize("profile", ["gb200-8gpu", "gb200-64gpu"])
def test_environment(recipe: str, profile: str, environment: dict[str, str]) -> None:
    assert dict(resolve(recipe, profile, "gate").environment) == environment


def test_hybridep_ranks_follow_the_expert_parallel_size() -> None:
    spec = resolve(NANO, "gb200-64gpu", "gate", [("parallel.expert_model_parallel_size", "16")])
    assert spec.environment["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] == "16"
