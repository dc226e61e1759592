"""A Megatron-Bridge recipe by its name: the one that the installed release exports, else one of ours of that name."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.run import releases

from . import text_recipes

PACKAGE = "megatron-bridge"
LINE = "0.5"
_ENDING = "_pretrain_config"
# Ours -> the name that 0.6 exports the same recipe under.
_LATER = {
    "qwen35_9b_pretrain_config": "qwen35_text_9b_pretrain_config",
    "qwen35_35b_a3b_pretrain_config": "qwen35_text_35b_a3b_pretrain_config",
}


class Loaded(NamedTuple):
    """A recipe's configuration, and where it came from in words."""

    config: Any
    origin: str


def release() -> str:
    """Return the installed release; of a source tree without metadata, what the package says of itself."""
    there = releases.installed(PACKAGE)
    if there is not None:
        return there
    from megatron import bridge

    return str(bridge.__version__)


def load(name: str) -> Loaded:
    """Return the configuration of recipe ``name``.

    Only ``megatron.bridge.recipes`` is asked. From 0.6 on ``perf_recipes`` exports some of the same names for
    benchmarks, with mock data and balanced routing by force; nothing is ever taken from there.

    Raises:
        SeatrialError: neither the installed release nor we have it, or it cannot be built without arguments.
    """
    from megatron.bridge import recipes

    installed = release()
    for there in (name, _LATER.get(name, name)):
        exported = getattr(recipes, there, None)
        if _is_recipe(exported):
            _refuse_benchmark(there, exported)
            words = "" if there == name else f" as {there}"
            return Loaded(_built(there, exported), f"exported by {PACKAGE} {installed}{words}")
    if name in text_recipes.RECIPES and installed.startswith(f"{LINE}."):
        return Loaded(text_recipes.RECIPES[name](), f"Seatrial's, of the parts of {PACKAGE} {installed}")
    known = {other for other, value in vars(recipes).items() if other.endswith("_config") and _is_recipe(value)}
    raise SeatrialError(
        f"{PACKAGE} {installed} exports no recipe {name!r}",
        key="bridge.recipe",
        value=name,
        rule="a function that megatron.bridge.recipes exports, without arguments",
        fix=did_you_mean(name, (known | set(text_recipes.RECIPES)), otherwise=f"one that ends in {_ENDING}"),
    )


def _is_recipe(value: Any) -> bool:
    return inspect.isfunction(value) and value.__module__.startswith("megatron.bridge.")


def _refuse_benchmark(name: str, function: Any) -> None:
    if ".perf_recipes" in function.__module__:
        raise SeatrialError(
            f"{name} is a benchmark of {function.__module__}", key="bridge.recipe", value=name,
            rule="a library recipe: a benchmark takes mock data and balances the experts by force",
            fix="the name without _8gpu_gb200_bf16, such as nemotron_3_nano_gb200_pretrain_config",
        )  # fmt: skip


def _built(name: str, function: Any) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise SeatrialError(f"recipe {name} needs arguments: {error}", key="bridge.recipe", value=name) from error
    return function()
