"""Put the stand-in packages where Megatron imports the real ones from: ``deep_ep``, ``mamba_ssm`` and so on."""

from __future__ import annotations

import importlib.machinery
import sys
import types

from . import deep_ep, fla, mamba

VERSION = "0+seatrial.rehearsal"

# The names that megatron-core 0.19.2 imports, by module.
MODULES: dict[str, dict[str, object]] = {
    "deep_ep": {"HybridEPBuffer": deep_ep.HybridEPBuffer},
    "mamba_ssm": {},
    "mamba_ssm.ops": {},
    "mamba_ssm.ops.triton": {},
    "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": mamba.RMSNorm},
    "mamba_ssm.ops.triton.ssd_combined": {
        "mamba_chunk_scan_combined": mamba.mamba_chunk_scan_combined,
        "mamba_split_conv1d_scan_combined": mamba.mamba_split_conv1d_scan_combined,
    },
    "causal_conv1d": {"causal_conv1d_fn": mamba.causal_conv1d_fn},
    "causal_conv1d.causal_conv1d_varlen": {"causal_conv1d_varlen_states": mamba.causal_conv1d_varlen_states},
    "fla": {},
    "fla.modules": {},
    "fla.modules.convolution": {"causal_conv1d": fla.causal_conv1d},
    "fla.modules.l2norm": {"l2norm": fla.l2norm},
    "fla.ops": {},
    "fla.ops.gated_delta_rule": {"chunk_gated_delta_rule": fla.chunk_gated_delta_rule},
}
FILES = {
    "deep_ep": deep_ep.__file__,
    "mamba_ssm": mamba.__file__,
    "causal_conv1d": mamba.__file__,
    "fla": fla.__file__,
}
# Megatron compares these with the releases that it needs.
VERSIONS = {"mamba_ssm": "2.2.6", "causal_conv1d": "1.5.3"}


def install() -> None:
    """Register the modules, each marked ``stand_in``. The real packages cannot load without CUDA."""
    for name, members in MODULES.items():
        top = name.partition(".")[0]
        module = types.ModuleType(name, f"Seatrial's stand-in for {top} on a CPU.")
        module.__file__ = FILES[top]
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, origin=FILES[top], is_package=True)
        module.__dict__.update(members, __version__=VERSIONS.get(top, VERSION), stand_in=True)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
