"""Memory for each GPU: an estimate from the run's arguments, against what the GPU has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.check.activations import (
    Split,
    dispatch_peak,
    ends_saved,
    hybridep_buffers,
    layers_saved,
    loss_saved,
    prediction_saved,
)
from seatrial.check.blame import Finding, Severity, argument
from seatrial.check.layout import Layout, experts_of, uses_hybridep
from seatrial.check.parameters import Count, count_layers, count_parameters
from seatrial.check.shape import CannotTell, Shape, shape_of
from seatrial.spec.runspec import RunSpec

GIB, MIB = 2**30, 2**20
# Total memory that nvidia-smi shows for a GPU, MiB.
GPU_MEMORY = {"gb200": 189471, "b200": 183359, "gb300": 284208, "h200": 143771, "h100": 81559}
TIGHT = 0.9  # above this share, other routing or another library version may not fit

# What follows is measured or assumed, not derived.
# Tokens of the busiest rank of an expert-parallel group over its even share, with learned routing. From the memory
# that Megatron-LM's functional test of Nemotron 3.5 Lightning records for 8 GB200 (EP 8): from step 2 to step 17 the
# peak grows by 17.4 GB, which is 0.55 of the 31.5 GB that an even share of the dispatched tokens keeps.
IMBALANCE = 1.5
# PyTorch's own: cuBLAS and Transformer Engine work space, batches, small buffers. The same test's memory between steps
# is 1.2 GB more than its weights, gradients and optimizer state (at 50,304 tokens of vocabulary, as its loss suggests).
WORKSPACE = 1_200_000_000
# PyTorch reserves more than it gives out: 162.29 GiB for 158.22 GiB in that model's verification card.
RESERVE = 0.03
# CUDA context, NCCL's buffers for some ten groups, library handles: assumed.
CONTEXT = 3 * GIB

# With one of these set, memory is not what is estimated here.
NOT_COVERED = (
    "recompute_granularity", "recompute_activations", "moe_layer_recompute", "fp8", "fp4", "use_megatron_fsdp",
    "use_torch_fsdp2", "optimizer_cpu_offload", "cpu_offloading_num_layers", "fine_grained_activation_offloading",
    "moe_expert_capacity_factor", "use_precision_aware_optimizer", "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """Bytes on the fullest GPU. ``step`` is what only the optimizer's step needs, when no activations are there."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    loss: int
    step: int
    hybridep: int

    @property
    def allocated(self) -> int:
        """The peak of ``torch.cuda.max_memory_allocated``."""
        state = self.weights + self.gradients + self.optimizer
        return state + max(self.activations + self.loss, self.step) + WORKSPACE

    @property
    def total(self) -> int:
        """The peak that ``nvidia-smi`` shows."""
        return int(self.allocated * (1 + RESERVE)) + self.hybridep + CONTEXT

    def text(self) -> str:
        """One line of the parts, in GiB."""
        parts = {
            "weights": self.weights, "gradients": self.gradients, "optimizer": self.optimizer,
            "activations": self.activations, "logits and loss": self.loss,
            "other": self.total - self.weights - self.gradients - self.optimizer - self.activations - self.loss,
        }  # fmt: skip
        return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items())


def estimate_memory(spec: RunSpec) -> Estimate:
    """Estimate the memory of one GPU, the fullest of first and last pipeline stage.

    Weights and gradients lie in contiguous buffers (``ParamAndGradBuffer``): BF16 weights, FP32 gradients unless
    ``grad_reduce_in_bf16`` (``validate_args`` sees to that). The distributed optimizer (``distrib_optimizer.py``)
    keeps FP32 parameters and Adam's two moments, 12 bytes, cut over the data and context parallel ranks, those of
    experts over the ranks with the same experts; from BF16 gradients its step makes an FP32 copy of its part.
    Activations: see ``activations.py``; the first of PP stages holds PP micro batches.

    Raises CannotTell where a size is unset or unknown.
    """
    if not spec.get("bf16", False):
        raise CannotTell("bf16", "the estimate is for BF16 training")
    if spec.get("optimizer", "adam") != "adam":
        raise CannotTell("optimizer", "the estimate is for Adam")
    shape, at = shape_of(spec), Layout.of(spec)
    stages = [_stage(spec, shape, at, index) for index in sorted({0, at.pp - 1})]
    return max(stages, key=lambda stage: stage.total)


