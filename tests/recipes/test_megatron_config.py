"""What Megatron-Core itself makes of our arguments, held against upstream: its parser, validation and config classes.

No GPU is needed: the compute capability and the symbols of Transformer Engine's fused kernels are stand-ins here.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from seatrial.spec.arguments import arguments
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.recipes.parity import DIFFERENT, RUNS, upstream
from tests.recipes.parity_names import EQUAL
from tests.recipes.parity_tables import BRIDGE_ONLY, CORE_DEFAULT, FORCED, MODELS, NULL_IS_UNSET, PROFILE
from tests.train.harness import MEGATRON_CORE

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("megatron.training", reason="needs megatron-core")

# Fields whose form differs in Megatron's config classes as it does on the command line.
THEIR_FORM = {
    name: EQUAL[name].theirs
    for name in (
        "model.attention_backend",
        "model.init_method",
        "model.embedding_init_method",
        "model.output_layer_init_method",
        "model.mtp_num_layers",
    )
}
RENAMED_HERE = {"moe_flex_dispatcher_num_sms": "moe_hybridep_num_sms"} if MEGATRON_CORE.startswith("0.18.") else {}
OUR_FORM = {"model.use_cpu_initialization": bool}
RELEASE = ("profile.megatron_core", MEGATRON_CORE)
# Since 0.19 Megatron's config keeps this name unset; the number of SMs arrives under the new one.
RENAMED = {} if MEGATRON_CORE.startswith("0.18.") else {"model.moe_hybridep_num_sms": "moe_flex_dispatcher_num_sms"}


@pytest.fixture(scope="module", autouse=True)
def stand_ins() -> Iterator[None]:
    import torch
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer.moe import moe_utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_capability", lambda *_: (10, 0))
        patch.setattr(rope_utils, "fused_apply_rotary_pos_emb", object())
        for name in ("permute", "sort_chunks_by_index"):
            patch.setattr(moe_utils, f"fused_{name}", object())
            patch.setattr(moe_utils, f"fused_{name}_with_probs", object())
        patch.setattr(moe_utils, "fused_unpermute", object())
        yield


def parsed(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return Megatron's validated arguments for a run."""
    from megatron.training.arguments import parse_args, validate_args

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(spec.world_size))
    monkeypatch.setattr(sys, "argv", ["pretrain", *arguments(spec)])
    return validate_args(parse_args())


def _plain(value: Any) -> Any:
    """Bring a value of a config object into the form that upstream's dump has."""
    import enum

    import torch

    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, functools.partial):
        return value.keywords["std"]
    if isinstance(value, tuple):
        return list(value)
    return getattr(value, "__name__", value) if callable(value) else value


@pytest.mark.parametrize(("model", "run"), RUNS)
def test_megatrons_config_is_upstreams(model: str, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from megatron.training.argument_utils import core_transformer_config_from_args
    from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config

    forced = [(key, str(value)) for key, value in FORCED[run].items()]
    args = parsed(resolve(MODELS[model], PROFILE[run], None, [*forced, RELEASE]), monkeypatch)
    configs = {
        "model": core_transformer_config_from_args(args),
        "ddp": get_megatron_ddp_config(args),
        "optimizer": get_megatron_optimizer_config(args)[0],
    }
    compared, wrong = 0, []
    for name, value in upstream(model, run).items():
        section, _, key = name.partition(".")
        key = RENAMED.get(name, key)
        if section not in configs or not hasattr(configs[section], key) or name in DIFFERENT:
            continue
        if name in NULL_IS_UNSET and value is None:
            continue
        mine = OUR_FORM.get(name, _plain)(getattr(configs[section], key))
        theirs = THEIR_FORM.get(name, lambda v: v)(value)
        compared += 1
        if mine != (pytest.approx(theirs) if isinstance(theirs, float) else theirs):
            wrong.append(f"{name}: upstream {theirs!r}, Megatron makes {mine!r} of our arguments")
    assert wrong == []
    assert compared > 300


@pytest.mark.parametrize("recipe", MODELS.values())
@pytest.mark.parametrize(
    ("profile", "kind"), [("gb200-8gpu", "gate"), ("gb200-64gpu", "convergence"), ("local-cpu", "gate")]
)
def test_megatron_accepts_every_run(recipe: str, profile: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = resolve(recipe, profile, kind, [RELEASE])
    args = parsed(spec, monkeypatch)
    assert args.weight_decay == args.start_weight_decay == args.end_weight_decay == 0.033
    assert (args.cuda_graph_impl, args.te_rng_tracker) == ("none", False)
    for full, field in spec.fields.items():
        key = full.partition(".")[2]
        key = RENAMED_HERE.get(key, key)
        parsed_value = not getattr(args, f"no_{key}") if hasattr(args, f"no_{key}") else getattr(args, key)
        if field.value is not None:
            assert _plain(parsed_value) == field.value, full


def _defaults(section: str) -> dict[str, Any]:
    """Return the defaults of the config classes that stand for an upstream section."""
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.transformer_config import TransformerConfig
    from megatron.training import config
    from megatron.training.models.gpt import GPTModelConfig
    from megatron.training.models.hybrid import HybridModelConfig

    classes: dict[str, tuple[type, ...]] = {
        "model": (TransformerConfig, GPTModelConfig, HybridModelConfig),
        "mixed_precision": (TransformerConfig,),
        "ddp": (DistributedDataParallelConfig,),
        "optimizer": (OptimizerConfig,),
        "dataset": (GPTDatasetConfig,),
    }
    training = tuple(getattr(config, name) for name in dir(config) if name.endswith("Config"))
    fields = (field for cls in classes.get(section, training) for field in dataclasses.fields(cls))
    return {field.name: field.default for field in fields}


@pytest.mark.parametrize("section", CORE_DEFAULT)
def test_what_has_no_argument_is_megatrons_own_default(section: str) -> None:
    defaults = _defaults(section)
    assert {key: defaults.get(key, "no such field") for key in CORE_DEFAULT[section]} == CORE_DEFAULT[section]


def test_what_only_bridge_has_is_in_no_config_of_megatron() -> None:
    for name in BRIDGE_ONLY:
        section, _, key = name.partition(".")
        assert not key or key not in _defaults(section), f"{name} is Megatron's too"
