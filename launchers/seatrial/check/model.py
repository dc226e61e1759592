"""The model: sizes that must fit each other, and the policies that a gate and a convergence run share."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.check.blame import Finding, argument, set_flag
from seatrial.check.layout import Layout, experts_of
from seatrial.spec.runspec import RunSpec

# Layer kinds and separators of a hybrid pattern (megatron.core.models.hybrid.hybrid_layer_allocation.Symbols, 0.19.2).
_LAYER_SIGNS = frozenset("MG*D+-E|/")


def check_eager(spec: RunSpec) -> Iterator[Finding]:
    """No CUDA graph is captured, and the random number tracker that only graphs need is off."""
    impl = spec.get("cuda_graph_impl", "none")
    if impl != "none":
        rule = "none: these runs are eager (graphs do not fit the memory, and change the random streams)"
        yield argument(spec, "cuda_graph_impl", rule, set_flag(spec, "cuda_graph_impl", "none"))
    for dest in ("enable_cuda_graph", "external_cuda_graph", "optimizer_cuda_graph", "te_rng_tracker"):
        if spec.get(dest, False):
            yield argument(spec, dest, "off: these runs are eager", set_flag(spec, dest, "false"))


def check_learned_routing(spec: RunSpec) -> Iterator[Finding]:
    """Tokens go where the router sends them: forced balance is for benchmarks."""
    rule = "off: a router that is forced learns nothing, and hides what learned routing costs"
    if spec.get("moe_router_force_load_balancing", False):
        fix = set_flag(spec, "moe_router_force_load_balancing", "false")
        yield argument(spec, "moe_router_force_load_balancing", rule, fix)
    if spec.get("moe_router_force_biased") is not None:
        yield argument(spec, "moe_router_force_biased", rule, set_flag(spec, "moe_router_force_biased", "null"))


def check_router(spec: RunSpec) -> Iterator[Finding]:
    """The router picks from experts that exist."""
    experts = experts_of(spec)
    if not experts:
        return
    topk = int(spec.get("moe_router_topk", 2))
    if topk > experts:
        yield argument(spec, "moe_router_topk", f"at most the {experts} experts (moe.num_experts)", value=topk)
    groups = int(spec.get("moe_router_num_groups", 0))
    if groups and experts % groups:
        yield argument(spec, "moe_router_num_groups", f"divides the {experts} experts (moe.num_experts)")
    chosen = int(spec.get("moe_router_group_topk", 0))
    if groups and chosen > groups:
        yield argument(spec, "moe_router_group_topk", f"at most the {groups} groups (moe.moe_router_num_groups)")


def check_sequence(spec: RunSpec) -> Iterator[Finding]:
    """The sequence fits the position table and divides over context and sequence parallel ranks."""
    at, length = Layout.of(spec), int(spec.get("seq_length"))
    positions = spec.get("max_position_embeddings")
    if positions is None or positions < length:
        rule = f"at least seq_length, {length}"
        yield argument(spec, "max_position_embeddings", rule, set_flag(spec, "max_position_embeddings", length))
    if at.cp > 1 and length % (2 * at.cp):
        yield argument(spec, "seq_length", f"a multiple of 2 x CP = {2 * at.cp}")
    if spec.get("sequence_parallel", False) and length % at.tp:
        yield argument(spec, "seq_length", f"a multiple of TP = {at.tp} (sequence parallel)")


def check_heads(spec: RunSpec) -> Iterator[Finding]:
    """Attention heads divide over TP and into query groups."""
    at, heads = Layout.of(spec), spec.get("num_attention_heads")
    if heads is None:
        return
    if heads % at.tp:
        yield argument(spec, "num_attention_heads", f"a multiple of TP = {at.tp}")
    groups = spec.get("num_query_groups")
    if spec.get("group_query_attention", False) and groups and heads % groups:
        yield argument(spec, "num_query_groups", f"divides the {heads} attention heads")
    width = spec.get("hidden_size")
    if spec.get("kv_channels") is None and width and width % heads:
        yield argument(spec, "hidden_size", f"a multiple of the {heads} attention heads, where kv_channels is unset")


def check_layers(spec: RunSpec) -> Iterator[Finding]:
    """Layers divide over pipeline stages and match their patterns."""
    unknown = sorted(set(str(spec.get("hybrid_layer_pattern") or "")) - _LAYER_SIGNS)
    if unknown:
        rule = f"only layer signs that Megatron knows ({' '.join(sorted(_LAYER_SIGNS))}), not {' '.join(unknown)}"
        yield argument(spec, "hybrid_layer_pattern", rule, "take one of them")
    at, layers = Layout.of(spec), spec.get("num_layers")
    pattern = spec.get("hybrid_layer_pattern")
    if pattern is not None:
        counted = sum(letter != "|" for letter in pattern.partition("/")[0])
        if layers is not None and layers != counted:
            rule = f"the pattern's {counted} layers (model.hybrid_layer_pattern); Megatron takes those"
            yield argument(spec, "num_layers", rule, "leave num_layers out", severity="warning")
        return
    if layers is None:
        yield argument(spec, "num_layers", "set, or given by model.hybrid_layer_pattern")
        return
    frequency = spec.get("linear_attention_freq")
    if isinstance(frequency, list) and len(frequency) != layers:
        rule = f"one entry for each of the {layers} layers (model.num_layers)"
        yield argument(spec, "linear_attention_freq", rule)
    elif isinstance(frequency, int) and frequency > 0 and layers % frequency:
        rule = f"{layers} layers end with full attention only where this divides them; MTP copies the last layer"
        yield argument(spec, "linear_attention_freq", rule, severity="warning")
    split_by_hand = any(
        spec.get(dest) is not None
        for dest in (
            "pipeline_model_parallel_layout",
            "decoder_first_pipeline_num_layers",
            "decoder_last_pipeline_num_layers",
        )
    )
    extra = sum(bool(spec.get(f"account_for_{part}_in_pipeline_split", False)) for part in ("embedding", "loss"))
    if at.pp > 1 and not split_by_hand and (layers + extra) % at.pp:
        yield argument(spec, "num_layers", f"a multiple of PP = {at.pp}")


def check_interleaving(spec: RunSpec) -> Iterator[Finding]:
    """An interleaved pipeline of two stages needs overlapped point-to-point communication: without it, batched
    sends between the same two ranks mix up, and the run goes on while it learns nothing."""
    per_stage = spec.get("num_layers_per_virtual_pipeline_stage")
    interleaved = per_stage is not None or spec.get("num_virtual_stages_per_pipeline_rank") is not None
    pp, overlap = Layout.of(spec).pp, bool(spec.get("overlap_p2p_comm", True))
    dest = "num_layers_per_virtual_pipeline_stage" if per_stage else "num_virtual_stages_per_pipeline_rank"
    if interleaved and pp == 1:
        yield argument(spec, dest, "unset where PP is 1: there is no pipeline to interleave")
    elif interleaved and pp == 2 and not overlap:
        rule = "on for an interleaved pipeline of two stages: without it the run does not learn"
        yield argument(spec, "overlap_p2p_comm", rule, set_flag(spec, "overlap_p2p_comm", "true"), value=overlap)