def _stage(spec: RunSpec, shape: Shape, at: Layout, index: int) -> Estimate:
    first, last = index == 0, index == at.pp - 1
    layers = "".join("".join(segment) for segment in shape.stages[index :: at.pp])
    parts, count = count_parameters(shape), count_layers(layers, shape)
    if first:
        count += parts.embedding
    if last:
        # Prediction layers look tokens up as well: a stage of its own holds a second embedding for them.
        second = parts.embedding if (shape.depths or shape.tied) and not first else Count()
        count += parts.output + parts.prediction + second
    dense, experts = count.dense_on_rank(at), count.experts_on_rank(at)
    wide = not spec.get("grad_reduce_in_bf16", False)
    copies = max(1, at.world // (at.tp * at.pp)), max(1, at.world // (at.ep_block * at.pp))
    sharded = bool(spec.get("use_distributed_optimizer", False))
    mine = -(-dense // copies[0]) + -(-experts // copies[1]) if sharded else dense + experts

    split = Split.of(at, bool(spec.get("sequence_parallel", False)))
    tokens = int(spec.get("seq_length")) * _micro(spec) // at.cp
    waiting = min(at.pp, max(1, int(spec.get("global_batch_size")) * at.model // (at.world * _micro(spec))))
    saved = layers_saved(layers, shape, split) * (waiting if first else 1)
    if last:
        saved += prediction_saved(shape, split) * shape.depths + ends_saved(shape, split)
    in_place = spec.get("cross_entropy_fusion_impl") == "te"
    loss = loss_saved(shape, split, in_place=in_place) if last else 0
    share = imbalance(spec)
    return Estimate(
        weights=(dense + experts) * 2,
        gradients=(dense + experts) * (4 if wide else 2),
        optimizer=mine * 12,
        activations=tokens * saved.plain + int(tokens * saved.dispatched * share),
        loss=tokens * max(loss, int(dispatch_peak(shape, split) * share)),
        step=0 if wide else mine * 4,
        hybridep=hybridep_buffers(shape, tokens, at.ep_block) if uses_hybridep(spec) else 0,
    )


def _micro(spec: RunSpec) -> int:
    return int(spec.get("micro_batch_size"))


def imbalance(spec: RunSpec) -> float:
    """Return the busiest rank's tokens over its even share: 1 without expert parallelism or with forced balance."""
    forced = bool(spec.get("moe_router_force_load_balancing", False))
    return IMBALANCE if experts_of(spec) and Layout.of(spec).ep > 1 and not forced else 1.0


def check_memory(spec: RunSpec) -> Iterator[Finding]:
    """The run fits the GPU's memory. Says nothing of a rehearsal, or where the ranks do not divide."""
    at, experts = Layout.of(spec), experts_of(spec)
    if spec.rehearsal or at.dp is None or experts % at.ep or at.world % (at.ep_block * at.pp):
        return
    try:
        estimate = estimate_memory(spec)
    except CannotTell as unknown:
        rule = f"memory is not estimated: {unknown.why}"
        yield argument(spec, unknown.dest, rule, severity="note")
        return
    yield judge(spec, estimate)


def judge(spec: RunSpec, estimate: Estimate) -> Finding:
    """Hold the estimate against the GPU. Where a setting makes it an upper bound or a guess, it is a note."""
    gpu = str(spec.profile.get("gpu_type") or "unknown")
    there = GPU_MEMORY.get(gpu, 0) * MIB
    rule = f"about {estimate.total / GIB:.0f} GiB of GPU memory ({estimate.text()})"
    other = [dest for dest in NOT_COVERED if spec.get(dest) not in (None, False, 0)]
    rule += f"; without the effect of {', '.join(other)}" if other else ""
    rule += f"; a {gpu} has {there / GIB:.0f} GiB" if there else f"; how much a GPU of type {gpu} has is not known here"
    severity: Severity = "note"
    fix = ""
    if there and not other and estimate.total > TIGHT * there:
        severity = "error" if estimate.total > there else "warning"
        grows = estimate.activations + estimate.loss
        fix = f"a smaller micro batch: {grows / GIB:.0f} GiB grow with it"
        if estimate.total - grows > there:
            fix = "more GPUs, or more tensor or pipeline parallel ranks: it does not fit at any micro batch"
    return argument(spec, "micro_batch_size", rule, fix, severity=severity)
