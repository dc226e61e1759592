"""The Megatron-Bridge engine on the login node: what it is told, and what cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm.admission_identity import curve_identity, identity
from seatrial.spec.bridge import ALWAYS, KEYS
from seatrial.spec.owners import BRIDGE_RUN_OWNED, RUN_CONTROLS
from seatrial.spec.recipe import recipe_names
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from seatrial.spec.schema import load_schema

BRIDGE = ("engine", "megatron-bridge")


def told(spec: RunSpec) -> dict[str, str]:
    assert spec.bridge is not None
    return dict(word.split("=", 1) for word in spec.bridge["overrides"])


@pytest.mark.parametrize("recipe", recipe_names())
@pytest.mark.parametrize(
    ("kind", "profile", "expected"),
    [
        ("gate", "gb200-8gpu", {"train.train_iters": "100", "checkpoint.save_interval": "50"}),
        ("convergence", "gb200-64gpu", {"train.train_iters": "48000", "checkpoint.save_interval": "1000"}),
    ],
)
def test_the_kind_reaches_the_ranks(recipe: str, kind: str, profile: str, expected: dict[str, str]) -> None:
    spec = resolve(recipe, profile, kind, [BRIDGE])
    common = {
        "train.global_batch_size": "512", "dataset.sequence_length": "4096", "model.seq_length": "4096",
        "scheduler.lr_decay_iters": "48000", "scheduler.lr_warmup_iters": "480", "logger.log_interval": "1",
        "validation.eval_interval": "800", "validation.eval_iters": "32", "model.cuda_graph_impl": '"none"',
        "rng.te_rng_tracker": "false", "model.use_te_rng_tracker": "false",
    }  # fmt: skip
    found = told(spec)
    assert (common | expected).items() <= found.items()
    moe = bool(spec.get("num_experts"))
    assert (found.get("model.moe_flex_dispatcher_backend") == '"hybridep"') is moe
    assert found["model.expert_model_parallel_size"] == ("8" if moe else "1")
    assert int(found["model.vocab_size"]) == spec.get("padded_vocab_size")
    assert not set(found) & BRIDGE_RUN_OWNED
    assert RunSpec.from_json(spec.to_json()) == spec


def test_a_rehearsal_is_shrunk_there_too() -> None:
    found = told(resolve("nemotron_3_nano_gb200", "local-cpu", "gate", [BRIDGE]))
    assert found.items() >= {
        "model.hybrid_layer_pattern": '"MEM*EME"', "model.num_layers": "7", "model.num_moe_experts": "16",
        "model.mamba_num_heads": "4", "tokenizer.tokenizer_type": '"NullTokenizer"', "train.micro_batch_size": "2",
    }.items()  # fmt: skip


def test_without_the_engine_nothing_is_told() -> None:
    assert resolve("qwen35_9b_gb200", "gb200-8gpu", "gate").bridge is None


def test_a_recipe_names_its_engine(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "extends: nemotron_3_nano_gb200\nengine: megatron-bridge\n"
        "bridge:\n  recipe: my_config\n  overrides:\n    model.moe_router_fusion: true\n"
    )
    spec = resolve(
        str(recipe), "gb200-8gpu", "gate", [("optimizer.lr", "0.001"), ("bridge.model.init_method_std", "0.02")]
    )
    assert spec.bridge is not None
    assert spec.bridge["recipe"] == "my_config"
    assert told(spec).items() >= {
        "model.moe_router_fusion": "true", "optimizer.lr": "0.001", "model.init_method_std": "0.02",
    }.items()  # fmt: skip
    assert resolve(str(recipe), "local-cpu", "gate", [("engine", "megatron-core")]).bridge is None


@pytest.mark.parametrize(
    ("profile", "settings", "words"),
    [
        ("gb200-8gpu", [("engine", "megatron-brige")], ("did you mean 'megatron-bridge'",)),
        ("gb200-8gpu", [BRIDGE, ("bridge.recipe", "a-b")], ("megatron.bridge.recipes exports",)),
        ("gb200-8gpu", [BRIDGE, ("bridge.train_iters", "7")], ("section.field",)),
        ("gb200-8gpu", [BRIDGE, ("bridge.checkpoint.save", "/x")], ("set by the run itself",)),
        ("gb200-8gpu", [BRIDGE, ("model.squared_relu", "false")], ("no override for 'squared_relu'", "bridge.SECTION")),
        ("gb200-8gpu", [("bridge", "x")], ("unknown key 'bridge'", "bridge.recipe")),
    ],
)
def test_what_cannot_be_told_is_an_error(profile: str, settings: list[tuple[str, str]], words: tuple[str, ...]) -> None:
    with pytest.raises(SeatrialError) as caught:
        resolve("nemotron_3_nano_gb200", profile, "gate", settings)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("block", "line", "words"),
    [
        ("engine: bridge", 2, "one of megatron-core, megatron-bridge"),
        ("bridge:\n  recipes: x", 3, "did you mean 'recipe'"),
        ("bridge:\n  overrides: x", 3, "must be a mapping"),
        ("bridge:\n  overrides:\n    save: x", 4, "section.field"),
        ("bridge: [a]", 2, "must be a mapping"),
    ],
)
def test_a_wrong_block_names_its_line(block: str, line: int, words: str, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"extends: nemotron_3_nano_gb200\n{block}\n")
    with pytest.raises(SeatrialError) as caught:
        resolve(str(recipe), "gb200-8gpu", "gate")
    assert f"mine.yaml:{line}" in str(caught.value)
    assert words in str(caught.value)


def test_a_gate_of_one_engine_admits_no_run_of_the_other() -> None:
    recipe, profile = "nemotron_3_nano_gb200", "gb200-8gpu"
    core, gate, run, other = (
        resolve(recipe, profile, kind, settings)
        for kind, settings in (
            ("gate", []), ("gate", [BRIDGE]), ("convergence", [BRIDGE]), ("gate", [BRIDGE, ("bridge.recipe", "other")]),
        )
    )  # fmt: skip
    assert identity(core) != identity(gate) == identity(run) != identity(other)
    assert len({curve_identity(spec) for spec in (core, gate, other)}) == 3
    assert curve_identity(gate) == curve_identity(run)


def test_what_may_be_told_is_known_to_megatron_and_each_key_once() -> None:
    known = load_schema().arguments
    assert set(KEYS) <= set(known)
    assert set(KEYS) >= ALWAYS
    assert set(KEYS) >= RUN_CONTROLS
    keys = [key for some in KEYS.values() for key in some]
    assert len(keys) == len(set(keys))
    assert not set(keys) & BRIDGE_RUN_OWNED
