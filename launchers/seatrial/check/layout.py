"""The sizes of the parallel groups, and the check that every size is a size at all. The other checks rest on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.check.blame import Finding, argument
from seatrial.spec.runspec import RunSpec

REQUIRED = ("train_iters", "global_batch_size", "micro_batch_size", "seq_length")
SIZES = (
    *REQUIRED, "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "hidden_size", "num_layers", "num_attention_heads",
    "num_query_groups", "moe_router_topk", "lr_decay_iters", "save_interval", "eval_interval", "eval_global_batch_size",
    "eval_micro_batch_size", "max_position_embeddings", "vocab_size", "padded_vocab_size",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Ranks, and how Megatron-Core 0.19.2 cuts them: ``world`` = TP x PP x CP x DP, and for the experts
    ``world`` = ETP x EP x PP x expert DP. Ranks of one EP group lie within ``ep_block`` consecutive ranks
    (rank order ``tp-cp-ep-dp-pp``, ``megatron/core/parallel_state.py``), which start at a multiple of it.
    """

    world: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int

    @classmethod
    def of(cls, spec: RunSpec) -> Layout:
        """Read the sizes; expert TP is TP where unset."""
        tp = int(spec.get("tensor_model_parallel_size", 1))
        return cls(
            world=spec.world_size,
            tp=tp,
            pp=int(spec.get("pipeline_model_parallel_size", 1)),
            cp=int(spec.get("context_parallel_size", 1)),
            ep=int(spec.get("expert_model_parallel_size", 1)),
            etp=int(spec.get("expert_tensor_parallel_size", tp)),
        )

    @property
    def model(self) -> int:
        """Ranks of one copy of the dense model."""
        return self.tp * self.pp * self.cp

    @property
    def dp(self) -> int | None:
        """Copies of the dense model, None where the ranks do not divide."""
        return None if self.world % self.model else self.world // self.model

    @property
    def ep_block(self) -> int:
        """Consecutive ranks that one expert-parallel group lies in."""
        return self.ep * self.etp


def experts_of(spec: RunSpec) -> int:
    """Return the number of experts; 0 for a dense model."""
    return int(spec.get("num_experts", 0))


def uses_hybridep(spec: RunSpec) -> bool:
    """Tell whether tokens go to experts through HybridEP."""
    asked = (spec.get("moe_token_dispatcher_type"), spec.get("moe_flex_dispatcher_backend"))
    return asked == ("flex", "hybridep")


def check_sizes(spec: RunSpec) -> Iterator[Finding]:
    """Every size is a whole number above 0, and those that no run can do without are set."""
    for dest in SIZES:
        value = spec.get(dest)
        if value is None:
            if dest in REQUIRED:
                yield argument(spec, dest, "unset: every run needs it", f"--set schedule.{dest}=…")
        elif not isinstance(value, int) or value < 1:
            yield argument(spec, dest, "a whole number of at least 1")
    if experts_of(spec) < 0:
        yield argument(spec, "num_experts", "a whole number of at least 1; unset for a dense model")
