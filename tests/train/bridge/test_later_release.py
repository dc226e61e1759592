"""What Megatron-Bridge 0.6.2 resolves otherwise: all of it stands here, and in docs/megatron-bridge.md."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

import pytest

from seatrial.run.overrides import words
from tests.environments.build import build
from tests.recipes import parity
from tests.recipes.parity_tables import MODELS
from tests.train.bridge.rehearsing import name_of
from tests.train.bridge.resolving import ROOT
from tests.train.bridge.test_parity import _same

pytestmark = pytest.mark.campaign
NANO, NINE, MOE = "nemotron_3_nano", "qwen35_9b", "qwen35_35b_a3b"
EVERY = (NANO, NINE, MOE)
LIST = [1, 1, 1, 0]

# field -> model -> its value at 0.6.2, where it is not the public one that ours follow
CHANGED: dict[str, dict[str, Any]] = {
    "comm_overlap.tp_comm_overlap": {NANO: True},
    "ddp.check_for_large_grads": {NANO: True},
    "ddp.check_for_nan_in_grad": {NINE: False},
    "ddp.grad_reduce_in_fp32": {NANO: False, NINE: False},
    "mixed_precision.grad_reduce_in_fp32": {NANO: False, NINE: False},
    "logger.logging_level": dict.fromkeys(EVERY),
    "model.apply_rope_fusion": {NANO: True},
    "model.linear_attention_freq": {NINE: LIST * 8, MOE: LIST * 10},
    "model.moe_deepep_num_sms": dict.fromkeys(EVERY),
    "model.moe_hybridep_num_sms": {MOE: None},
    "model.moe_router_dtype": {MOE: "fp32"},
    "rerun_state_machine.check_for_nan_in_loss": {NINE: False},
    "train.manual_gc": {NANO: True},
    "train.manual_gc_interval": {NANO: 100},
}
# new fields that are not off or empty
NEW = {
    "tokenizer.use_tokenizer_vocab_size": dict.fromkeys(EVERY, True),
    "model.moe_flex_dispatcher_num_sms": {NANO: 16, NINE: None, MOE: 32},
}
OURS = {"checkpoint.save", "checkpoint.load", "logger.tensorboard_dir", "train.exit_signal_handler"}


@cache
def report(model: str) -> dict[str, Any]:
    told = {
        "dataset.mock": True, "train.exit_signal_handler": True, "train.train_iters": 48000,
        "scheduler.lr_warmup_iters": 480, "train.global_batch_size": 512, "train.micro_batch_size": 2,
        "model.vocab_size": parity.upstream(model, "conv64")["model.vocab_size"], "model.cuda_graph_impl": "none",
        "model.use_te_rng_tracker": False, "rng.te_rng_tracker": False,
    }  # fmt: skip
    python = str(build("megatron-bridge-0.6"))
    command = [python, "-W", "ignore", "-m", "tests.train.bridge.later", name_of(MODELS[model]), *words(told)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("model", EVERY)
def test_every_difference_is_listed(model: str) -> None:
    public, found = parity.upstream(model, "conv64"), report(model)["resolved"]
    differs = {name for name in public.keys() & found.keys() if not _same(found[name], public[name])} - OURS
    assert {name: found[name] for name in differs} == {
        name: values[model] for name, values in CHANGED.items() if model in values
    }
    assert public.keys() - found.keys() == ({"model.mamba_stack_spec"} if model == NANO else set())
    assert {name: found[name] for name in NEW} == {name: values[model] for name, values in NEW.items()}
    assert len(found["env_vars"]) == (14 if model == NANO else 0)


@pytest.mark.parametrize("model", EVERY)
def test_names_and_graphs(model: str) -> None:
    later = {NANO: "", NINE: " as qwen35_text_9b_pretrain_config", MOE: " as qwen35_text_35b_a3b_pretrain_config"}
    assert report(model)["origin"] == f"exported by megatron-bridge 0.6.2{later[model]}"
    own = report(model)["own"]
    assert (own["model.cuda_graph_impl"], own["rng.te_rng_tracker"]) == ("transformer_engine", True)
    assert own["train.global_batch_size"] == {NANO: 512, NINE: 128, MOE: 512}[model]


def test_the_docs_name_every_one() -> None:
    text = (ROOT / "docs" / "megatron-bridge.md").read_text()
    assert [name for name in [*CHANGED, *NEW, "env_vars", "model.cuda_graph_impl"] if f"`{name}`" not in text] == []
