"""Megatron's own loop on CPU ranks: the three rehearsals train, stop, resume and say how they ended.

Loss equality is judged on what the loop prints (7 digits). The second line after a start prints the mean of the
first two steps' losses (the loop keeps its totals once), so that line is compared through the true value.
"""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.train.harness import MEGATRON_CORE, Attempt, changed, rendered, run_owned, start

pytestmark = pytest.mark.train
pytest.importorskip("megatron.training")

STEPS = 20
ALL_TO_ALL = {
    "moe_token_dispatcher_type": "alltoall",
    "moe_flex_dispatcher_backend": None,
    "moe_flex_dispatcher_num_sms": None,
}
COMPARED = ("lm loss", "grad norm", "learning rate", "consumed samples", "seq_load_balancing_loss")


def train(folder: Path, recipe: str, text: str, *, owned: list[str] | None = None, **change: Any) -> Attempt:
    """Start two ranks of a recipe's rehearsal on text, for ``STEPS`` steps unless changed."""
    options: dict[str, Any] = {
        "train_iters": STEPS,
        "data_path": text,
        "data_cache_path": folder.parent / "cache",
    }
    arguments = changed(rendered(recipe), **(options | change)) + (owned or run_owned())
    return start(folder, arguments)


def finish(attempt: Attempt) -> Attempt:
    assert attempt.wait() == [0, 0], attempt.log()[-4000:] + attempt.log(1)[-2000:]
    return attempt


def test_hybridep_trains_as_all_to_all_does(tmp_path: Path, text: str) -> None:
    """In FP32 at the recipe's top-k; sums in another order differ in the last digits only."""
    for recipe, steps, names in (
        ("nemotron_3_nano_gb200", STEPS, ("lm loss", "seq_load_balancing_loss")),
        ("qwen35_35b_a3b_gb200", 12, ("lm loss", "mtp_1 loss", "global_load_balancing_loss")),
    ):
        attempts = {}
        for name, dispatcher in {"flex": {}, "all-to-all": ALL_TO_ALL}.items():
            folder = tmp_path / f"{recipe}-{name}"
            attempts[name] = finish(train(folder, recipe, text, bf16=None, train_iters=steps, **dispatcher))
        flex, plain = attempts["flex"], attempts["all-to-all"]
        for loss in names:
            ours, theirs = flex.losses(loss), plain.losses(loss)
            assert len(ours) == len(theirs) == steps
            for step, (mine, its) in enumerate(zip(ours, theirs, strict=True), 1):
                assert math.isfinite(mine) and mine == pytest.approx(its, rel=1e-6), (recipe, loss, step)
        evidence = flex.evidence("end")
        assert (evidence["dispatcher"], evidence["dispatcher_backend"]) == (
            "MoEFlexTokenDispatcher",
            "hybridep",
        )
        assert evidence["dispatch_calls"] > 2 * steps and evidence["deep_ep"]["stand_in"]
        assert plain.evidence("end")["dispatcher"] == "MoEAlltoAllTokenDispatcher"
        assert plain.evidence("end")["dispatch_calls"] == 0


def test_a_dense_model_with_prediction_layer_trains(tmp_path: Path, text: str) -> None:
    attempt = finish(train(tmp_path / "dense", "qwen35_9b_gb200", text, train_iters=6))
    for name in ("lm loss", "mtp_1 loss"):
        losses = attempt.losses(name)
        assert len(losses) == 6 and all(5 < loss < 6 for loss in losses)
    first, last = attempt.evidence("first step"), attempt.evidence("end")
    assert (first["iteration"], last["iteration"]) == (1, 6)
    assert (last["dispatcher"], last["dispatch_calls"], last["cuda_graphs_captured"]) == (None, 0, 0)
    assert (last["world_size"], last["device"], last["rehearsal"]) == (2, "cpu", True)
    assert last["versions"]["megatron_core"] == MEGATRON_CORE
    for rank in (0, 1):
        record = attempt.record(rank)
        assert (record["rank"], record["code"], record["how"], record["signals"]) == (
            rank,
            0,
            "completed",
            [],
        )


class Lineage:
    """One run undisturbed, and the same run as three attempts: stopped by file, stopped by SIGTERM, finished."""

    def __init__(self, folder: Path, text: str) -> None:
        # Workers, as on the hardware: the resumed run must not lose or repeat what they had fetched.
        options: dict[str, Any] = {"num_workers": 2, "save_interval": STEPS}
        early_save = {
            **options,
            "save_interval": 2,
        }  # so that the checkpoint helper is there when the signal comes
        recipe = "nemotron_3_nano_gb200"
        self.straight = finish(
            train(folder / "straight", recipe, text, owned=run_owned(save=folder / "undisturbed"), **options)
        )
        checkpoints = folder / "checkpoints"

        stopped = train(folder / "stopped", recipe, text, owned=run_owned(save=checkpoints), **options)
        stopped.wait_for_step(3)
        (folder / "stopped" / "stop").touch()
        self.stopped = finish(stopped)

        again = run_owned(save=checkpoints, load=checkpoints)
        preempted = train(folder / "preempted", recipe, text, owned=again, **early_save)
        preempted.wait_for_step(max(self.stopped.steps()) + 3)
        # As Slurm does: to every process of the rank, its data loader workers and checkpoint helper among them.
        os.killpg(preempted.processes[1].pid, signal.SIGTERM)
        self.preempted = finish(preempted)
        self.finished = finish(train(folder / "finished", recipe, text, owned=again, **options))
        self.checkpoints = checkpoints

    def attempts(self) -> list[Attempt]:
        return [self.stopped, self.preempted, self.finished]


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory, text: str) -> Iterator[Lineage]:
    yield Lineage(tmp_path_factory.mktemp("lineage"), text)


