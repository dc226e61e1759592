"""A rehearsal changes an enumerated list of things and nothing else, and every layer kind survives it."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.spec.owners import REHEARSAL_MAY_CHANGE
from seatrial.spec.recipe import recipe_names
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec

# The list. Routing, optimizer, schedule, precision and checkpointing are not on it and never will be.
SIZES = {
    "num_layers", "hybrid_layer_pattern", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups",
    "kv_channels", "mamba_num_heads", "mamba_head_dim", "mamba_state_dim", "mamba_num_groups",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "num_experts", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size",
    "vocab_size", "padded_vocab_size", "seq_length", "max_position_embeddings",
}  # fmt: skip
BATCH = {"expert_model_parallel_size", "global_batch_size", "micro_batch_size", "eval_iters"}
DATA = {"data_path", "split", "num_workers", "tokenizer_type", "tokenizer_model"}
KERNELS = {
    "gradient_accumulation_fusion", "masked_softmax_fusion", "cross_entropy_loss_fusion", "bias_dropout_fusion",
    "bias_swiglu_fusion", "bias_gelu_fusion", "use_fused_weighted_squared_relu", "apply_rope_fusion",
    "persist_layer_norm", "attention_backend", "moe_router_fusion", "moe_permute_fusion", "moe_grouped_gemm",
}  # fmt: skip


@pytest.fixture(params=recipe_names())
def pair(request: pytest.FixtureRequest) -> tuple[RunSpec, RunSpec]:
    """The gate on hardware and its rehearsal."""
    return resolve(request.param, "gb200-8gpu", "gate"), resolve(request.param, "local-cpu", "gate")


def changes(pair: tuple[RunSpec, RunSpec]) -> dict[str, tuple[Any, Any]]:
    """Return ``section.key`` -> (value on hardware, value in the rehearsal) where they differ."""
    hardware, rehearsal = ({key: field.value for key, field in spec.fields.items()} for spec in pair)
    both = {key: (hardware.get(key), rehearsal.get(key)) for key in hardware | rehearsal}
    return {key: values for key, values in both.items() if values[0] != values[1]}


def test_the_list_is_this_one() -> None:
    assert REHEARSAL_MAY_CHANGE == SIZES | BATCH | DATA | KERNELS


def test_nothing_else_changes(pair: tuple[RunSpec, RunSpec]) -> None:
    changed = changes(pair)
    assert {key.partition(".")[2] for key in changed} <= SIZES | BATCH | DATA | KERNELS
    assert not {key.partition(".")[0] for key in changed} & {
        "precision",
        "optimizer",
        "checkpoint",
        "logging",
    }
    assert {key for key in changed if key.startswith("schedule.")} <= {
        "schedule.global_batch_size",
        "schedule.micro_batch_size",
    }


def test_kernels_are_only_switched_off_and_sizes_only_shrink(pair: tuple[RunSpec, RunSpec]) -> None:
    for full, (hardware, rehearsal) in changes(pair).items():
        key = full.partition(".")[2]
        if key == "attention_backend":
            assert rehearsal == "unfused"
        elif key in KERNELS:
            assert (hardware, rehearsal) == (True, False), key
        elif key in SIZES and isinstance(hardware, int):
            assert 0 < rehearsal < hardware, key


def test_every_layer_kind_survives(pair: tuple[RunSpec, RunSpec]) -> None:
    hardware, rehearsal = pair
    assert set(hardware.get("hybrid_layer_pattern", "")) == set(rehearsal.get("hybrid_layer_pattern", ""))
    every = rehearsal.get("linear_attention_freq")
    if every:  # gated delta net, and full attention at each `every`-th layer
        assert rehearsal.get("num_layers") >= every > 1
    assert rehearsal.get("mtp_num_layers") == hardware.get("mtp_num_layers")
    assert rehearsal.get("attention_output_gate") == hardware.get("attention_output_gate")
    heads, groups = rehearsal.get("num_attention_heads"), rehearsal.get("num_query_groups")
    assert heads > groups > 1 and heads % groups == 0, "grouped query attention stays grouped"
    if hardware.get("num_experts"):
        assert rehearsal.get("moe_shared_expert_intermediate_size") > 0
        assert rehearsal.get("num_experts") >= 2 * rehearsal.get("moe_router_topk"), "routing has a choice"
        assert rehearsal.get("expert_model_parallel_size") == rehearsal.world_size == 2


def test_hybridep_could_take_the_sizes(pair: tuple[RunSpec, RunSpec]) -> None:
    """Its own rules: hidden size by 16; experts of a rank x ranks of a domain by 4."""
    _, rehearsal = pair
    assert rehearsal.get("hidden_size") % 16 == 0
    assert (rehearsal.get("num_experts") or 4) % 4 == 0


def test_the_text_fills_the_vocabulary(pair: tuple[RunSpec, RunSpec]) -> None:
    _, rehearsal = pair
    assert rehearsal.get("tokenizer_type") == "NullTokenizer"
    assert rehearsal.get("vocab_size") == 257, "bytes and the end of a document"
    assert rehearsal.get("padded_vocab_size") >= 257
    assert rehearsal.get("split") == "90,5,5"
    assert rehearsal.get("data_path"), "real text, never mock data"
    assert rehearsal.get("mock_data") is False


def test_learning_is_expected_of_a_rehearsal(pair: tuple[RunSpec, RunSpec]) -> None:
    hardware, rehearsal = pair
    assert hardware.gate["learning_ratio"] is None
    assert rehearsal.gate["learning_ratio"] == (0.85 if "nano" in rehearsal.recipe else 0.95)


def test_the_environment_stays(pair: tuple[RunSpec, RunSpec]) -> None:
    hardware, rehearsal = pair
    ranks = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"
    assert hardware.environment.keys() == rehearsal.environment.keys()
    differing = {name for name in hardware.environment if hardware.environment[name] != rehearsal.environment[name]}
    assert differing <= {ranks}
