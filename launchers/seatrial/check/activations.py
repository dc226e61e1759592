"""What a micro batch keeps on a GPU between its forward and its backward pass, in bytes.

Eager BF16 training with Transformer Engine 2 and Megatron-Core 0.19.2, without recomputation. Each formula counts the
tensors that autograd functions save, widths in elements of two bytes for each token; the function is named at each.
A tensor that two functions save counts once. Dropout is 0, so no masks are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.check.layout import Layout
from seatrial.check.shape import ATTENTION, DELTA, EXPERTS, MAMBA, MLP, Shape

BF16, FP32 = 2, 4
DELTA_CHUNK = 64  # chunk_gated_delta_rule keeps one row of this many elements for each token and head
# For each token and expert: FP32 scores, scores of the auxiliary loss and probabilities, the two routing maps, and the
# row numbers of HybridEP's permutation (4 bytes). Read from router.py, moe_utils.py and hybrid_ep_buffer.py.
ROUTING_BYTES = 3 * FP32 + 2 + 4


@dataclass(frozen=True)
class Saved:
    """Bytes for each token of a rank's micro batch; ``dispatched`` is the part that follows the routed tokens, where
    every rank gets as many as it sends."""

    plain: int = 0
    dispatched: int = 0

    def __add__(self, other: Saved) -> Saved:
        return Saved(self.plain + other.plain, self.dispatched + other.dispatched)

    def __mul__(self, times: int) -> Saved:
        return Saved(self.plain * times, self.dispatched * times)


@dataclass(frozen=True)
class Split:
    """How a rank's share of a width comes about: ``inner`` divides a module's widths (TP), ``stream`` the hidden
    states between modules (TP under sequence parallelism)."""

    inner: int
    stream: int
    expert: int

    @classmethod
    def of(cls, at: Layout, sequence_parallel: bool) -> Split:
        """Return the divisors under layout ``at``."""
        return cls(inner=at.tp, stream=at.tp if sequence_parallel else 1, expert=at.etp)


def layers_saved(layers: str, shape: Shape, split: Split) -> Saved:
    """Return what a run of layers keeps."""
    return sum((_LAYERS[kind](shape, split) for kind in layers), Saved())


def prediction_saved(shape: Shape, split: Split) -> Saved:
    """One prediction depth: inputs of its three norms, the joined input of eh_proj (2 x hidden), the last norm's result
    for the output layer, and its layers."""
    return layers_saved(shape.prediction, shape, split) + Saved(6 * shape.hidden * BF16 // split.stream)


def ends_saved(shape: Shape, split: Split) -> Saved:
    """The last norm's input and its result, which the output layer keeps."""
    return Saved(2 * shape.hidden * BF16 // split.stream)


def loss_saved(shape: Shape, split: Split, *, in_place: bool) -> int:
    """Bytes for each token at the peak, which is the start of the backward pass: all heads have run, none is freed.

    Megatron's ``VocabParallelCrossEntropy`` keeps the softmax in FP32 for each head (the model's and each prediction
    depth's) and makes one BF16 gradient of the logits. Transformer Engine's (``in_place``) writes the gradient over the
    BF16 logits.
    """
    heads, width = 1 + shape.depths, shape.vocabulary // split.inner
    return width * (heads * BF16 if in_place else heads * FP32 + BF16)


def dispatch_peak(shape: Shape, split: Split) -> int:
    """Bytes for each token that the backward pass of one expert layer needs besides what was kept: gradients of its
    output, of the activation's result and input, and of its input, in BF16, ``topk`` times."""
    if EXPERTS not in shape.layers + shape.prediction:
        return 0
    first = shape.expert_ffn * (2 if shape.gated else 1)
    return shape.topk * (2 * shape.expert_input * split.expert + first + shape.expert_ffn) * BF16


def hybridep_buffers(shape: Shape, tokens: int, group: int) -> int:
    """Bytes of HybridEP's buffers, outside of PyTorch's allocator: room for every token of the group (the worst case)
    in BF16 and its FP32 probabilities over all experts, shared by dispatch and combine within one NVLink domain.

    Source: ``allocate_buffer_for_combine`` of DeepEP's ``hybrid-ep`` branch.
    """
    return tokens * group * (shape.expert_input * BF16 + shape.experts * FP32)


def _normed(shape: Shape, split: Split) -> int:
    """A norm's input, and its result, which the projection behind it keeps (in TE's LayerNormLinear as well)."""
    return 2 * shape.hidden // split.stream


def _mamba(shape: Shape, split: Split) -> Saved:
    """``mamba_split_conv1d_scan_combined`` keeps z, x, B, C, dt and the scan's result before the gate, recomputing the
    rest; the gated norm its input; out_proj its own."""
    inner = 2 * shape.mamba_inner + 2 * shape.mamba_state + shape.mamba_heads + 3 * shape.mamba_inner
    return Saved((_normed(shape, split) + inner // split.inner) * BF16)


def _delta(shape: Shape, split: Split) -> Saved:
    """fla's ``causal_conv1d`` keeps q, k, v; ``l2norm`` its result; ``chunk_gated_delta_rule`` q and k for each value
    head, v, the chunk matrix, decay (and alpha) in FP32 and beta; then its result, that normed, the gate, and
    out_proj's input."""
    key, value, heads = shape.delta_key, shape.delta_value, shape.delta_value_heads
    repeated = 2 * heads * shape.delta_key_head
    inner = (2 * key + value) + 2 * key + repeated + value + heads * (DELTA_CHUNK + 5) + 4 * value
    return Saved((_normed(shape, split) + inner // split.inner) * BF16)


def _attention(shape: Shape, split: Split) -> Saved:
    """Fused attention keeps q, k, v, its result (linear_proj's input) and one FP32 value for each head; norms of
    queries and keys keep their inputs; the output gate itself and the gated result."""
    queries = 2 + shape.qk_norm + 2 * shape.output_gate
    keys = 2 + shape.qk_norm
    inner = queries * shape.query + keys * shape.key + 2 * shape.heads
    return Saved((_normed(shape, split) + inner // split.inner) * BF16)


def _mlp(shape: Shape, split: Split) -> Saved:
    """Input of the activation (twice as wide where gated), and linear_fc2's."""
    return Saved((_normed(shape, split) + _activation(shape, shape.ffn) // split.inner) * BF16)


def _experts(shape: Shape, split: Split) -> Saved:
    """Norm, router, shared experts (and the gate's input); for each dispatched token TE's GroupedLinear keeps its
    input, the weighted activation its own and the FP32 weight, the second GroupedLinear its input."""
    shared = _activation(shape, shape.shared_ffn) // split.inner
    shared += shape.hidden // split.stream if shape.shared_ffn and shape.shared_gate else 0
    latent = 2 * shape.expert_input if shape.expert_input != shape.hidden else 0
    plain = (_normed(shape, split) + shared + latent) * BF16 + shape.experts * ROUTING_BYTES
    # Expert tensor parallelism gathers its ranks' tokens and divides the widths: the two cancel behind the first GEMM.
    token = (shape.expert_input * split.expert + _activation(shape, shape.expert_ffn)) * BF16 + FP32
    return Saved(plain, shape.topk * token)


def _activation(shape: Shape, width: int) -> int:
    return (3 if shape.gated else 2) * width


_LAYERS = {MAMBA: _mamba, DELTA: _delta, ATTENTION: _attention, MLP: _mlp, EXPERTS: _experts}
