"""What the checks let pass, Megatron's own rules let pass too, and every expert-parallel group shares NVLink."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.check.findings import run_checks
from seatrial.check.layout import Layout
from seatrial.spec.runspec import RunSpec
from tests.check.specs import build, errors


# Biased towards what fits, so that many cases pass; the rest is off by a little.
@st.composite
def topology(draw: st.DrawFn) -> dict[str, Any]:
    nodes, spares = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 18, 24, 5])), draw(st.sampled_from([0, 0, 0, 1, 2]))
    whole = nodes + spares
    return {
        "nodes": nodes,
        "spare_nodes": spares,
        "gpus_per_node": draw(st.sampled_from([4, 4, 4, 2, 8])),
        "segment": draw(st.sampled_from([whole, max(1, whole // 2), max(1, whole // 3), None, 2, 5])),
        "nvlink_domain": draw(st.sampled_from([72, 72, 72, 36, 8, 4])),
    }


topologies = topology()
layouts = st.fixed_dictionaries({
    "tensor_model_parallel_size": st.sampled_from([1, 1, 1, 2, 4]),
    "pipeline_model_parallel_size": st.sampled_from([1, 1, 1, 2, 3]),
    "context_parallel_size": st.sampled_from([1, 1, 1, 2]),
    "expert_model_parallel_size": st.sampled_from([8, 4, 2, 6, 12, 16, 1, 5]),
    "expert_tensor_parallel_size": st.sampled_from([1, 1, 1, 2, None]),
    "micro_batch_size": st.sampled_from([1, 1, 2, 3]),
    "global_batch_size": st.sampled_from([4608, 4608, 512, 500]), "num_experts": st.sampled_from([96, 128, 48, None]),
})  # fmt: skip


def spec_of(profile: dict[str, Any], layout: dict[str, Any]) -> RunSpec:
    more = {} if layout["num_experts"] else {"moe_token_dispatcher_type": None, "moe_flex_dispatcher_backend": None}
    return build(profile=profile, moe_router_topk=2, **layout, **more)


def megatron_accepts(spec: RunSpec) -> bool:
    """The divisibility rules of megatron.training's arguments.py and of parallel_state.py, written out again."""
    at, experts = Layout.of(spec), spec.get("num_experts")
    dense = at.world % (at.tp * at.pp * at.cp) == 0
    expert = at.world % (at.etp * at.ep * at.pp) == 0
    counted = at.ep == 1 or (experts is not None and experts % at.ep == 0)
    data_parallel = at.world // (at.tp * at.pp * at.cp)
    batch = data_parallel > 0 and spec.get("global_batch_size") % (spec.get("micro_batch_size") * data_parallel) == 0
    return dense and (expert or not experts) and counted and batch


def groups(world: int, tp: int, ep: int, pp: int) -> list[list[int]]:
    """Ranks of each expert-parallel group in Megatron's rank order tp-cp-ep-dp-pp (experts have no CP)."""
    dp = world // (tp * ep * pp)
    return [
        [t + tp * (e + ep * (d + dp * p)) for e in range(ep)] for p in range(pp) for d in range(dp) for t in range(tp)
    ]


@settings(max_examples=600, deadline=None)
@given(topologies, layouts)
def test_what_passes_is_sound(profile: dict[str, Any], layout: dict[str, Any]) -> None:
    spec = spec_of(profile, layout)
    if errors(spec):
        return
    assert megatron_accepts(spec)
    at, per_node = Layout.of(spec), profile["gpus_per_node"]
    if not layout["num_experts"] or at.ep == 1:
        return
    for group in groups(at.world, at.etp, at.ep, at.pp):
        nodes = {rank // per_node for rank in group}
        assert len(group) <= profile["nvlink_domain"]
        assert len(nodes) == 1 or len({node // profile["segment"] for node in nodes}) == 1


@settings(max_examples=300, deadline=None)
@given(topologies, layouts)
def test_what_megatron_refuses_is_an_error(profile: dict[str, Any], layout: dict[str, Any]) -> None:
    spec = spec_of(profile, layout)
    if not megatron_accepts(spec):
        assert errors(spec)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([
            "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "num_experts",
            "micro_batch_size", "global_batch_size", "seq_length", "train_iters", "lr_decay_iters", "save_interval",
            "eval_interval", "eval_iters", "moe_router_topk", "num_layers", "hidden_size", "num_attention_heads",
            "moe_router_num_groups", "moe_router_group_topk", "context_parallel_size", "expert_tensor_parallel_size",
            "linear_attention_freq", "max_position_embeddings", "num_query_groups", "kv_channels", "moe_latent_size",
        ]),
        st.one_of(st.none(), st.integers(-2, 600)),
    ),
    st.sampled_from(["nano", "35b", "9b"]),
)  # fmt: skip
def test_checks_never_break(values: dict[str, Any], recipe: str) -> None:
    assert all(finding.rule for finding in run_checks(build(recipe, **values)))


@pytest.mark.train
@pytest.mark.parametrize(("world", "tp", "ep", "pp"), [(8, 1, 8, 1), (64, 1, 8, 1), (64, 2, 4, 2), (24, 3, 4, 2)])
def test_groups_are_megatrons(world: int, tp: int, ep: int, pp: int) -> None:
    state = pytest.importorskip("megatron.core.parallel_state")
    theirs = state.RankGenerator(
        tp=tp, ep=ep, dp=world // (tp * ep * pp), pp=pp, cp=1, order="tp-cp-ep-dp-pp", rank_offset=0
    ).get_ranks("ep")
    assert sorted(theirs) == sorted(groups(world, tp, ep, pp))
    block = tp * ep
    assert all({rank // block for rank in group} == {group[0] // block} for group in theirs)
