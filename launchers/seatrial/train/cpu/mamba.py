"""The names of ``mamba_ssm`` and ``causal_conv1d`` that Megatron's Mamba-2 mixer takes, in plain torch.

The scan is the chunked form of state space duality (Dao & Gu 2024, "Transformers are SSMs", section 6): within a
chunk the sequence transformation is a masked matrix product; between chunks a state is carried. FP32 inside.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


class RMSNorm(torch.nn.Module):
    """RMS norm over groups of channels, gated by ``z``: norm(x) * silu(z), or norm(x * silu(z))."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps, self.group_size, self.norm_before_gate = eps, group_size or hidden_size, norm_before_gate
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)

    def forward(self, x: torch.Tensor, z: torch.Tensor | None = None) -> torch.Tensor:
        dtype, x = x.dtype, x.float()
        if z is not None and not self.norm_before_gate:
            x = x * F.silu(z.float())
        grouped = x.unflatten(-1, (-1, self.group_size))
        grouped = grouped * torch.rsqrt(grouped.square().mean(-1, keepdim=True) + self.eps)
        x = grouped.flatten(-2) * self.weight.float()
        if z is not None and self.norm_before_gate:
            x = x * F.silu(z.float())
        return x.to(dtype)


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """Depthwise causal convolution of ``x`` [batch, channels, time] with ``weight`` [channels, width]."""
    if seq_idx is not None or initial_states is not None or return_final_states:
        raise NotImplementedError("packed sequences and convolution states are not rehearsed")
    y = F.conv1d(F.pad(x, (weight.shape[-1] - 1, 0)), weight[:, None], bias, groups=x.shape[1])
    return F.silu(y) if activation in ("silu", "swish") else y


def causal_conv1d_varlen_states(*_: Any, **__: Any) -> torch.Tensor:
    """Inference only."""
    raise NotImplementedError("packed sequences are not rehearsed")


def chunked_scan(
    x: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, chunk_size: int
) -> torch.Tensor:
    """Return y of h[t] = exp(A dt[t]) h[t-1] + dt[t] B[t] x[t], y[t] = C[t] h[t], from a zero state.

    Shapes: x [batch, time, heads, p], dt [batch, time, heads], A [heads], B and C [batch, time, groups, n]; heads
    share the B and C of their group. Returns [batch, time, heads, p].
    """
    time, heads = x.shape[1], x.shape[2]
    chunk = min(chunk_size, time)
    B, C = (m.repeat_interleave(heads // m.shape[2], dim=2) for m in (B, C))
    pad = -time % chunk
    if pad:  # dt = 0 neither decays nor adds
        x, B, C = (F.pad(m, (0, 0, 0, 0, 0, pad)) for m in (x, B, C))
        dt = F.pad(dt, (0, 0, 0, pad))
    # [batch, heads, chunks, chunk, ...]
    X, B, C = (m.unflatten(1, (-1, chunk)).permute(0, 3, 1, 2, 4) for m in (x * dt[..., None], B, C))
    log_decay = (dt * A).unflatten(1, (-1, chunk)).permute(0, 3, 1, 2).cumsum(-1)
    between = log_decay[..., :, None] - log_decay[..., None, :]
    causal = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    mask = between.masked_fill(~causal, float("-inf")).exp()
    y = ((C @ B.transpose(-1, -2)) * mask) @ X
    if X.shape[2] > 1:
        to_end = (log_decay[..., -1:] - log_decay).exp()
        added = (X * to_end[..., None]).transpose(-1, -2) @ B  # [batch, heads, chunks, p, n]
        state = torch.zeros_like(added[:, :, 0])
        states = []
        for index in range(X.shape[2]):
            states.append(state)
            state = state * log_decay[:, :, index, -1, None, None].exp() + added[:, :, index]
        carried = C @ torch.stack(states, 2).transpose(-1, -2)
        y = y + carried * log_decay.exp()[..., None]
    return y.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, :time]


def mamba_chunk_scan_combined(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    state_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The scan with Mamba-2's pre- and post-processing: softplus of dt, skip connection D, gate z."""
    if any(option is not None for option in (initial_states, seq_idx, cu_seqlens)) or return_final_states:
        raise NotImplementedError("packed sequences and carried states are not rehearsed")
    step = dt.float()
    if dt_bias is not None:
        step = step + dt_bias.float()
    if dt_softplus:
        step = F.softplus(step)
    if dt_limit != (0.0, float("inf")):
        step = step.clamp(*dt_limit)
    y = chunked_scan(x.float(), step, A.float(), B.float(), C.float(), chunk_size)
    if D is not None:
        y = y + x.float() * (D.float() if D.dim() == 2 else D.float()[:, None])
    if z is not None:
        y = y * F.silu(z.float())
    return y.to(x.dtype)


def mamba_split_conv1d_scan_combined(
    zxbcdt: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: torch.Tensor | None,
    dt_bias: torch.Tensor,
    A: torch.Tensor,
    D: torch.Tensor,
    chunk_size: int,
    initial_states: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    activation: str = "silu",
    rmsnorm_weight: torch.Tensor | None = None,
    rmsnorm_eps: float = 1e-6,
    outproj_weight: torch.Tensor | None = None,
    outproj_bias: torch.Tensor | None = None,
    headdim: int | None = None,
    ngroups: int = 1,
    norm_before_gate: bool = True,
    state_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Convolution and scan of the projected input [batch, time, z | x B C | dt] -> [batch, time, heads * p]."""
    if rmsnorm_weight is not None or outproj_weight is not None:
        raise NotImplementedError("the fused norm and output projection are not rehearsed")
    heads = D.shape[0]
    inner = heads * (headdim or D.shape[1])
    state = (zxbcdt.shape[-1] - 2 * inner - heads) // (2 * ngroups)
    z, xBC, dt = torch.split(zxbcdt, [inner, inner + 2 * ngroups * state, heads], dim=-1)
    xBC = causal_conv1d_fn(xBC.transpose(1, 2), conv1d_weight, conv1d_bias, activation=activation).transpose(1, 2)
    x, B, C = torch.split(xBC, [inner, ngroups * state, ngroups * state], dim=-1)
    y = mamba_chunk_scan_combined(
        x.unflatten(-1, (heads, -1)),
        dt,
        A,
        B.unflatten(-1, (ngroups, -1)),
        C.unflatten(-1, (ngroups, -1)),
        chunk_size,
        D=D,
        z=z.unflatten(-1, (heads, -1)),
        dt_bias=dt_bias,
        initial_states=initial_states,
        seq_idx=seq_idx,
        dt_softplus=True,
        dt_limit=dt_limit,
        return_final_states=return_final_states,
    )
    return y.flatten(-2)
