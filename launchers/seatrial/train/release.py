"""The one place that knows how megatron-core's releases differ. What is there is looked at, no version number is."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from typing import Any


def has_gpt_config() -> bool:
    """Return whether the wheel has a configuration of GPT models (since 0.19)."""
    return importlib.util.find_spec("megatron.training.models.gpt") is not None


def pretrain(container: Any, datasets: Any, step: Any) -> None:
    """Run Megatron's loop. Since 0.19 it builds the model from the container; before, it is given a provider of it."""
    from megatron.core.enums import ModelType
    from megatron.training import pretrain as loop

    kind = ModelType.encoder_or_decoder
    provider = inspect.signature(loop).parameters["model_provider"]
    if provider.default is inspect.Parameter.empty:
        loop(container, datasets, model_provider(container.model), kind, step)
    else:
        loop(container, datasets, kind, step)


def model_provider(config: Any) -> Callable[..., Any]:
    """Return the function that builds one stage of the model that ``config`` describes, and shows it to its hooks."""
    builder = config.get_builder_cls()(config)

    def provide(
        pre_process: bool = True,
        post_process: bool = True,
        vp_stage: int | None = None,
        config: Any = None,
        pg_collection: Any = None,
    ) -> Any:
        stage = builder.build_model(pg_collection, pre_process, post_process, vp_stage)
        for hook in builder._model_config.post_wrap_hooks:
            hook([stage])
        return stage

    return provide
