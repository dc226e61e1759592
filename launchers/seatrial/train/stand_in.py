"""A declared stand-in for a GPU and Transformer Engine, so that Megatron's validation can be run on any machine.

It answers questions, and computes nothing: what asks for more than a version or a symbol fails as it should.
"""

from __future__ import annotations

from typing import Any

CAPABILITY = (10, 0)
TRANSFORMER_ENGINE = "2.8"  # the oldest that the `gpu` extra admits

# Symbols whose presence the configuration classes ask for, by module of megatron.core.
SYMBOLS = {
    "models.common.embeddings.rope_utils": ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"),
    "transformer.moe.moe_utils": (
        "fused_permute",
        "fused_permute_with_probs",
        "fused_sort_chunks_by_index",
        "fused_sort_chunks_by_index_with_probs",
        "fused_unpermute",
    ),
}


def declare() -> list[str]:
    """Set the stand-in in this process; returns what was stood in, one sentence each. What is real stays."""
    import importlib.util

    import torch
    from megatron.core import utils
    from packaging.version import Version

    declared = []
    cuda: Any = torch.cuda
    if not cuda.is_available():
        cuda.get_device_capability = lambda *_: CAPABILITY
        declared.append(f"GPU of compute capability {CAPABILITY[0]}.{CAPABILITY[1]}")
    if importlib.util.find_spec("transformer_engine") is None:
        utils._te_version = Version(TRANSFORMER_ENGINE)
        declared.append(f"Transformer Engine {TRANSFORMER_ENGINE}")
    for name, symbols in SYMBOLS.items():
        module = importlib.import_module(f"megatron.core.{name}")
        for symbol in symbols:
            if getattr(module, symbol, None) is None:
                setattr(module, symbol, object())
                declared.append(f"{name}.{symbol}")
    return declared
