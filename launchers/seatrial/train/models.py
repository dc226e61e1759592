"""Which model the arguments name, and the configuration object that Megatron builds it from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SpecTransform = Callable[[Any], Any]


def unchanged(spec: Any) -> Any:
    """The transform of a GPU run: Transformer Engine's spec as it is."""
    return spec


def model_config(args: Any, transform: SpecTransform = unchanged) -> Any:
    """Return the model configuration for parsed arguments.

    A hybrid (``hybrid_layer_pattern``) and a GPT model take the wheel's builders. A GPT model with the gated delta
    net takes ours, because the wheel's refuses it together with multi-token prediction; so does every GPT model whose
    spec a ``transform`` rewrites for the CPU, and every one on a release whose wheel has no builder.
    """
    from megatron.training.argument_utils import hybrid_config_from_args

    from . import release

    if args.hybrid_layer_pattern is not None:
        config = hybrid_config_from_args(args)
        if transform is not unchanged:
            from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec

            config.hybrid_stack_spec = transform(config.hybrid_stack_spec or hybrid_stack_spec)
        return config
    if not release.has_gpt_config():
        from .gpt_older import config_from_args

        return config_from_args(args, None if transform is unchanged else transform)
    from megatron.training.argument_utils import gpt_config_from_args

    if args.experimental_attention_variant is None and transform is unchanged:
        return gpt_config_from_args(args)
    from .gpt_builder import BlockGPTModelConfig

    config = gpt_config_from_args(args, model_config_cls=BlockGPTModelConfig)
    config.spec_transform = transform
    return config
