"""Modules with Transformer Engine's shape on Megatron's own parallel linears.

Their parameters carry Transformer Engine's names (``linear_qkv.layer_norm_weight`` and so on), so one layer spec, and
one checkpoint layout, serves CPU and GPU: :func:`te_to_local` rewrites the production spec, class by class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from megatron.core.models.hybrid.hybrid_block import HybridStack
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, zero_centered: bool) -> torch.Tensor:
    """Return x / rms(x) * weight in x's type, in FP32; ``zero_centered`` weights lack the scale's 1."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    scale = weight.float() + 1 if zero_centered else weight.float()
    return (wide * scale).to(x.dtype)


def _norm_weight(config: Any, size: int) -> torch.nn.Parameter:
    fill = torch.zeros if config.layernorm_zero_centered_gamma else torch.ones
    weight = torch.nn.Parameter(fill(size, dtype=config.params_dtype))
    weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return weight


class Norm(torch.nn.Module):
    """RMS norm with zero-centred weights and sequence parallelism, which Megatron's own torch norm refuses."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        if config.normalization != "RMSNorm":
            raise NotImplementedError(f"the rehearsal knows RMSNorm only, not {config.normalization}")
        self.eps, self.zero_centered = eps, config.layernorm_zero_centered_gamma
        self.weight = _norm_weight(config, hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps, self.zero_centered)


class LayerNormColumnParallelLinear(ColumnParallelLinear):  # type: ignore[misc]
    """Norm and column-parallel linear in one module, as Transformer Engine fuses them."""

    def __init__(self, input_size: int, output_size: int, *, config: Any, **kwargs: Any) -> None:
        super().__init__(input_size, output_size, config=config, **kwargs)
        self.eps, self.zero_centered = config.layernorm_epsilon, config.layernorm_zero_centered_gamma
        self.layer_norm_weight = _norm_weight(config, input_size)

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(rms_norm(x, self.layer_norm_weight, self.eps, self.zero_centered), *args, **kwargs)


class LocalHybridStack(HybridStack):  # type: ignore[misc]
    """The hybrid stack, whose last norm is hard-wired to Transformer Engine's."""

    def __init__(
        self,
        config: Any,
        submodules: Any,
        *args: Any,
        post_layer_norm: bool = True,
        post_process: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, submodules, *args, post_layer_norm=False, post_process=post_process, **kwargs)
        self.post_layer_norm = post_layer_norm
        if post_process and post_layer_norm:
            self.final_norm = Norm(config, config.hidden_size, config.layernorm_epsilon)


def te_to_local(spec: Any) -> Any:
    """Return ``spec`` with every Transformer Engine class replaced by its local form; ``spec`` itself stays.

    Descends into module specs, dataclasses of submodules, partials and lists. Grouped experts become sequential ones.
    """
    return _rewriter()(spec)


def _rewriter() -> Callable[[Any], Any]:
    from megatron.core.extensions import transformer_engine as te
    from megatron.core.extensions import transformer_engine_spec_provider as provider

    # By identity: without Transformer Engine most of these classes are mocks, which compare equal to nothing else.
    local = {
        id(te.TELayerNormColumnParallelLinear): LayerNormColumnParallelLinear,
        id(te.TEColumnParallelLinear): ColumnParallelLinear,
        id(te.TERowParallelLinear): RowParallelLinear,
        id(te.TELinear): ColumnParallelLinear,
        id(te.TEDotProductAttention): DotProductAttention,
        id(te.TENorm): Norm,
        id(provider._TENormWithResidual): Norm,
        id(provider.FusedLayerNorm): Norm,  # the provider's choice for queries and keys beside an old engine
        id(HybridStack): LocalHybridStack,
    }
    experts = partial(
        SequentialMLP,
        submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear, activation_func=None),
    )

    def rewrite(node: Any) -> Any:
        if id(node) in local:
            return local[id(node)]
        if isinstance(node, partial):
            if getattr(node.func, "__name__", "") in ("TEGroupedMLP", "SequentialMLP"):
                return experts
            arguments = {name: rewrite(value) for name, value in node.keywords.items()}
            return partial(rewrite(node.func), *map(rewrite, node.args), **arguments)
        if dataclasses.is_dataclass(node) and not isinstance(node, type):
            changed = {f.name: rewrite(getattr(node, f.name)) for f in dataclasses.fields(node) if f.init}
            return dataclasses.replace(node, **changed)
        if isinstance(node, list):
            return [rewrite(item) for item in node]
        return node

    return rewrite


def install() -> None:
    """Give the two spec modules the provider that they import only beside Transformer Engine."""
    from megatron.core.extensions.transformer_engine_spec_provider import TESpecProvider
    from megatron.core.models.gpt import experimental_attention_variant_module_specs, gpt_layer_specs

    experimental_attention_variant_module_specs.TESpecProvider = TESpecProvider
    gpt_layer_specs.TESpecProvider = TESpecProvider
