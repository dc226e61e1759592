"""What a model is made of, read from a run's arguments: kinds of layers, widths, vocabulary.

Unset arguments take Megatron's own defaults, from the shipped argument snapshot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from seatrial.spec.runspec import RunSpec
from seatrial.spec.schema import load_schema

MAMBA, DELTA, ATTENTION, MLP, EXPERTS = "M", "G", "*", "-", "E"
KINDS = {MAMBA, DELTA, ATTENTION, MLP, EXPERTS}


class CannotTell(Exception):
    """The model has a part whose size is not known here. ``dest`` is the argument to name, ``why`` a phrase."""

    def __init__(self, dest: str, why: str) -> None:
        super().__init__(f"{dest}: {why}")
        self.dest, self.why = dest, why


@dataclass(frozen=True)
class Shape:
    """Widths are in elements.

    ``stages`` holds one tuple of layers per pipeline segment; a layer is a text of kinds: ``M`` Mamba-2, ``G`` gated
    delta net, ``*`` attention, ``-`` MLP, ``E`` experts (Megatron's letters). A layer of a GPT model is two of them.
    ``prediction`` is the layers of one prediction depth, ``depths`` how many depths are computed and
    ``prediction_copies`` how many of them have weights of their own.
    """

    stages: tuple[tuple[str, ...], ...]
    prediction: str
    depths: int
    prediction_copies: int
    hidden: int
    vocabulary: int
    tied: bool
    positions: int
    norm: int  # parameters per normalized channel: 1 for RMSNorm, 2 for LayerNorm
    bias: bool
    gated: bool  # SwiGLU: the first projection is twice as wide
    ffn: int
    query: int
    key: int  # width of the keys, and of the values
    head: int
    heads: int
    qk_norm: bool
    qkv_bias: bool
    output_gate: bool
    mamba_heads: int
    mamba_inner: int
    mamba_state: int  # groups x state size
    delta_key: int
    delta_value: int
    delta_value_heads: int
    delta_value_head: int
    delta_key_head: int
    delta_kernel: int
    experts: int
    topk: int
    expert_ffn: int
    expert_input: int  # hidden, or the latent width
    shared_ffn: int
    shared_gate: bool

    @property
    def layers(self) -> str:
        """All kinds of the decoder, in order."""
        return "".join("".join(stage) for stage in self.stages)


def shape_of(spec: RunSpec) -> Shape:
    """Read the shape of ``spec``'s model. Raises CannotTell where a size is unset or a kind of layer is unknown."""
    get = _Reader(spec)
    if get("multi_latent_attention"):
        raise CannotTell("multi_latent_attention", "its sizes are not known here")
    hidden, experts = get.size("hidden_size"), get("num_experts") or 0
    heads = get.size("num_attention_heads")
    head = get("kv_channels") or hidden // heads
    gated = bool(get("swiglu"))
    ffn = get("ffn_hidden_size") or (int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    mamba_head = get.size("mamba_head_dim")
    mamba_heads = get("mamba_num_heads") or 2 * hidden // mamba_head
    if get("hybrid_layer_pattern"):
        stages, prediction, depths = _hybrid(get)
    else:
        stages, prediction, depths = _gpt(get, experts)
    return Shape(
        stages=stages,
        prediction=prediction,
        depths=depths,
        prediction_copies=min(depths, 1) if get("mtp_use_repeated_layer") else depths,
        hidden=hidden,
        vocabulary=_vocabulary(get),
        tied=not get("untie_embeddings_and_output_weights"),
        positions=get.size("max_position_embeddings") if get("position_embedding_type") == "learned_absolute" else 0,
        norm=1 if get("normalization") == "RMSNorm" else 2,
        bias=bool(get("add_bias_linear")),
        gated=gated,
        ffn=ffn,
        query=heads * head,
        key=(get("num_query_groups") if get("group_query_attention") else heads) * head,
        head=head,
        heads=heads,
        qk_norm=bool(get("qk_layernorm")),
        qkv_bias=bool(get("add_qkv_bias")),
        output_gate=bool(get("attention_output_gate")),
        mamba_heads=mamba_heads,
        mamba_inner=mamba_heads * mamba_head,
        mamba_state=get("mamba_num_groups") * get("mamba_state_dim"),
        delta_key=(get("linear_num_key_heads") or 0) * (get("linear_key_head_dim") or 0),
        delta_value=(get("linear_num_value_heads") or 0) * (get("linear_value_head_dim") or 0),
        delta_value_heads=get("linear_num_value_heads") or 0,
        delta_value_head=get("linear_value_head_dim") or 0,
        delta_key_head=get("linear_key_head_dim") or 0,
        delta_kernel=get("linear_conv_kernel_dim") or 0,
        experts=experts,
        topk=get("moe_router_topk"),
        expert_ffn=get("moe_ffn_hidden_size") or ffn,
        expert_input=get("moe_latent_size") or hidden,
        shared_ffn=get("moe_shared_expert_intermediate_size") or 0,
        shared_gate=bool(get("moe_shared_expert_gate")),
    )


class _Reader:
    """Reads arguments, with Megatron's defaults."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.schema = spec, load_schema(spec.megatron_core)

    def __call__(self, dest: str) -> Any:
        value = self.spec.get(dest)
        return self.schema.argument(dest).default if value is None else value

    def size(self, dest: str) -> int:
        value = self(dest)
        if not value:
            raise CannotTell(dest, "unset")
        return int(value)


def _hybrid(get: _Reader) -> tuple[tuple[tuple[str, ...], ...], str, int]:
    """Cut Megatron's pattern: ``main|main/prediction/prediction``, one prediction part per depth."""
    main, *parts = str(get("hybrid_layer_pattern")).split("/")
    parts = [part for part in parts if part]
    if not parts:
        parts = [get("mtp_hybrid_override_pattern") or ""] * (get("mtp_num_layers") or 0)
    unknown = sorted(set(main + "".join(parts)) - KINDS - {"|"})
    if unknown:
        raise CannotTell("hybrid_layer_pattern", f"the size of layers {', '.join(unknown)} is not known here")
    segments = tuple(tuple(segment) for segment in main.split("|"))
    if len(segments) == 1:
        segments = _cut(segments[0], get("pipeline_model_parallel_size"))
    return segments, parts[0] if parts else "", len(parts)


def _gpt(get: _Reader, experts: int) -> tuple[tuple[tuple[str, ...], ...], str, int]:
    """Name each layer's two halves; a prediction layer is as the last one."""
    count, variant = get.size("num_layers"), get("experimental_attention_variant")
    if variant not in (None, "gated_delta_net"):
        raise CannotTell("experimental_attention_variant", f"the size of {variant} is not known here")
    linear = _pattern(get("linear_attention_freq"), count, "linear_attention_freq", last=True) if variant else []
    moe = _pattern(get("moe_layer_freq"), count, "moe_layer_freq", last=False) if experts else []
    layers = tuple(
        (DELTA if linear and linear[i] else ATTENTION) + (EXPERTS if moe and moe[i] else MLP) for i in range(count)
    )
    return _cut(layers, get("pipeline_model_parallel_size")), layers[-1], get("mtp_num_layers") or 0


def _pattern(value: Any, count: int, dest: str, *, last: bool) -> list[bool]:
    """Tell which layers are of the kind. A number n means every n-th; for linear attention, all but every n-th."""
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        value = int(value)
    if isinstance(value, int) and value > 0:
        return [(i + 1) % value != 0 for i in range(count)] if last else [i % value == 0 for i in range(count)]
    if isinstance(value, list) and len(value) == count:
        return [bool(item) for item in value]
    raise CannotTell(dest, "neither a number nor one entry per layer")


def _cut(layers: tuple[str, ...], stages: int) -> tuple[tuple[str, ...], ...]:
    """Cut into equal stages, the first ones longer where it does not divide (a placement by hand is not read)."""
    bounds = [-(-len(layers) * i // stages) for i in range(stages + 1)]
    return tuple(layers[start:end] for start, end in zip(bounds, bounds[1:], strict=False))


def _vocabulary(get: _Reader) -> int:
    """Return the padded vocabulary; raises CannotTell where only the tokenizer knows it."""
    if get("padded_vocab_size"):
        return int(get("padded_vocab_size"))
    size = get("vocab_size")
    if not size:
        raise CannotTell("padded_vocab_size", "unset: only the tokenizer knows the vocabulary")
    multiple = get("make_vocab_size_divisible_by") * get("tensor_model_parallel_size") if get("pad_vocab_size") else 1
    return -(-int(size) // multiple) * multiple
