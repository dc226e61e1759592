"""What must hold of a configuration before a rank trains with it; plain data, without Megatron-Bridge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.train.bridge import data, flat, policy
from seatrial.train.bridge.text_recipes import RECIPES
from tests.train.bridge.rehearsing import name_of

GOOD = {
    "model.cuda_graph_impl": "none", "model.use_te_rng_tracker": False, "model.num_moe_experts": 128,
    "model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "hybridep",
    "model.expert_model_parallel_size": 8, "model.moe_router_force_load_balancing": False,
    "model.vocab_size": 131072, "model.tensor_model_parallel_size": 1, "rng.te_rng_tracker": False,
    "dataset.data_path": ["/data"], "dataset.blend": None, "dataset.blend_per_split": None, "dataset.mock": False,
    "tokenizer.tokenizer_type": "HuggingFaceTokenizer", "train.exit_signal_handler": True,
    "inprocess_restart": None, "ft": None,
}  # fmt: skip


def config(**changed: Any) -> SimpleNamespace:
    sections: dict[str, Any] = {}
    for key, value in {**GOOD, **{key.replace("__", "."): value for key, value in changed.items()}}.items():
        section, dot, field = key.partition(".")
        if not dot:
            sections[section] = value
        else:
            if not isinstance(sections.get(section), SimpleNamespace):
                sections[section] = SimpleNamespace()
            setattr(sections[section], field, value)
    return SimpleNamespace(**sections)


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"model__cuda_graph_impl": "transformer_engine"}, "model.cuda_graph_impl"),
        ({"model__use_te_rng_tracker": True}, "model.use_te_rng_tracker"),
        ({"rng__te_rng_tracker": True}, "rng.te_rng_tracker"),
        ({"model__moe_token_dispatcher_type": "alltoall"}, "model.moe_token_dispatcher_type"),
        ({"model__moe_flex_dispatcher_backend": "deepep"}, "model.moe_flex_dispatcher_backend"),
        ({"model__expert_model_parallel_size": 48}, "model.expert_model_parallel_size"),
        ({"model__moe_router_force_load_balancing": True}, "model.moe_router_force_load_balancing"),
        ({"dataset__data_path": None}, "dataset.data_path"),
        ({"model__vocab_size": None}, "model.vocab_size"),
        ({"model__vocab_size": 131073, "model__tensor_model_parallel_size": 2}, "model.vocab_size"),
        ({"tokenizer__use_tokenizer_vocab_size": True}, "tokenizer.use_tokenizer_vocab_size"),
        ({"train__exit_signal_handler": False}, "train.exit_signal_handler"),
        ({"inprocess_restart__enabled": True}, "inprocess_restart.enabled"),
        ({"ft__enable_ft_package": True}, "ft.enable_ft_package"),
    ],
)
def test_a_breach_names_key_rule_and_fix(changed: dict[str, Any], key: str) -> None:
    with pytest.raises(SeatrialError) as caught:
        policy.require_policy(config(**changed))
    assert (caught.value.key, bool(caught.value.rule), bool(caught.value.fix)) == (key, True, True)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"model__num_moe_experts": None, "model__moe_token_dispatcher_type": "alltoall"},
        {"dataset__data_path": None, "dataset__mock": True},
        {"dataset__data_path": None, "dataset__blend": [["/data"], None]},
        {"inprocess_restart__enabled": False, "tokenizer__use_tokenizer_vocab_size": False},
    ],
)
def test_what_may_train(changed: dict[str, Any]) -> None:
    assert list(policy.breaches(config(**changed))) == []


def test_datasets_are_sized_for_the_schedule() -> None:
    asked = SimpleNamespace(train=SimpleNamespace(train_iters=100, global_batch_size=512), validation="as it is")
    sized = data.over_schedule(asked, 48000)
    assert (sized.train.train_iters, sized.train.global_batch_size, sized.validation) == (48000, 512, "as it is")
    assert asked.train.train_iters == 100, "the loop's own number of steps stays"
    with pytest.raises(SeatrialError, match="beyond the schedule"):
        data.over_schedule(asked, 99)


def test_each_recipe_of_ours_names_one_that_can_be_had() -> None:
    for recipe in ("nemotron_3_nano_gb200", "qwen35_9b_gb200", "qwen35_35b_a3b_gb200"):
        assert name_of(recipe) in RECIPES


def test_plain_values() -> None:
    from functools import partial
    from signal import SIGUSR2

    assert flat.plain(SIGUSR2) == 12
    assert flat.plain({"a": (1, None, [True])}) == {"a": [1, None, [True]]}
    assert flat.plain(len) == "len"
    assert "0x" in flat.plain(partial(test_plain_values, 1)) and flat.plain(object()) == "object"
