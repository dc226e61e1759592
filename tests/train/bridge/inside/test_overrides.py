"""Our words through Megatron-Bridge's own argument code."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.run.overrides import words
from seatrial.train.bridge import overrides, recipes

ODD = (
    "a b", 'a"b', 'a\\"b', "back\\", "two\\\\", "\\", "ä漢", "${x}", "a=b,c[d]{e}", "1", "true", "null", "it's", "",
    "990,8,2", "tab\t", "nl\nx", "%$#@!*()~`",
)  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_any_text_arrives_as_it_is(text: str, recipe: Any) -> None:
    config = overrides.apply(recipe, words({"checkpoint.save": text, "dataset.data_path": [text, "/b"]}))
    assert (config.checkpoint.save, config.dataset.data_path) == (text, [text, "/b"])


def test_values_keep_their_type(recipe: Any) -> None:
    told = {
        "train.train_iters": 100, "optimizer.adam_eps": 1e-08, "optimizer.lr": 0.0016, "checkpoint.load": None,
        "logger.log_throughput": True, "model.vocab_size": 131072,
    }  # fmt: skip
    config = overrides.apply(recipe, words(told))
    for key, value in told.items():
        section, _, field = key.partition(".")
        found = getattr(getattr(config, section), field)
        assert (found, type(found)) == (value, type(value))


def test_what_overrides_leave_alone_stays(recipe: Any) -> None:
    stack, function = recipe.model.mamba_stack_spec, recipe.model.activation_func
    config = overrides.apply(recipe, words({"train.train_iters": 7}))
    assert (config.model.mamba_stack_spec, config.model.activation_func) == (stack, function)
    assert config.train.exit_signal is signal.SIGTERM


@pytest.mark.parametrize("value", ["SIGUSR2", 12])
def test_the_exit_signal_becomes_one(value: Any, recipe: Any) -> None:
    assert overrides.apply(recipe, words({"train.exit_signal": value})).train.exit_signal is signal.SIGUSR2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("train.train_iter=1", "did you mean 'train.train_iters'"),
        ("trian.train_iters=1", "did you mean 'train.train_iters'"),
        ("dataset.seq_length=1", "dataset.sequence_length"),
        ("+model.new=1", "no KEY=VALUE"),
        ("~model.hidden_size", "no KEY=VALUE"),
        ("model.hidden_size", "no KEY=VALUE"),
        ("mixed_precision.grad_reduce_in_fp32=false", "mixed_precision is a name"),
        ("train.exit_signal=SIGNONE", "no such signal"),
        ("checkpoint.save=[", "refuses the overrides"),
        ("dataset.split=990,8,2", "refuses the overrides"),
    ],
)
def test_a_bad_word_is_one_clear_message(word: str, said: str, recipe: Any) -> None:
    with pytest.raises(SeatrialError) as caught:
        overrides.apply(recipe, [word])
    assert said in str(caught.value) and word.partition("=")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nemotron_3_nano_gb200_pretrain_confg", "did you mean 'nemotron_3_nano_gb200_pretrain_config'"),
        ("qwen35_9b_pretrain", "qwen35_9b_pretrain_config"),
        ("os", "exports no recipe"),
        ("AutoBridge", "exports no recipe"),
    ],
)
def test_an_unknown_recipe_is_one_clear_message(name: str, said: str) -> None:
    with pytest.raises(SeatrialError) as caught:
        recipes.load(name)
    assert said in str(caught.value)


def test_an_exported_recipe_is_the_releases_own() -> None:
    loaded = recipes.load("nemotron_3_nano_pretrain_config")
    assert loaded.origin == "exported by megatron-bridge 0.5.1"
    assert loaded.config.model.tensor_model_parallel_size == 4


def test_a_benchmark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import megatron.bridge.recipes as exported

    def benchmark() -> None: ...

    benchmark.__module__ = "megatron.bridge.perf_recipes.nemotronh"
    monkeypatch.setattr(exported, "nemotron_3_nano_gb200_pretrain_config", benchmark, raising=False)
    with pytest.raises(SeatrialError, match="is a benchmark"):
        recipes.load("nemotron_3_nano_gb200_pretrain_config")


def test_nothing_of_the_environment_is_written_over(recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bridge sets no variable that a recipe of ours supplies, until its process groups are made."""
    import os

    from megatron.bridge.training.config import runtime_config_update

    from seatrial.spec.resolve import resolve

    ours = dict(resolve("nemotron_3_nano_gb200", "gb200-8gpu").environment)
    assert ours["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] == "8" and ours["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    for name, value in (ours | {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}).items():
        monkeypatch.setenv(name, str(value))
    runtime_config_update(overrides.apply(recipe, words({"dataset.mock": True, "model.moe_permute_fusion": False})))
    assert {name: os.environ.get(name) for name in ours} == {name: str(value) for name, value in ours.items()}
