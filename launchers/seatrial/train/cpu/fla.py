"""The three names of ``fla`` that Megatron's gated delta net takes, in plain torch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["causal_conv1d", "chunk_gated_delta_rule", "l2norm"]


def l2norm(x: torch.Tensor, eps: float = 1e-6, output_dtype: torch.dtype | None = None, dim: int = -1) -> torch.Tensor:
    """Return ``x / sqrt(sum(x**2) + eps)`` along ``dim``, computed in FP32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().sum(dim, keepdim=True) + eps)).to(output_dtype or x.dtype)


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Depthwise causal convolution of ``x`` [batch, time, channels] with ``weight`` [channels, width]."""
    if cu_seqlens is not None or initial_state is not None or output_final_state:
        raise NotImplementedError("packed sequences and convolution states are not rehearsed")
    width = weight.shape[-1]
    padded = F.pad(x.transpose(1, 2), (width - 1, 0))
    y = F.conv1d(padded, weight[:, None], bias, groups=x.shape[-1]).transpose(1, 2)
    return (F.silu(y) if activation in ("silu", "swish") else y), None


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gated delta rule: Megatron's own torch form of it, with fla's signature."""
    from megatron.core.ssm.gated_delta_net import torch_chunk_gated_delta_rule

    if scale is not None:
        raise NotImplementedError("the rehearsal scales by 1 / sqrt(head size) only")
    result: tuple[torch.Tensor, torch.Tensor | None] = torch_chunk_gated_delta_rule(q, k, v, g, beta, **options)
    return result
