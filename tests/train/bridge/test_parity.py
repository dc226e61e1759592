"""Each field of our recipes, as Megatron-Bridge 0.5.1 resolves them for its own loop, is what we say that they are."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.run.overrides import words
from seatrial.spec.recipe import recipe_names
from tests.recipes import parity
from tests.recipes.parity_names import Equal, Values
from tests.recipes.parity_tables import FORCED, MODELS, PROFILE
from tests.train.bridge.parity_table import DATA, KIND_SETS, RUN_SETS
from tests.train.bridge.resolving import RUNS, ask, plan_of, report_of, resolved, spec_of

pytestmark = pytest.mark.campaign
CASES = [(recipe, kind) for recipe in recipe_names() for kind in RUNS]


def values_of(recipe: str, kind: str) -> Values:
    values = parity.values_of(recipe, RUNS[kind], kind)
    return values | {full.partition(".")[2]: f.value for full, f in spec_of(recipe, kind).fields.items()}


def problem(name: str, value: Any, values: Values) -> str | None:
    if name in RUN_SETS:
        return None if value == RUN_SETS[name] else f"{name}: {value!r}, told {RUN_SETS[name]!r}"
    if name in DATA:
        equal: Equal = DATA[name]
        mine, theirs = equal.ours(values), equal.theirs(value)
        return None if mine == theirs else f"{name}: {theirs!r}, ours {mine!r}"
    return parity.problem(name, value, values)


@pytest.mark.parametrize(("recipe", "kind"), CASES)
def test_every_field_is_accounted_for(recipe: str, kind: str) -> None:
    report, values = resolved(recipe, kind), values_of(recipe, kind)
    assert [found for name, value in report["resolved"].items() if (found := problem(name, value, values))] == []
    assert report["origin"] == "Seatrial's, of the parts of megatron-bridge 0.5.1"
    assert report["findings"] == [], "Bridge warns of nothing"


@pytest.mark.parametrize(("recipe", "kind"), CASES)
def test_what_a_kind_sets_is_seen(recipe: str, kind: str) -> None:
    found, values = resolved(recipe, kind)["resolved"], values_of(recipe, kind)
    assert {theirs: found[theirs] for theirs in KIND_SETS.values()} == {
        theirs: values[ours] for ours, theirs in KIND_SETS.items()
    }
    assert found["model.seq_length"] == found["dataset.sequence_length"] == values["seq_length"] == 4096
    assert found["train.train_iters"] == {"gate": 100, "convergence": 48000}[kind]
    assert found["scheduler.lr_decay_steps"] == 48000 * 512
    assert found["checkpoint.save_interval"] == {"gate": 50, "convergence": 1000}[kind]


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_gate_differs_from_its_convergence_run_in_what_the_kinds_say(recipe: str) -> None:
    gate, convergence = (resolved(recipe, kind)["resolved"] for kind in RUNS)
    assert {name for name in gate if gate[name] != convergence[name]} == {
        "train.train_iters", "checkpoint.save_interval", "scheduler.wd_incr_steps", "comm_overlap.data_parallel_size"
    } & gate.keys()  # fmt: skip


@pytest.mark.parametrize(("model", "run"), parity.RUNS)
def test_the_recipes_are_the_public_ones(model: str, run: str) -> None:
    """Without our kinds, with what upstream forced: each field as it was resolved at 987244934."""
    public = parity.upstream(model, run)
    forced = {
        "train.train_iters": FORCED[run]["schedule.train_iters"], "train.micro_batch_size": 2,
        "train.global_batch_size": 512, "scheduler.lr_warmup_iters": FORCED[run]["schedule.lr_warmup_iters"],
        "model.vocab_size": public["model.vocab_size"],
        # for our policy: mock data by name, and a loop that listens
        "dataset.mock": True, "train.exit_signal_handler": True,
    }  # fmt: skip
    spec = spec_of(MODELS[model], "gate" if run == "gate8" else "convergence")
    assert spec.bridge is not None
    plan = {"bridge": {"recipe": spec.bridge["recipe"], "overrides": words(forced)}, "world_size": spec.world_size}
    found = report_of(plan)["resolved"]
    assert found.keys() == public.keys()
    here = {"checkpoint.save", "checkpoint.load", "logger.tensorboard_dir", "train.exit_signal_handler"}
    assert {name for name in found if not _same(found[name], public[name])} == here
    assert PROFILE[run] == RUNS["gate" if run == "gate8" else "convergence"]


def _same(mine: Any, theirs: Any) -> bool:
    """Equal, whatever the address of a function was."""
    if isinstance(theirs, str) and "<function" in theirs:
        before, _, after = theirs.partition("0x")
        return bool(mine == f"{before}0x{after[after.index('>') :]}")
    return bool(mine == theirs)


@pytest.mark.parametrize("recipe", recipe_names())
def test_an_override_that_breaks_the_policy_is_refused(recipe: str) -> None:
    done = ask(plan_of(spec_of(recipe, "gate"), more={"model.cuda_graph_impl": "transformer_engine"}))
    assert done.returncode == 2
    assert "model.cuda_graph_impl" in done.stderr and "Traceback" not in done.stderr


def test_a_wrong_value_is_a_problem() -> None:
    values = values_of("qwen35_9b_gb200", "gate")
    assert problem("model.hidden_size", 5120, values)
    assert problem("checkpoint.save", "/elsewhere", values)
    assert problem("dataset.blend", None, values)
    assert problem("train.brand_new", 1, values)
