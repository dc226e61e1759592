"""What must hold of a resolved ConfigContainer before a rank trains with it: HybridEP, eager, real data, vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from seatrial.errors import SeatrialError


class Breach(NamedTuple):
    """A key whose value must not stand, the rule, and what to do."""

    key: str
    value: Any
    rule: str
    fix: str


def require_policy(config: Any) -> None:
    """Raise :class:`SeatrialError` for the first breach; before and after Bridge's own changes at run time."""
    for breach in breaches(config):
        raise SeatrialError(
            "this configuration is not what a run of ours may train", key=breach.key, value=breach.value,
            rule=breach.rule, fix=breach.fix,
        )  # fmt: skip


def breaches(config: Any) -> Iterator[Breach]:
    """Yield what is wrong, in a fixed order. Pure."""
    yield from _graphs(config)
    if config.model.num_moe_experts:
        yield from _experts(config.model)
    yield from _data(config)
    yield from _vocabulary(config)
    yield from _loop(config)


def _graphs(config: Any) -> Iterator[Breach]:
    if config.model.cuda_graph_impl != "none":
        yield Breach(
            "model.cuda_graph_impl", config.model.cuda_graph_impl,
            "no CUDA graphs: eager is what a gate of ours proves", "model.cuda_graph_impl=none",
        )  # fmt: skip
    for key, section in (("model.use_te_rng_tracker", config.model), ("rng.te_rng_tracker", config.rng)):
        if getattr(section, key.partition(".")[2]):
            yield Breach(
                key, True, "Transformer Engine's random streams are for graphs only, and change all others",
                "model.use_te_rng_tracker=false rng.te_rng_tracker=false",
            )  # fmt: skip


def _experts(model: Any) -> Iterator[Breach]:
    if model.moe_token_dispatcher_type != "flex":
        yield Breach(
            "model.moe_token_dispatcher_type", model.moe_token_dispatcher_type, "HybridEP dispatches the tokens",
            "model.moe_token_dispatcher_type=flex model.moe_flex_dispatcher_backend=hybridep",
        )  # fmt: skip
    elif model.moe_flex_dispatcher_backend != "hybridep":
        yield Breach(
            "model.moe_flex_dispatcher_backend", model.moe_flex_dispatcher_backend, "HybridEP dispatches the tokens",
            "model.moe_flex_dispatcher_backend=hybridep",
        )  # fmt: skip
    if model.num_moe_experts % model.expert_model_parallel_size:
        yield Breach(
            "model.expert_model_parallel_size", model.expert_model_parallel_size,
            f"a divisor of the {model.num_moe_experts} experts", "model.expert_model_parallel_size=8",
        )  # fmt: skip
    if model.moe_router_force_load_balancing:
        yield Breach(
            "model.moe_router_force_load_balancing", True, "the router is learned; balance by force is for benchmarks",
            "model.moe_router_force_load_balancing=false, or another recipe than a benchmark's",
        )  # fmt: skip


def _data(config: Any) -> Iterator[Breach]:
    data = config.dataset
    named = any(getattr(data, name, None) for name in ("data_path", "blend", "blend_per_split"))
    if not named and not asks_for_mock(config):
        yield Breach(
            "dataset.data_path", None, "Bridge trains on mock data where none is named; we do so only if asked to",
            "data.data_path, or data.mock_data: true",
        )  # fmt: skip


def asks_for_mock(config: Any) -> bool:
    """Whether mock data are asked for by name. Later Bridge sets the same field by itself: ask before ``validate``."""
    return bool(getattr(config.dataset, "mock", False))


def _vocabulary(config: Any) -> Iterator[Breach]:
    size = config.model.vocab_size
    if size is None:
        yield Breach(
            "model.vocab_size", None,
            "said, or it follows whatever tokenizer is there, and checkpoints of two tokenizers do not fit",
            "model.padded_vocab_size in the recipe",
        )  # fmt: skip
    elif getattr(config.tokenizer, "use_tokenizer_vocab_size", False):  # from 0.6 on, and on by default there
        yield Breach(
            "tokenizer.use_tokenizer_vocab_size", True, "the model's vocabulary counts, not the tokenizer's",
            "tokenizer.use_tokenizer_vocab_size=false",
        )  # fmt: skip
    elif size % config.model.tensor_model_parallel_size:
        yield Breach(
            "model.vocab_size", size, "a multiple of the tensor parallel size: a size that is said is not padded",
            "model.padded_vocab_size in the recipe",
        )  # fmt: skip


def _loop(config: Any) -> Iterator[Breach]:
    if not config.train.exit_signal_handler:
        yield Breach(
            "train.exit_signal_handler", config.train.exit_signal_handler,
            "the loop listens to the signal that asks it to save and end", "train.exit_signal_handler=true",
        )  # fmt: skip
    if config.inprocess_restart is not None and config.inprocess_restart.enabled:
        yield Breach(
            "inprocess_restart.enabled", True, "restarts are the supervisor's", "inprocess_restart.enabled=false"
        )
    if config.ft is not None and config.ft.enable_ft_package:
        yield Breach("ft.enable_ft_package", True, "hangs are the supervisor's", "ft.enable_ft_package=false")
