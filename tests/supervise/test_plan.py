"""What the ranks are told, and the world that each finds itself in."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder
from seatrial.spec.owners import RUN_OWNED as REFUSED_IN_RECIPES
from seatrial.spec.schema import load_schema
from seatrial.supervise import trackers
from seatrial.supervise.environment import local_rank_environment
from seatrial.supervise.plan import EXIT_SIGNAL, RUN_OWNED, make_plan, run_arguments, value
from seatrial.supervise.ranks import LocalRanks, free_port
from seatrial.supervise.resume import Start

BEGIN = Start(None, "the first attempt")

SPEC: dict[str, Any] = {
    "run_id": "r", "megatron_core": "0.19.2", "world_size": 2, "rehearsal": True, "profile": {"device": "cpu"},
    "environment": {"A": "1"},
    "arguments": ["--train-iters", "100"],
    "fields": {"schedule.train_iters": {"value": 100}, "schedule.lr_decay_iters": {"value": 48000}},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_the_first_attempt(folder: RunFolder) -> None:
    attempt = folder.new_attempt()
    plan = make_plan(SPEC, folder, attempt, BEGIN)
    assert plan["arguments"][:2] == ["--train-iters", "100"]
    assert plan["schedule_iters"] == 48000
    assert plan["stop_file"] == str(attempt.stop_file)
    assert plan["exit_signal"] == EXIT_SIGNAL
    assert "--load" not in plan["arguments"]
    words = plan["arguments"]
    assert words[words.index("--distributed-backend") + 1] == "gloo"
    assert words[words.index("--distributed-timeout-minutes") + 1] == "30"
    assert json.loads(json.dumps(plan)) == plan


def test_without_a_longer_schedule_datasets_are_sized_by_the_steps(folder: RunFolder) -> None:
    spec = SPEC | {"fields": {"schedule.train_iters": {"value": 100}, "schedule.lr_decay_iters": {"value": None}}}
    assert make_plan(spec, folder, folder.attempt(0), BEGIN)["schedule_iters"] == 100
    assert value(spec, "none", 7) == 7


@pytest.mark.parametrize("word", ["--save", "--load=/x", "--exit_signal", "--ckpt-step"])
def test_a_spec_cannot_set_what_is_the_runs(folder: RunFolder, word: str) -> None:
    with pytest.raises(SeatrialError, match="only the run itself"):
        make_plan(SPEC | {"arguments": [word, "1"]}, folder, folder.attempt(0), BEGIN)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("resume", [None, 50])
def test_ours_are_megatrons_arguments_and_refused_in_recipes(
    folder: RunFolder, device: str, resume: int | None
) -> None:
    words = run_arguments(device, folder, Start(resume, "", evaluate_only=True), False, 240)
    given = {word[2:].replace("-", "_") for word in words if word.startswith("--")} - {"no_load_optim"}
    assert given <= RUN_OWNED <= REFUSED_IN_RECIPES
    schema = load_schema("0.19.2")
    for name in RUN_OWNED:
        assert schema.argument(name)
    if resume:
        assert given == RUN_OWNED - trackers.OWNED


def test_a_rank_believes_no_outer_launcher() -> None:
    stale = {"RANK": "7", "MASTER_ADDR": "x", "SLURM_PROCID": "7", "SUBMITIT_EXECUTOR": "x", "TORCHELASTIC_RUN_ID": "x"}
    kept = {"PATH": "/bin", "A": "inherited", "HOME": "/h"}
    seen = local_rank_environment({**stale, **kept}, {"A": "spec"}, rank=1, world_size=2, port=29000)
    assert seen == {
        "PATH": "/bin", "HOME": "/h", "A": "spec", "PYTHONUNBUFFERED": "1", "RANK": "1", "WORLD_SIZE": "2",
        "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29000",
    }  # fmt: skip


def test_ranks_share_a_port_and_differ_in_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "7")
    logs = [tmp_path / f"{rank}" for rank in range(3)]
    logs[0].write_text("{}\n")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    ranks = LocalRanks([sys.executable, "-c", code], logs, {"MINE": "1"}, os.environ)
    pids = ranks.start(lambda nodes: None)
    ended = []
    while ranks.running:
        ended += ranks.poll()
        time.sleep(0.02)
    assert sorted(ended) == [(rank, 0, False) for rank in range(3)]
    assert len(set(pids)) == 3
    seen = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    assert [one["RANK"] for one in seen] == ["0", "1", "2"]
    assert len({one["MASTER_PORT"] for one in seen}) == 1
    assert all(one["MINE"] == "1" and "SLURM_PROCID" not in one for one in seen)
    assert logs[0].read_text().startswith("{}\n")  # logs are appended to


def test_ports_are_outside_the_kernels_own_range() -> None:
    assert all(20_000 <= free_port() < 32_768 for _ in range(20))
