"""Megatron's arguments as data: types, choices, the positive sense, and the words they render to."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from seatrial.errors import SeatrialError
from seatrial.spec import schema
from seatrial.spec.arguments import arguments
from seatrial.spec.profile import MegatronCore
from seatrial.spec.recipe import recipe_names
from seatrial.spec.resolve import resolve
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
    from seatrial.train.argument_schema import snapshot

    found = json.loads(json.dumps(snapshot()))
    assert found == json.loads((schema._FOLDER / f"megatron-core-{found['megatron_core']}.json").read_text())


def test_every_release_that_a_profile_may_name_has_its_snapshot() -> None:
    shipped = {path.stem.removeprefix("megatron-core-") for path in schema._FOLDER.glob("*.json")}
    assert shipped == set(schema.VERSIONS) == set(get_args(MegatronCore))
    assert all(load_schema(version).version == version for version in schema.VERSIONS)


OLDER = load_schema("0.18.2")


def test_an_older_release_has_its_own_name_for_the_same_thing() -> None:
    key = "moe_flex_dispatcher_num_sms"
    assert SCHEMA.argument(key).render(16) == ["--moe-flex-dispatcher-num-sms", "16"]
    assert OLDER.argument(key).render(16) == ["--moe-hybridep-num-sms", "16"]
    assert OLDER.argument("moe_hybridep_num_sms").render(16) == ["--moe-hybridep-num-sms", "16"]
    assert OLDER.argument("save_optim").render(False) == ["--no-save-optim"]


@pytest.mark.parametrize("recipe", recipe_names())
@pytest.mark.parametrize("kind", ["gate", "convergence"])
@pytest.mark.parametrize("profile", ["gb200-8gpu", "local-cpu"])
def test_an_older_release_gets_the_same_recipe_in_its_own_words(recipe: str, kind: str, profile: str) -> None:
    newer, older = (
        arguments(resolve(recipe, profile, kind, [("profile.megatron_core", version)])) for version in schema.VERSIONS
    )
    assert [word.replace("moe-hybridep-num-sms", "moe-flex-dispatcher-num-sms") for word in older] == newer


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        (("model.mtp_detach_heads", "true"), "no such argument"),
        (("moe.moe_flex_dispatcher_backend", "deepep"), "for moe_flex_dispatcher_backend hybridep alone"),
        (("moe.moe_router_load_balancing_type", "[quantile_balancing]"), "must be one of"),
        (("moe.moe_flex_dispatcher_backend", "ncclep"), "must be one of"),
        (("moe.moe_hybridep_num_sms", "24"), "which is set as well"),
    ],
)
def test_what_an_older_release_cannot_do_is_an_error(setting: tuple[str, str], rule: str) -> None:
    assert resolve("nemotron_3_nano_gb200", "gb200-8gpu", "gate", [setting])
    with pytest.raises(SeatrialError) as caught:
        resolve("nemotron_3_nano_gb200", "gb200-8gpu", "gate", [setting, ("profile.megatron_core", "0.18.2")])
    assert "megatron-core 0.18.2 does not take this" in str(caught.value)
    assert rule in str(caught.value)