def test_resumed_steps_are_those_of_the_undisturbed_run(lineage: Lineage) -> None:
    straight = lineage.straight.steps()
    assert sorted(straight) == list(range(1, STEPS + 1))
    seen: list[int] = []
    for attempt in lineage.attempts():
        steps = attempt.steps()
        first = min(steps)
        seen += sorted(steps)
        for step, fields in steps.items():
            for name in COMPARED:
                if step == first + 1 and name.endswith("loss") and first > 1:
                    # A line with the mean of two steps: its own value is 2 x printed - the line before.
                    own = 2 * float(fields[name]) - float(steps[first][name])
                    assert own == pytest.approx(float(straight[step][name]), rel=1e-6), (step, name)
                else:
                    assert fields[name] == straight[step][name], (step, name)
    assert seen == list(range(1, STEPS + 1))

    def evaluations(attempt: Attempt) -> list[str]:
        return [line.strip() for line in attempt.log(1).splitlines() if "validation loss at" in line]

    assert evaluations(lineage.finished) == evaluations(lineage.straight) != []


def test_every_attempt_saved_where_it_stopped(lineage: Lineage) -> None:
    for attempt in lineage.attempts():
        assert (lineage.checkpoints / f"iter_{max(attempt.steps()):07d}" / "metadata.json").exists()
    tracker = (lineage.checkpoints / "latest_checkpointed_iteration.txt").read_text()
    assert int(tracker) == STEPS == int(max(lineage.finished.steps()))


def test_the_records_say_what_stopped_each_rank(lineage: Lineage) -> None:
    for rank in (0, 1):
        stopped, preempted = lineage.stopped.record(rank), lineage.preempted.record(rank)
        assert (stopped["code"], stopped["how"], stopped["signals"]) == (0, "exit", [])
        assert (preempted["code"], preempted["how"]) == (0, "exit")
        assert preempted["signals"] == (["SIGTERM"] if rank == 1 else [])
        assert lineage.finished.record(rank)["how"] == "completed"
    assert "[seatrial] stop file" in lineage.stopped.log(0)
    assert "[seatrial] SIGTERM received" in lineage.preempted.log(1)
    assert lineage.preempted.evidence("end")["iteration"] == max(lineage.preempted.steps())


def test_a_nan_loss_ends_the_run_and_its_record_says_so(tmp_path: Path, text: str) -> None:
    attempt = train(tmp_path / "nan", "qwen35_9b_gb200", text, train_iters=6, lr=1e30, lr_warmup_iters=0, min_lr=1e29)
    codes = attempt.wait()
    assert any(codes)
    records = [attempt.record(rank) for rank, code in enumerate(codes) if code == 1]
    assert any("NaN" in record["message"] or "Inf" in record["message"] for record in records), records
    assert all(record["how"] == "exception" and "Traceback" in record["traceback"] for record in records)


@pytest.mark.parametrize(
    ("device", "extra", "expected"),
    [
        ("cuda", [], ("a GPU", "transformer_engine", "deep_ep", "mamba_ssm", "causal_conv1d")),
        ("cpu", ["--no-such-argument"], ("unrecognized arguments: --no-such-argument",)),
    ],
)
def test_what_a_rank_cannot_do_is_one_message(
    tmp_path: Path, text: str, device: str, extra: list[str], expected: tuple[str, ...]
) -> None:
    arguments = changed(rendered("nemotron_3_nano_gb200"), data_path=text, expert_model_parallel_size=1) + extra
    attempt = start(tmp_path, arguments, ranks=1, device=device)
    assert attempt.wait() == [2], attempt.log()[-3000:]
    record = json.loads((tmp_path / "exit-00000.json").read_text())
    assert (record["code"], record["exception"]) == (2, "SeatrialError")
    for word in expected:
        assert word in record["message"] and word in attempt.log()
    assert "Traceback" not in attempt.log()


@pytest.mark.campaign
def test_eight_ranks_share_the_experts(tmp_path: Path, text: str) -> None:
    options = {"train_iters": 5, "data_path": text, "expert_model_parallel_size": 8}
    attempt = start(tmp_path, changed(rendered("nemotron_3_nano_gb200"), **options) + run_owned(), ranks=8)
    assert attempt.wait(400) == [0] * 8, attempt.log()[-3000:]
    assert len(attempt.losses()) == 5 and attempt.evidence("end")["dispatch_calls"] > 10
