"""Megatron-Bridge's own loop on two CPU ranks, with our overrides: it trains what Megatron-Core's loop trains.

Both loops run in Megatron-Bridge's environment, megatron-core 0.18.2; recipes are shrunk as a rehearsal shrinks them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from seatrial.judge.parse import LogParser
from seatrial.judge.records import EvaluationRecord, ExitNotice, SaveRecord, Start, StepRecord
from seatrial.run import checkpoint
from seatrial.spec.recipe import recipe_names
from tests.environments.build import build
from tests.train import harness
from tests.train.bridge import rehearsing
from tests.train.bridge.resolving import ENVIRONMENT

pytestmark = [pytest.mark.campaign, pytest.mark.train]
STEPS, SAVE, CORE = 6, 3, "0.18.2"
SHORT = {"checkpoint__save_interval": SAVE, "validation__eval_interval": SAVE}


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, harness.Attempt]:
    return {}


@pytest.fixture
def trained(
    request: pytest.FixtureRequest, attempts: dict[str, harness.Attempt], tmp_path_factory: pytest.TempPathFactory,
    text: str,
) -> harness.Attempt:  # fmt: skip
    """One run of six steps for each recipe, shared by the tests of this file."""
    recipe = request.param
    if recipe not in attempts:
        attempts[recipe] = rehearsing.start(tmp_path_factory.mktemp("bridge"), recipe, text, STEPS, **SHORT)
        assert attempts[recipe].wait() == [0, 0], attempts[recipe].log()[-3000:]
    return attempts[recipe]


every_recipe = pytest.mark.parametrize("trained", recipe_names(), indirect=True)
one_recipe = pytest.mark.parametrize("trained", ["nemotron_3_nano_gb200"], indirect=True)


def core_losses(recipe: str, folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, str]]:
    """Return the steps of Megatron-Core's own loop for the recipe's rehearsed gate."""
    monkeypatch.setattr(harness, "MEGATRON_CORE", CORE)
    arguments = harness.rendered.__wrapped__(recipe)
    monkeypatch.setattr(sys, "executable", str(build(ENVIRONMENT)))
    changed = harness.changed(
        arguments, data_path=[text], train_iters=STEPS, save_interval=SAVE, eval_interval=SAVE,
        data_cache_path=folder / "cache",
    )  # fmt: skip
    attempt = harness.start(folder, changed)
    assert attempt.wait() == [0, 0], attempt.log()[-3000:]
    return attempt.steps()


@every_recipe
def test_the_losses_are_those_of_megatron_cores_loop(
    trained: harness.Attempt, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = next(name for name in recipe_names() if rehearsing.name_of(name) == trained.plan["bridge"]["recipe"])
    mine, theirs = trained.steps(), core_losses(recipe, tmp_path, text, monkeypatch)
    assert mine.keys() == theirs.keys() == set(range(1, STEPS + 1))
    shared = mine[1].keys() & theirs[1].keys() - {"elapsed time per iteration (ms)", "throughput per GPU (TFLOP/s/GPU)"}
    assert {"lm loss", "grad norm", "learning rate", "consumed samples"} <= shared
    for step in mine:
        if step == 2:
            continue  # Megatron-Core prints the mean of the first two there, Bridge each for itself
        assert {name: mine[step][name] for name in shared} == {name: theirs[step][name] for name in shared}
    mean = (float(mine[1]["lm loss"]) + float(mine[2]["lm loss"])) / 2
    assert abs(float(theirs[2]["lm loss"]) - mean) < 2e-6


@every_recipe
def test_what_the_run_proves(trained: harness.Attempt) -> None:
    first, end = trained.evidence("first step"), trained.evidence("end")
    moe = "qwen35_9b" not in trained.plan["bridge"]["recipe"]
    assert (first["iteration"], end["iteration"], end["cuda_graphs_captured"]) == (1, STEPS, 0)
    assert end["dispatcher_backend"] == ("hybridep" if moe else None)
    assert (end["dispatch_calls"] > first["dispatch_calls"] > 0) is moe
    assert end["versions"]["megatron_core"] == CORE and end["versions"]["megatron_bridge"] == "0.5.1"
    kept = json.loads((trained.folder / "bridge.json").read_text())
    assert (kept["recipe"], kept["release"]) == (trained.plan["bridge"]["recipe"], "0.5.1")
    assert kept["resolved"]["train.train_iters"] == STEPS and kept["resolved"]["optimizer.optimizer"] == "adam"
    states = [checkpoint.check(path) for path in checkpoint.list_checkpoints(trained.folder / "checkpoints")]
    assert [(state.step, state.whole) for state in states] == [(SAVE, True), (STEPS, True)]
    assert checkpoint.tracked_step(trained.folder / "checkpoints") == STEPS
    assert [trained.record(rank)["how"] for rank in (0, 1)] == ["completed", "completed"]


@every_recipe
def test_the_parser_reads_its_logs(trained: harness.Attempt) -> None:
    first, last = (read(trained.log(rank)) for rank in (0, 1))
    steps = [record for record in last if isinstance(record, StepRecord)]
    assert [(record.step, record.of) for record in steps] == [(step, STEPS) for step in range(1, STEPS + 1)]
    assert all(record.losses["lm loss"] > 0 and record.grad_norm for record in steps)
    assert [(r.skipped, r.nan, r.global_batch_size) for r in steps] == [(0, 0, steps[0].global_batch_size)] * STEPS
    evaluations = [record for record in last if isinstance(record, EvaluationRecord)]
    assert [(record.iteration, record.which) for record in evaluations] == [
        (SAVE, "interval"), (STEPS, "interval"), (STEPS, "validation"), (STEPS, "test"),
    ]  # fmt: skip
    saves = [(record.iteration, record.phase) for record in first if isinstance(record, SaveRecord)]
    assert saves == [(SAVE, "started"), (SAVE, "finished"), (STEPS, "started"), (STEPS, "finished")]
    assert [record.reason for record in first if isinstance(record, ExitNotice)] == ["done"]
    assert [record.loaded for record in first if isinstance(record, Start)] == [None]


def read(text: str) -> list[object]:
    parser = LogParser()
    return [*parser.feed(text), *parser.close()]


@one_recipe
def test_it_resumes_with_the_same_losses(trained: harness.Attempt, tmp_path: Path, text: str) -> None:
    again = rehearsing.start(
        tmp_path, "nemotron_3_nano_gb200", text, STEPS, **SHORT, checkpoint__ckpt_step=SAVE,
        checkpoint__load=str(trained.folder / "checkpoints"), checkpoint__exit_on_missing_checkpoint=True,
    )  # fmt: skip
    assert again.wait() == [0, 0], again.log()[-3000:]
    mine, theirs = again.steps(), trained.steps()
    assert sorted(mine) == list(range(SAVE + 1, STEPS + 1))
    for step, fields in mine.items():
        assert (fields["lm loss"], fields["grad norm"]) == (theirs[step]["lm loss"], theirs[step]["grad norm"])
    assert [record.loaded for record in read(again.log()) if isinstance(record, Start)] == [SAVE]


def test_a_missing_checkpoint_ends_it(tmp_path: Path, text: str) -> None:
    attempt = rehearsing.start(
        tmp_path, "qwen35_9b_gb200", text, STEPS, checkpoint__load=str(tmp_path / "none"), checkpoint__ckpt_step=3,
        checkpoint__exit_on_missing_checkpoint=True,
    )  # fmt: skip
    assert attempt.wait() == [2, 2]
    assert "the checkpoint to load is not there" in attempt.record()["message"]


def test_a_drills_fault_comes_at_its_step(tmp_path: Path, text: str) -> None:
    fault = {"fault": "kill-rank", "step": 3, "ranks": [0]}
    attempt = rehearsing.start(tmp_path, "qwen35_9b_gb200", text, STEPS, ranks=1, drill=fault)
    assert attempt.wait() == [-signal.SIGKILL]
    assert sorted(attempt.steps()) == [1, 2]
    assert "drill kill-rank@3: rank 0 sends itself SIGKILL" in attempt.log()


@pytest.mark.parametrize("way", ["stop file", "SIGTERM"])
def test_it_saves_and_leaves_when_asked(way: str, tmp_path: Path, text: str) -> None:
    attempt = rehearsing.start(tmp_path, "qwen35_9b_gb200", text, 500, checkpoint__save_interval=400)
    attempt.wait_for_step(2)
    if way == "stop file":
        (tmp_path / "stop").touch()
    else:
        os.kill(attempt.processes[1].pid, signal.SIGTERM)
    assert attempt.wait() == [0, 0], attempt.log()[-3000:]
    step = max(attempt.steps())
    assert step < 400
    assert checkpoint.tracked_step(tmp_path / "checkpoints") == step
    assert checkpoint.check(checkpoint.checkpoint_folder(tmp_path / "checkpoints", step)).whole
    assert [record.reason for record in read(attempt.log()) if isinstance(record, ExitNotice)] == ["signal"]
    assert [attempt.record(rank)["how"] for rank in (0, 1)] == ["exit", "exit"]
    assert attempt.evidence("end")["iteration"] == step
