"""resolve: precedence, sources and owners of every field, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.spec.owners import REHEARSAL_MAY_CHANGE, RUN_CONTROLS, RUN_OWNED
from seatrial.spec.recipe import recipe_aliases, recipe_names
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from seatrial.spec.schema import load_schema

NANO, GB200 = "nemotron_3_nano_gb200", "gb200-8gpu"


def test_owners_and_sources() -> None:
    spec = resolve(NANO, GB200, "gate", [("model.num_attention_heads", "64")])
    train_iters = spec.fields["schedule.train_iters"]
    assert (train_iters.value, train_iters.owner, train_iters.recipe_value) == (100, "kind", 39735)
    assert train_iters.source.startswith("gate.yaml:")
    heads = spec.fields["model.num_attention_heads"]
    assert (heads.value, heads.owner, heads.source, heads.changed) == (64, "recipe", "command line", True)
    assert spec.fields["moe.num_experts"].source.startswith("nemotron_3_nano_gb200.yaml:")


def test_a_gate_is_the_start_of_the_convergence_run() -> None:
    for recipe in recipe_names():
        gate, run = (resolve(recipe, GB200, kind).fields for kind in ("gate", "convergence"))
        different = {key for key in gate if gate[key].value != run[key].value}
        assert different == {"schedule.train_iters", "checkpoint.save_interval"}
        assert gate["schedule.lr_decay_iters"].value == 48_000


def test_kinds_change_run_controls_only() -> None:
    for recipe in recipe_names():
        for kind in ("gate", "convergence"):
            changed = {key.partition(".")[2] for key, f in resolve(recipe, GB200, kind).fields.items() if f.changed}
            assert changed <= RUN_CONTROLS


def test_a_rehearsal_changes_only_what_it_may() -> None:
    for recipe in recipe_names():
        hardware, rehearsed = (resolve(recipe, p, "gate").fields for p in (GB200, "local-cpu"))
        different = {
            key.partition(".")[2]
            for key in rehearsed
            if key not in hardware or hardware[key].value != rehearsed[key].value
        }
        assert different
        assert different <= REHEARSAL_MAY_CHANGE


def test_the_owners_overlap_only_where_a_rehearsal_shrinks_a_control() -> None:
    assert not RUN_OWNED & (RUN_CONTROLS | REHEARSAL_MAY_CHANGE)
    shrunk = {"seq_length", "max_position_embeddings", "global_batch_size", "eval_iters"}
    assert shrunk == RUN_CONTROLS & REHEARSAL_MAY_CHANGE


def test_every_owned_name_is_a_megatron_argument() -> None:
    known = set(load_schema().arguments)
    assert known >= RUN_CONTROLS | REHEARSAL_MAY_CHANGE
    # A few of the run's are Megatron's own environment, not arguments of its command line.
    assert RUN_OWNED - known <= {"rank", "world_size", "local_rank"}


def test_the_recipe_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, recipe in recipe_aliases().items():
        monkeypatch.setenv("MODEL_RECIPE_NAME", name)
        assert resolve(None, GB200, "gate").recipe == recipe
    monkeypatch.setenv("MODEL_RECIPE_NAME", "nemotron_3_nano_gb200")
    assert resolve(None, GB200, "gate").recipe == NANO


def test_json_round_trip_and_hash() -> None:
    spec = resolve(NANO, "local-cpu", "gate")
    again = RunSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again.to_json() == spec.to_json()
    assert resolve(NANO, "local-cpu", "gate").content_hash == spec.content_hash
    other = resolve(NANO, "local-cpu", "gate", [("schedule.seed", "1")])
    assert other.content_hash != spec.content_hash


def test_environment_follows_the_topology() -> None:
    spec = resolve(NANO, GB200, "gate", [("parallel.expert_model_parallel_size", "4"), ("profile.nvlink_domain", "36")])
    assert spec.environment["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] == "4"
    assert spec.environment["NVLINK_DOMAIN_SIZE"] == "36"


def test_the_profile_overrules_the_recipes_environment() -> None:
    spec = resolve(NANO, GB200, "gate", [("profile.env.set", "{NCCL_DEBUG: INFO, USE_MNNVL: '0'}")])
    assert spec.environment["NCCL_DEBUG"] == "INFO"
    assert spec.environment["USE_MNNVL"] == "0"


def test_the_site_may_name_its_data(own_home: Path) -> None:
    site = own_home / ".config/seatrial/site.yaml"
    site.parent.mkdir(parents=True)
    site.write_text("set:\n  data.data_path: [/lustre/rp2]\n")
    field = resolve(NANO, GB200, "gate").fields["data.data_path"]
    assert (field.value, field.owner, field.source) == (["/lustre/rp2"], "recipe", "site.yaml:2")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model.num_layer", "2", ["unknown key", "num_layers"]),
        ("num_layers", "2", ["unknown key 'num_layers'"]),
        ("modle.num_attention_heads", "2", ["did you mean 'model.num_attention_heads'"]),
        ("moe.hidden_size", "2", ["belongs to section 'model'", "model.hidden_size"]),
        ("model.hidden_size", "wide", ["whole number", "'wide'"]),
        ("checkpoint.save", "/x", ["set by the run itself"]),
        ("model.cuda_graph_impl", "nothing", ["must be one of"]),
        ("profile.partitio", "x", ["'partition'"]),
    ],
)
def test_a_wrong_override_is_named(key: str, value: str, words: list[str]) -> None:
    with pytest.raises(SeatrialError) as caught:
        resolve(NANO, GB200, "gate", [(key, value)])
    for word in words:
        assert word in str(caught.value)


def recipe_file(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text("extends: base/pretrain\n" + text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("model:\n  hiden_size: 4\n", 3, ["unknown key 'hiden_size'", "'hidden_size'"]),
        ("modell: {}\n", 2, ["unknown key 'modell'", "'model'"]),
        ("model:\n  hidden_size: big\n", 3, ["wrong value", "whole number"]),
        ("optimizer:\n  save: /x\n", 3, ["set by the run itself"]),
        ("optimizer:\n  bf16: true\n", 3, ["belongs to section 'precision'"]),
        ("env:\n  A: 1\n", 3, ["must be text"]),
        ("rehearsal:\n  optimizer:\n    lr: 0.1\n", 4, ["may not change 'lr'"]),
        ("rehearsal:\n  extra: {}\n", 3, ["unknown key 'extra'"]),
        ("gate: {learning_ratio: 2}\n", 2, ["at most 1"]),
        ("gate: {learning: 2}\n", 2, ["learning_ratio"]),
        ("model: 3\n", 2, ["must be a mapping"]),
        ("aliases: 3\n", 2, ["a list of names"]),
        ("model:\n  2: 3\n", 3, ["is no text"]),
    ],
)
def test_a_wrong_recipe_is_named_with_its_line(tmp_path: Path, text: str, line: int, words: list[str]) -> None:
    name = recipe_file(tmp_path, text)
    with pytest.raises(SeatrialError) as caught:
        resolve(name, GB200, "gate")
    assert (caught.value.file, caught.value.line) == (Path(name), line)
    for word in words:
        assert word in str(caught.value)


def test_extends(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b\n")
    (tmp_path / "b.yaml").write_text("extends: a\n")
    with pytest.raises(SeatrialError, match="circle"):
        resolve(str(tmp_path / "a.yaml"), GB200, "gate")
    (tmp_path / "b.yaml").write_text("extends: base/pretrian\n")
    with pytest.raises(SeatrialError, match="did you mean 'base/pretrain'"):
        resolve(str(tmp_path / "a.yaml"), GB200, "gate")
    (tmp_path / "a.yaml").write_text("extends: nemotron_3_nano_gb200\nmoe:\n  moe_router_topk: 4\n")
    spec = resolve(str(tmp_path / "a.yaml"), GB200, "gate")
    assert (spec.recipe, spec.get("moe_router_topk"), spec.get("num_experts")) == ("a", 4, 128)


@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_override_either_works_or_says_why(key: str, value: str) -> None:
    try:
        resolve(NANO, GB200, "gate", [(key, value)])
    except SeatrialError as error:
        assert str(error)
