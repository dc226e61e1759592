"""Mixers, optimizer and device shim of the rehearsal against references; and that nothing is installed by import."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from tests.train.harness import ROOT

torch = pytest.importorskip("torch")
from seatrial.train.cpu import adam, device, fla, mamba  # noqa: E402


def recurrence(x: Any, dt: Any, A: Any, B: Any, C: Any) -> Any:
    """h[t] = exp(A dt[t]) h[t-1] + dt[t] B[t] x[t]; y[t] = C[t] h[t]: one step after the other."""
    batch, time, heads, p = x.shape
    B, C = (m.repeat_interleave(heads // m.shape[2], 2) for m in (B, C))
    state = torch.zeros(batch, heads, p, B.shape[-1], dtype=x.dtype)
    out = []
    for t in range(time):
        decay = (A * dt[:, t]).exp()[..., None, None]
        state = state * decay + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
        out.append((state * C[:, t, :, None]).sum(-1))
    return torch.stack(out, 1)


def scan_inputs(time: int) -> list[Any]:
    generator = torch.Generator().manual_seed(time)
    random = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x, dt, A = random(2, time, 4, 8), random(2, time, 4).exp() * 0.2, -random(4).exp()
    return [tensor.requires_grad_() for tensor in (x, dt, A, random(2, time, 2, 16), random(2, time, 2, 16))]


@pytest.mark.parametrize(("time", "chunk"), [(1, 16), (16, 16), (48, 16), (37, 16), (5, 128)])
def test_the_chunked_scan_is_the_recurrence(time: int, chunk: int) -> None:
    ours, theirs = scan_inputs(time), scan_inputs(time)
    y, reference = mamba.chunked_scan(*ours, chunk), recurrence(*theirs)
    torch.testing.assert_close(y, reference, rtol=1e-9, atol=1e-9)
    weight = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    (y * weight).sum().backward()
    (reference * weight).sum().backward()
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-8, atol=1e-8)


def test_the_fused_mamba_form_is_its_parts() -> None:
    heads, p, groups, n, time = 4, 8, 2, 16, 20
    generator = torch.Generator().manual_seed(0)
    random = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    inner, channels = heads * p, heads * p + 2 * groups * n
    z, xBC, dt = random(2, time, inner), random(2, time, channels), random(2, time, heads)
    weight, bias, dt_bias, A, D = (
        random(channels, 4),
        random(channels),
        random(heads),
        -random(heads).exp(),
        random(heads),
    )
    fused = mamba.mamba_split_conv1d_scan_combined(
        torch.cat([z, xBC, dt], -1), weight, bias, dt_bias, A, D, 8, headdim=p, ngroups=groups
    )
    padded = torch.nn.functional.pad(xBC.transpose(1, 2), (3, 0))
    conv = torch.stack([(padded[:, :, t : t + 4] * weight).sum(-1) + bias for t in range(time)], 1)
    x, B, C = torch.nn.functional.silu(conv).split([inner, groups * n, groups * n], -1)
    x = x.unflatten(-1, (heads, p))
    step = torch.nn.functional.softplus(dt + dt_bias)
    y = recurrence(x, step, A, B.unflatten(-1, (groups, n)), C.unflatten(-1, (groups, n))) + x * D[:, None]
    torch.testing.assert_close(fused, y.flatten(-2) * torch.nn.functional.silu(z), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("before", [True, False])
def test_the_gated_norm_is_the_formula(before: bool) -> None:
    x, z = torch.randn(3, 5, 12), torch.randn(3, 5, 12)
    norm = mamba.RMSNorm(12, group_size=4, norm_before_gate=before)
    norm.weight.data.normal_()
    gate = torch.nn.functional.silu(z)
    inner = (x if before else x * gate).view(3, 5, 3, 4)
    scaled = (inner / (inner.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()).view(3, 5, 12) * norm.weight
    torch.testing.assert_close(norm(x, z), scaled * gate if before else scaled)


def test_l2norm_and_convolution_are_the_formulas() -> None:
    x, weight = torch.randn(2, 7, 6), torch.randn(6, 4)
    torch.testing.assert_close(fla.l2norm(x), x / (x.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt())
    padded = torch.nn.functional.pad(x, (0, 0, 3, 0))
    expected = torch.stack([(padded[:, t : t + 4] * weight.T).sum(1) for t in range(7)], 1)
    torch.testing.assert_close(fla.causal_conv1d(x, weight)[0], expected)


@pytest.mark.parametrize("weight_decay", [0.0, 0.033])
def test_the_optimizer_is_torchs_adamw_with_the_engines_state(weight_decay: float) -> None:
    def parameters() -> list[Any]:
        return [torch.nn.Parameter(torch.randn(4, 3, generator=torch.Generator().manual_seed(i))) for i in range(3)]

    options: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": weight_decay}
    ours, theirs = parameters(), parameters()
    mine, reference = adam.FusedAdam(ours, **options), torch.optim.AdamW(theirs, **options)
    for step in range(5):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(step))
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert mine.param_groups[0]["step"] == 5
    assert set(mine.state[ours[0]]) == {"exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("cuda", "cpu"),
        ("cuda:3", "cpu"),
        (0, "cpu"),
        (torch.device("cuda", 1), "cpu"),
        ("cpu", "cpu"),
        ("meta", "meta"),
    ],
)
def test_every_name_of_a_cuda_device_is_the_cpu(named: Any, expected: str) -> None:
    assert str(device.on_cpu(named)) == expected


def test_a_rehearsal_refuses_a_visible_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(SeatrialError, match="visible GPU") as caught:
        device.refuse_gpu()
    assert "CUDA_VISIBLE_DEVICES" in str(caught.value)


def test_importing_changes_nothing() -> None:
    code = """
import sys, torch
import torch.distributed as dist
names = [(torch, "zeros"), (torch.cuda, "is_available"), (torch.Tensor, "type"), (dist, "all_reduce")]
before = [getattr(owner, name) for owner, name in names]
from seatrial.train import cpu, engine, evidence, forward, rank
from seatrial.train.cpu import adam, deep_ep, device, fla, gloo, mamba, packages
print(before == [getattr(owner, name) for owner, name in names], "deep_ep" in sys.modules, "megatron" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "launchers")},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["True", "False", "False"], done.stderr
