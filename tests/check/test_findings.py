"""Each rule, broken once. A case: what to change, the field that is blamed, words of its rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seatrial.check.findings import CHECKS, run_checks
from seatrial.check.layout import check_sizes
from seatrial.spec.profile import Recovery
from tests.check.specs import PROFILES, RECIPES, build, errors

RANKS = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"


@pytest.mark.parametrize("on", PROFILES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_sound_specs(recipe: str, on: str) -> None:
    sizes: dict[str, Any] = {} if on != "local-cpu" or recipe == "9b" else {"expert_model_parallel_size": 2}
    assert errors(build(recipe, on, **sizes)) == []


CASES: list[tuple[dict[str, Any], str, str]] = [
    # ranks and nodes
    ({"profile": {"nodes": 3, "segment": 3}, "expert_model_parallel_size": 4, "global_batch_size": 516,
      "tensor_model_parallel_size": 8, "sequence_parallel": True, "expert_tensor_parallel_size": 1},
     "profile.nodes", "12 ranks (nodes x GPUs per node) are a multiple of TP x PP x CP = 8 x 1 x 1"),
    ({"env": {"WORLD_SIZE": "64"}}, "env.WORLD_SIZE", "nodes x GPUs per node = 8"),
    ({"env": {"RANK": "0"}}, "env.RANK", "set by the launcher"),
    ({"global_batch_size": 500}, "schedule.global_batch_size", "2 x 8 = 16"),
    ({"eval_global_batch_size": 24}, "model.eval_global_batch_size", "2 x 8 = 16"),
    # experts
    ({"expert_model_parallel_size": 6, "profile": {"nodes": 3, "segment": 3}, "global_batch_size": 480},
     "parallel.expert_model_parallel_size", "divides the 128 experts"),
    ({"expert_model_parallel_size": 16, "profile": {"nodes": 3, "segment": 3}, "global_batch_size": 480},
     "parallel.expert_model_parallel_size", "EP x ETP x PP = 16 x 1 x 1 divides the 12 ranks"),
    ({"recipe": "9b", "expert_model_parallel_size": 2}, "parallel.expert_model_parallel_size", "1 in a dense model"),
    ({"profile": {"nvlink_domain": 4, "segment": 1}}, "parallel.expert_model_parallel_size", "share one NVLink domain"),
    ({"moe_router_topk": 129}, "moe.moe_router_topk", "at most the 128 experts"),
    ({"moe_router_num_groups": 7}, "moe.moe_router_num_groups", "divides the 128 experts"),
    ({"moe_router_num_groups": 4, "moe_router_group_topk": 5}, "moe.moe_router_group_topk", "at most the 4 groups"),
    ({"hybrid_layer_pattern": "MXM*E"}, "model.hybrid_layer_pattern", "not X"),
    # who is told
    ({"profile": {"notify": {"webhook": "HOOK"}}, "env": {"HOOK": "https://x"}}, "profile.notify.webhook",
     "would be written down"),
    ({"profile": {"notify": {"webhook": "HOOK"}, "env": {"pass": ["HOOK"], "set": {}}}}, "profile.notify.webhook",
     "gives it to the ranks"),
    ({"profile": {"wandb": {"enabled": True, "key": "TEAM_KEY"}}, "env": {"TEAM_KEY": "k"}}, "profile.wandb.key",
     "would be written down"),
    # segment
    ({"profile": {"segment": None}}, "profile.segment", "spans 2 nodes"),
    ({"profile": {"slurm": {"capabilities": []}}}, "profile.segment", "does not know --segment"),
    ({"profile": {"nodes": 4, "segment": 3}}, "profile.segment", "divides nodes + spare nodes = 4"),
    ({"profile": {"nodes": 4, "segment": 2, "spare_nodes": 1}}, "profile.segment", "one segment holds all 5"),
    ({"profile": {"nodes": 16, "segment": 16, "spare_nodes": 3}}, "profile.spare_nodes", "= 19 of 4 GPUs fit"),
    ({"profile": {"nodes": 32, "segment": 32}}, "profile.segment", "= 128 fits the NVLink domain, 72 GPUs"),
    ({"profile": {"nodes": 4, "segment": 1}}, "profile.segment", "holds whole expert-parallel groups of 8"),
    # HybridEP
    ({"recipe": "9b", "moe_flex_dispatcher_backend": "hybridep"}, "moe.moe_flex_dispatcher_backend", "a dense model"),
    ({"expert_model_parallel_size": 1}, "parallel.expert_model_parallel_size", "nothing to carry"),
    ({"moe_token_dispatcher_type": "alltoall"}, "moe.moe_token_dispatcher_type", "needs the flex dispatcher"),
    ({"moe_flex_dispatcher_backend": "deepep"}, "moe.moe_flex_dispatcher_backend", "does not run on gb200"),
    ({"hidden_size": 2696}, "model.hidden_size", "a multiple of 16"),
    ({"moe_latent_size": 1000}, "moe.moe_latent_size", "a multiple of 16"),
    ({"num_experts": 6, "expert_model_parallel_size": 6, "profile": {"nodes": 3, "segment": 3},
      "global_batch_size": 480}, "parallel.expert_model_parallel_size", "= 1 x 6 is a multiple of 4"),
    ({"env": {"NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API": "1"}, "expert_model_parallel_size": 2},
     "env.NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API", "= 1 x 2 is a multiple of 4"),
    ({"env": {"NUM_OF_TOKENS_PER_CHUNK_COMBINE_API": "many"}}, "env.NUM_OF_TOKENS_PER_CHUNK_COMBINE_API", "whole"),
    ({"env": {RANKS: "4"}}, f"env.{RANKS}", "equals the expert-parallel size, 8"),
    ({"env": {RANKS: ""}}, f"env.{RANKS}", "set to the expert-parallel size, 8"),
    ({"env": {RANKS: "eight"}}, f"env.{RANKS}", "equals the expert-parallel size, 8"),
    ({"env": {"USE_MNNVL": "0"}}, "env.USE_MNNVL", "spans 2 nodes"),
    ({"moe_flex_dispatcher_num_sms": 153}, "moe.moe_flex_dispatcher_num_sms", "152 multiprocessors"),
    ({"moe_hybridep_num_sms": 24}, "moe.moe_hybridep_num_sms", "refuses two different counts"),
    ({"bf16": False}, "precision.bf16", "carries BF16 tokens"),
    # policies
    ({"cuda_graph_impl": "transformer_engine"}, "model.cuda_graph_impl", "eager"),
    ({"te_rng_tracker": True}, "model.te_rng_tracker", "eager"),
    ({"moe_router_force_load_balancing": True}, "moe.moe_router_force_load_balancing", "learns nothing"),
    ({"moe_router_force_biased": 0.5}, "moe.moe_router_force_biased", "learns nothing"),
    # the model's own sizes
    ({"max_position_embeddings": 2048}, "model.max_position_embeddings", "at least seq_length, 4096"),
    ({"seq_length": 4090, "context_parallel_size": 4}, "model.seq_length", "2 x CP = 8"),
    ({"seq_length": 4095, "tensor_model_parallel_size": 2, "sequence_parallel": True, "expert_tensor_parallel_size": 1},
     "model.seq_length", "TP = 2"),
    ({"recipe": "9b", "num_attention_heads": 18, "num_query_groups": 4}, "model.num_query_groups", "18 attention"),
    ({"recipe": "9b", "num_attention_heads": 12, "tensor_model_parallel_size": 8}, "model.num_attention_heads", "TP ="),
    ({"recipe": "9b", "kv_channels": None, "num_attention_heads": 12}, "model.hidden_size", "12 attention heads"),
    ({"recipe": "9b", "linear_attention_freq": [1, 0]}, "model.linear_attention_freq", "each of the 32 layers"),
    ({"recipe": "9b", "num_layers": 36, "pipeline_model_parallel_size": 8}, "model.num_layers", "PP = 8"),
    ({"recipe": "9b", "num_layers": None}, "model.num_layers", "set, or given by"),
    ({"recipe": "9b", "pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 2,
      "overlap_p2p_comm": False}, "model.overlap_p2p_comm", "does not learn"),
    ({"recipe": "9b", "num_layers_per_virtual_pipeline_stage": 2}, "model.num_layers_per_virtual_pipeline_stage", "PP"),
    # the schedule
    ({"lr_warmup_iters": 48000}, "schedule.lr_warmup_iters", "less than the 48000 steps"),
    ({"lr_decay_iters": None}, "schedule.lr_warmup_iters", "less than the 100 steps"),
    ({"lr_warmup_fraction": 0.1}, "model.lr_warmup_fraction", "one of the two"),
    ({"min_lr": 1.0}, "optimizer.min_lr", "at most lr"),
    ({"train_samples": 10}, "model.train_samples", "unset"),
    ({"save_interval": 1000}, "checkpoint.save_interval", "at most the 100 steps"),
    ({"save_interval": None}, "checkpoint.save_interval", "nothing is saved"),
    ({"eval_iters": 0}, "evaluation.eval_iters", "part of the verdict"),
    ({"eval_interval": None}, "evaluation.eval_interval", "counts the evaluations"),
    # sizes that are none
    ({"train_iters": None}, "schedule.train_iters", "every run needs it"),
    ({"tensor_model_parallel_size": 0}, "parallel.tensor_model_parallel_size", "at least 1"),
    ({"num_experts": -1}, "moe.num_experts", "at least 1"),
    # data
    ({"mock_data": False}, "data.data_path", "data is named"),
    ({"mock_data": True, "data_path": ["/absent"]}, "data.data_path", "one source of data"),
    ({"mock_data": True, "kind": "convergence"}, "data.mock_data", "shows nothing"),
    ({"mock_data": False, "data_path": ["/absent"]}, "data.data_path", "not found"),
    ({"mock_data": False, "data_path": ["relative"]}, "data.data_path", "an absolute path"),
    ({"mock_data": False, "data_path": ["0.5", "/a", "/b"]}, "data.data_path", "do not alternate"),
    ({"mock_data": False, "data_args_path": "/absent"}, "data.data_args_path", "cannot read"),
    ({"mock_data": False, "data_path": ["/a"], "split": "x"}, "data.split", "not a split"),
    ({"tokenizer_type": "NullTokenizer", "vocab_size": 131073}, "model.padded_vocab_size", "at least the 131,073 ids"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "words"), CASES, ids=[f"{f}: {w}" for _, f, w in CASES])
def test_broken_rule(change: dict[str, Any], field: str, words: str) -> None:
    found = errors(build(**change))
    blamed = [finding for finding in found if words in finding.rule]
    assert blamed, found
    assert {finding.field for finding in blamed} == {field}
    assert all(finding.file for finding in found)
    value = blamed[0].value
    assert blamed[0].to_json() | {"severity": "error", "field": field, "value": value} == blamed[0].to_json()


@pytest.mark.parametrize("recipe", RECIPES)
def test_one_mistake_is_one_error(recipe: str) -> None:
    """A batch that does not divide is blamed once, and nothing else is."""
    assert len(errors(build(recipe, global_batch_size=500))) == 1


def test_nvlink_domain_is_a_warning_without_hybridep() -> None:
    spec = build(moe_token_dispatcher_type="alltoall", moe_flex_dispatcher_backend=None,
                 profile={"nvlink_domain": 4, "segment": None})  # fmt: skip
    found = run_checks(spec)
    assert {f.field for f in found if f.severity == "warning"} >= {
        "parallel.expert_model_parallel_size",
        "profile.segment",
    }
    assert [f for f in found if f.severity == "error"] == []


def test_all_unset_site_values_in_one_error() -> None:
    (found,) = errors(build(profile={"account": None, "partition": None, "container": {"image": None}}))
    assert found.field == "profile.account, profile.partition, profile.container.image"
    (found,) = errors(build(profile={"partition": None}))
    assert (found.field, found.fix[:24]) == ("profile.partition", "--set profile.partition=")


def test_notes() -> None:
    rules = [f.rule for f in run_checks(build(kind="convergence", train_iters=48000)) if f.severity == "note"]
    assert rules[-1] == "48,000 steps x 512 sequences x 4,096 tokens = 100.66B tokens"
    assert ["GiB of GPU memory" in rules[0], "checkpoints of" in rules[1], len(rules)] == [True, True, 3]
    rules = [f.rule for f in run_checks(build("9b", "local-cpu")) if f.severity == "note"]
    assert "209.72M tokens" in rules[0]
    assert "rehearsal" in rules[1]


def test_a_checkpoint_that_is_never_saved_cannot_be_kept() -> None:
    recovery = Recovery(checkpoints_kept_every=1500).model_dump()
    found = run_checks(build(kind="convergence", train_iters=48000, save_interval=1000, profile={"recovery": recovery}))
    (kept,) = [f for f in found if f.field == "profile.recovery.checkpoints_kept_every"]
    assert (kept.severity, kept.value) == ("warning", 1500)


@pytest.mark.parametrize(("segment", "asked"), [(2, 3), (3, 3), (None, None)])
def test_a_segment_holds_the_spares_too(segment: int | None, asked: int | None) -> None:
    spec = build("9b", profile={"nodes": 2, "spare_nodes": 1, "segment": segment})
    assert spec.segment == asked
    assert not [f for f in run_checks(spec) if f.field in ("profile.segment", "profile.spare_nodes")]


def test_every_check_is_needed() -> None:
    """Each check speaks up in some test above, or is a note."""
    specs = [build(**change) for change, _, _ in CASES] + [build("9b", "local-cpu"), build(profile={"account": None})]
    twice = {"recipe": "nemotron_3_nano_pretrain_8gpu_gb200_bf16_config", "overrides": []}
    specs.append(replace(build(), bridge=twice))
    usable = [spec for spec in specs if not list(check_sizes(spec))]
    silent = [check.__name__ for check in CHECKS if not any(list(check(spec)) for spec in usable)]
    assert silent == []
