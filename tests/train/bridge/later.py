"""``python -m tests.train.bridge.later NAME``: a recipe of the next release, resolved, as one JSON object.

It asks a hub for the models' configurations, which are given to it here.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

NANO = {
    "vocab_size": 131072, "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_key_value_heads": 2,
    "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
    "intermediate_size": 1856, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
    "n_routed_experts": 128, "num_experts_per_tok": 6, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5,
    "norm_topk_prob": True, "mlp_hidden_act": "relu2", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    "chunk_size": 128, "conv_kernel": 4, "expand": 2, "n_shared_experts": 1,
}  # fmt: skip


def give_configurations() -> None:
    """Let the recipes find the models' configurations without a hub."""
    from megatron.bridge import AutoBridge

    from seatrial.train.bridge import text_recipes

    transformers: Any = importlib.import_module("transformers")
    recipes = "megatron.bridge.recipes"
    qwen: Any = importlib.import_module(f"{recipes}.qwen.gb200.qwen35")
    nano: Any = importlib.import_module(f"{recipes}.nemotronh.gb200.nemotron_3_nano")

    def published(name: str) -> SimpleNamespace:
        moe = "35B" in name
        make = transformers.Qwen3_5MoeTextConfig if moe else transformers.Qwen3_5TextConfig
        dimensions = text_recipes._QWEN_35B_A3B if moe else text_recipes._QWEN_9B
        return SimpleNamespace(text_config=make(**text_recipes._QWEN_PUBLISHED, **dimensions))

    def hybrid(name: str) -> Any:
        config = transformers.NemotronHConfig(**NANO)
        config.architectures = ["NemotronHForCausalLM"]
        return AutoBridge.from_hf_config(config)

    qwen.AutoConfig = SimpleNamespace(from_pretrained=published)
    nano.AutoBridge = SimpleNamespace(from_hf_pretrained=hybrid)


def main(name: str, overrides: list[str]) -> dict[str, Any]:
    """Return what the recipe is before our overrides (``own``), and what is made of it with them."""
    os.environ.update(RANK="0", WORLD_SIZE="64", LOCAL_RANK="0", HF_HUB_OFFLINE="1")
    from seatrial.train.bridge import stand_in

    stand_in.declare()
    give_configurations()
    from megatron.bridge.training.config import runtime_config_update

    from seatrial.train.bridge import flat, recipes
    from seatrial.train.bridge import overrides as words

    loaded = recipes.load(name)
    own = flat.flat(loaded.config)
    config = words.apply(loaded.config, overrides)
    runtime_config_update(config)
    return {"origin": loaded.origin, "own": own, "resolved": flat.flat(config)}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        report = main(sys.argv[1], sys.argv[2:])
    print(json.dumps(report))
