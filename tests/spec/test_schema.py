"""Megatron's arguments as data: types, choices, the positive sense, and the words they render to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.spec.schema import load_schema

SCHEMA = load_schema()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num_layers", 52, ["--num-layers", "52"]),
        ("lr", 1.6e-3, ["--lr", "0.0016"]),
        ("lr", 1e-20, ["--lr", "1e-20"]),
        ("bf16", True, ["--bf16"]),
        ("bf16", False, []),
        ("add_bias_linear", False, ["--disable-bias-linear"]),
        ("add_bias_linear", True, []),
        ("apply_rope_fusion", False, ["--no-rope-fusion"]),
        ("persist_layer_norm", False, ["--no-persist-layer-norm"]),
        ("persist_layer_norm", True, []),
        ("save_optim", False, ["--no-save-optim"]),
        ("rl_use_sequence_packing", False, ["--no-rl-use-sequence-packing"]),
        ("rl_use_sequence_packing", True, ["--rl-use-sequence-packing"]),
        ("data_path", ["0.3", "/a", "0.7", "/b c"], ["--data-path", "0.3", "/a", "0.7", "/b c"]),
        ("data_path", None, []),
        ("attention_backend", "fused", ["--attention-backend", "fused"]),
        ("wgrad_deferral_limit", -1, ["--wgrad-deferral-limit=-1"]),
        ("moe_aux_loss_coeff", 1e-4, ["--moe-aux-loss-coeff", "0.0001"]),
    ],
)
def test_render(key: str, value: Any, words: list[str]) -> None:
    argument = SCHEMA.argument(key)
    assert argument.problem(value) is None
    assert argument.render(value) == words


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("num_layers", "many", "whole number"),
        ("num_layers", 3.5, "whole number"),
        ("num_layers", True, "type int"),
        ("lr", "1e-3", "a number"),
        ("bf16", 1, "true or false"),
        ("bf16", "yes", "true or false"),
        ("split", 100, "quotes"),
        ("cuda_graph_impl", "nonee", "did you mean 'none'?"),
        ("moe_router_load_balancing_type", ["aux_loss", "aux"], "one of"),
        ("data_path", [["a"]], "type str"),
        ("lr_decay_style", None, "cannot be unset"),
        ("recompute_modules", [], "at least one"),
    ],
)
def test_wrong_values_are_refused(key: str, value: Any, rule: str) -> None:
    problem = SCHEMA.argument(key).problem(value)
    assert problem is not None
    assert rule in problem


@pytest.mark.parametrize(
    ("key", "fix"),
    [("num_layer", "num_layers"), ("no_save_optim", "save_optim"), ("moe_router_topkk", "moe_router_topk")],
)
def test_unknown_keys_name_the_nearest(key: str, fix: str) -> None:
    with pytest.raises(SeatrialError) as caught:
        SCHEMA.argument(key, file="x.yaml", line=7)
    assert "x.yaml:7" in str(caught.value)
    assert repr(fix) in str(caught.value)


@pytest.mark.train
def test_the_shipped_snapshot_is_the_installed_megatron(tmp_path: Any) -> None:
    from seatrial.spec import schema
    from seatrial.train.argument_schema import snapshot

    shipped = json.loads((schema._FOLDER / f"megatron-core-{schema.DEFAULT_VERSION}.json").read_text())
    assert json.loads(json.dumps(snapshot())) == shipped
