"""Parameters of a model, by kind of layer and by how the ranks share them.

Each formula adds up the shapes of the parameters that Megatron-Core 0.19.2's constructors make; the module is named
at each. Buffers (the router's expert bias) are no parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.check.layout import Layout
from seatrial.check.shape import ATTENTION, DELTA, EXPERTS, MAMBA, MLP, Shape

MAMBA_KERNEL = 4  # MambaMixer's d_conv; no argument sets it


@dataclass(frozen=True)
class Count:
    """Parameters: cut over the tensor-parallel ranks, whole on each of them, and of routed experts (EP x ETP)."""

    cut: int = 0
    whole: int = 0
    experts: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.cut + other.cut, self.whole + other.whole, self.experts + other.experts)

    def __mul__(self, times: int) -> Count:
        return Count(self.cut * times, self.whole * times, self.experts * times)

    @property
    def total(self) -> int:
        """All parameters, each counted once."""
        return self.cut + self.whole + self.experts

    def dense_on_rank(self, at: Layout) -> int:
        """Parameters outside of routed experts that one rank holds."""
        return self.cut // at.tp + self.whole

    def experts_on_rank(self, at: Layout) -> int:
        """Parameters of routed experts that one rank holds."""
        return self.experts // at.ep_block


@dataclass(frozen=True)
class ModelCount:
    """The parts of a model: embedding (and output layer), decoder layers with the last norm, prediction layers."""

    embedding: Count
    output: Count
    decoder: Count
    prediction: Count

    @property
    def whole_model(self) -> Count:
        """All parts."""
        return self.embedding + self.output + self.decoder + self.prediction

    def active(self, shape: Shape) -> int:
        """Parameters that one token meets, prediction layers left out."""
        main = self.embedding + self.output + self.decoder
        return main.cut + main.whole + (main.experts * shape.topk // shape.experts if shape.experts else 0)


def count_parameters(shape: Shape) -> ModelCount:
    """Count the whole model."""
    table = Count(cut=shape.vocabulary * shape.hidden)
    return ModelCount(
        embedding=table + Count(whole=shape.positions * shape.hidden),
        output=Count() if shape.tied else table,
        decoder=count_layers(shape.layers, shape) + _norm(shape),
        prediction=count_prediction(shape) * shape.prediction_copies,
    )


def count_layers(layers: str, shape: Shape) -> Count:
    """Count a run of layers."""
    return sum((_LAYERS[kind](shape) for kind in layers), Count())


def count_prediction(shape: Shape) -> Count:
    """``MultiTokenPredictionLayer``: norms of embedding, hidden state and result, the projection, its layers."""
    return count_layers(shape.prediction, shape) + _norm(shape) * 3 + Count(cut=2 * shape.hidden * shape.hidden)


def _norm(shape: Shape) -> Count:
    return Count(whole=shape.hidden * shape.norm)


def _mamba(shape: Shape) -> Count:
    """``MambaMixer``: in_proj (z, x, B, C, dt), convolution over x, B, C, dt_bias, A_log, D, norm, out_proj."""
    inner, state, heads = shape.mamba_inner, shape.mamba_state, shape.mamba_heads
    in_proj = shape.hidden * (2 * inner + 2 * state + heads)
    convolution = (inner + 2 * state) * (MAMBA_KERNEL + 1)
    return _norm(shape) + Count(cut=in_proj + convolution + 3 * heads + inner + inner * shape.hidden)


def _delta(shape: Shape) -> Count:
    """``GatedDeltaNet``: in_proj (q, k, v, gate, beta, alpha), convolution over q, k, v, dt_bias, A_log, norm and
    out_proj."""
    key, value, heads = shape.delta_key, shape.delta_value, shape.delta_value_heads
    in_proj = shape.hidden * (2 * key + 2 * value + 2 * heads)
    convolution = (2 * key + value) * shape.delta_kernel
    cut = in_proj + convolution + 2 * heads + value * shape.hidden
    return _norm(shape) + Count(cut=cut, whole=shape.delta_value_head * shape.norm)


def _attention(shape: Shape) -> Count:
    """``SelfAttention``: linear_qkv (with the output gate), norms of queries and keys, linear_proj."""
    width = shape.query * (2 if shape.output_gate else 1) + 2 * shape.key
    cut = shape.hidden * width + shape.query * shape.hidden + (width if shape.bias or shape.qkv_bias else 0)
    norms = 2 * shape.head * shape.norm if shape.qk_norm else 0
    return _norm(shape) + Count(cut=cut, whole=norms + (shape.hidden if shape.bias else 0))


def _mlp(shape: Shape) -> Count:
    """``MLP``: linear_fc1 (twice as wide where gated), linear_fc2."""
    first = shape.ffn * (2 if shape.gated else 1)
    bias = Count(cut=first, whole=shape.hidden) if shape.bias else Count()
    return _norm(shape) + Count(cut=shape.hidden * first + shape.ffn * shape.hidden) + bias


def _experts(shape: Shape) -> Count:
    """``MoELayer``: router, routed experts, shared experts with their gate, latent projections."""
    first = shape.expert_ffn * (2 if shape.gated else 1)
    routed = shape.expert_input * (first + shape.expert_ffn)
    router = shape.hidden * shape.experts
    if shape.bias:
        routed, router = routed + first + shape.expert_input, router + shape.experts
    latent = 2 * shape.hidden * shape.expert_input if shape.expert_input != shape.hidden else 0
    shared = shape.hidden * shape.shared_ffn * (3 if shape.gated else 2)
    gate = shape.hidden if shape.shared_ffn and shape.shared_gate else 0
    return _norm(shape) + Count(cut=shared, whole=router + latent + gate, experts=routed * shape.experts)


_LAYERS = {MAMBA: _mamba, DELTA: _delta, ATTENTION: _attention, MLP: _mlp, EXPERTS: _experts}
