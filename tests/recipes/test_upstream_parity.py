"""Each field of the public upstream recipes is what we pass to Megatron, or stands in a table with its reason.

upstream/*.json: the recipes of Megatron-Bridge at commit 987244934 as its own code resolves them, for 8 GPUs and 100
steps (gate8) and for 64 GPUs and 48,000 steps (conv64); CUDA graphs off for the two Qwen3.5 ones.
"""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from seatrial.spec.owners import RUN_OWNED
from seatrial.spec.resolve import resolve
from seatrial.spec.schema import load_schema
from tests.recipes.parity import DIFFERENT, PINNED, RUNS, difference_of, ours, problem, problems, upstream, values_of
from tests.recipes.parity_names import EQUAL
from tests.recipes.parity_tables import FORCED, INTENDED, MODELS, NULL_IS_UNSET, PROFILE, PROTECTED

FIELDS = {name for model, run in RUNS for name in upstream(model, run)}
ARGUMENTS = load_schema().arguments


@pytest.mark.parametrize(("model", "run"), RUNS)
def test_every_field_is_accounted_for(model: str, run: str) -> None:
    assert list(problems(model, run)) == []


def test_a_new_or_changed_field_is_a_problem() -> None:
    values = ours("qwen35_9b", "conv64")
    assert "in no table" in (problem("model.brand_new_field", None, values) or "")
    assert "ours 4096" in (problem("model.hidden_size", 5120, values) or "")
    assert "Megatron has" in (problem("model.enable_autocast", True, values) or "")
    assert problem("comm_overlap.overlap_grad_reduce", False, values), "a request against what we pass"
    assert problem("dataset.mock", True, {**values, "mock_data": True}), "a difference whose reason is gone"


def test_no_protected_field_is_an_intended_difference() -> None:
    for pattern in PROTECTED:
        assert any(fnmatch(name, pattern) for name in FIELDS), f"{pattern} protects nothing"
        assert [name for name in DIFFERENT if fnmatch(name, pattern)] == [], pattern


def test_each_field_stands_in_one_table_and_each_entry_is_needed() -> None:
    tables = [
        set(EQUAL),
        set(PINNED),
        set(NULL_IS_UNSET),
        *(set(difference.fields) for difference in INTENDED),
    ]
    assert sum(map(len, tables)) == len(set().union(*tables)), "a field stands twice"
    assert set().union(*tables) <= FIELDS, set().union(*tables) - FIELDS
    assert [name for name in PINNED if name.rpartition(".")[2] in ARGUMENTS] == [], "has an argument"
    for name in DIFFERENT:
        key = name.rpartition(".")[2]
        cases = [(upstream(*run)[name], ours(*run)) for run in RUNS if name in upstream(*run)]
        differs = any(difference_of(name, value, values) for value, values in cases)
        assert differs or key in RUN_OWNED, f"{name} is equal: no difference to intend"
    for name in NULL_IS_UNSET:
        assert any(upstream(*run).get(name, 0) is None for run in RUNS), f"{name} is never null"


@pytest.mark.parametrize("name", sorted(n for n in FIELDS if n.rpartition(".")[2] in RUN_OWNED))
def test_what_the_run_owns_is_in_no_recipe(name: str) -> None:
    for recipe in MODELS.values():
        fields = resolve(recipe, "gb200-8gpu").fields
        assert not any(full.endswith(f".{name.rpartition('.')[2]}") for full in fields)


@pytest.mark.parametrize("recipe", MODELS.values())
def test_a_convergence_run_sets_what_upstream_forced(recipe: str) -> None:
    values = values_of(recipe, PROFILE["conv64"], "convergence")
    forced = {key.partition(".")[2]: value for key, value in FORCED["conv64"].items()}
    own = values_of(recipe, PROFILE["conv64"])["micro_batch_size"]
    assert {key: values[key] for key in forced} == forced | {"micro_batch_size": own}
    assert values["seq_length"] == values["max_position_embeddings"] == 4096
    assert values["lr_decay_iters"] == 48000


@pytest.mark.parametrize("recipe", MODELS.values())
def test_a_gate_is_the_beginning_of_the_convergence_run_unlike_upstreams(recipe: str) -> None:
    """Upstream's gate warms up in 10 steps and decays over 100; ours takes the first 100 of the 48,000."""
    gate = values_of(recipe, PROFILE["gate8"], "gate")
    convergence = values_of(recipe, PROFILE["conv64"], "convergence")
    changed = {key for key in gate if gate[key] != convergence[key]}
    assert changed == {"train_iters", "save_interval"}
    assert (gate["train_iters"], gate["lr_warmup_iters"], gate["lr_decay_iters"]) == (100, 480, 48000)


@pytest.mark.parametrize(("model", "run"), RUNS)
def test_data_parallel_size(model: str, run: str) -> None:
    spec = resolve(MODELS[model], PROFILE[run])
    model_parallel = (
        spec.get("tensor_model_parallel_size")
        * spec.get("pipeline_model_parallel_size")
        * spec.get("context_parallel_size")
    )
    assert spec.world_size // model_parallel == upstream(model, run)["comm_overlap.data_parallel_size"]
