"""TensorBoard and Weights & Biases over attempts: real training, and what happens to it when W&B fails."""

from __future__ import annotations

import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.data.text import ensure_text
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.submit import spec_document
from seatrial.spec.provenance import Source
from seatrial.spec.resolve import resolve
from seatrial.supervise import exit_codes
from tests.supervise.harness import SOURCES, events, record, request, steps
from tests.train.harness import MEGATRON_CORE

pytest.importorskip("megatron.training")
pytest.importorskip("wandb")

from seatrial.train import trackers
from seatrial.train.plan import Tracker

LAST = 7
KEY = "0123456789abcdef0123456789abcdef01234567"
RUN_ID = "nemotron.nano-convergence-1"
WANDB_ID = "nemotron_nano-convergence-1-f60a3a2f"


def make_run(root: Path) -> RunFolder:
    """A short convergence run that asks for W&B, as submission writes it."""
    changes = {
        "profile.paths.data": str(root / "data"), "profile.host_python": sys.executable,
        "profile.megatron_core": MEGATRON_CORE, "profile.wandb.enabled": "true",
        "profile.wandb.mode": "offline", "profile.wandb.key": "TEAM_KEY",
        "profile.env.set": "{WANDB_BASE_URL: 'http://127.0.0.1:9', WANDB_INIT_TIMEOUT: '2', CUDA_VISIBLE_DEVICES: ''}",
        "schedule.train_iters": str(LAST), "checkpoint.save_interval": str(LAST), "evaluation.eval_iters": "1",
        "data.split": "90,5,5", "logging.log_interval": "1",
    }  # fmt: skip
    spec = resolve("qwen35_9b_gb200", "local-cpu", "convergence", list(changes.items()))
    ensure_text(root / "data")
    folder = RunFolder.create(root / "run")
    records.write_json(folder.spec, spec_document(spec, RUN_ID, Source(None)) | {"group": "the-group"})
    return folder


def supervise(folder: RunFolder, home: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TEAM_KEY": KEY, "HOME": str(home), "WANDB_RUN_ID": "of-the-shell"}
    environment.pop("WANDB_API_KEY", None)
    command = [sys.executable, str(SOURCES / "seatrial" / "supervise"), str(folder.path)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def end(process: subprocess.Popen[bytes], code: int) -> str:
    output = process.communicate(timeout=200)[0].decode()
    assert process.returncode == code, output
    return output


def offline_records(path: Path) -> Iterator[Any]:
    """Yield the records of a .wandb file: a header of 7 bytes, then LevelDB's log format in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), 7, b""
    while len(data) - at >= 7:
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            parsed = Record()
            parsed.ParseFromString(parts)
            parts = b""
            yield parsed


def logged(path: Path) -> tuple[Any, dict[int, dict[str, Any]]]:
    """Return the run's record of a .wandb file, and what was logged, by step."""
    run, rows = None, {}
    for one in offline_records(path):
        if one.WhichOneof("record_type") == "run":
            run = one.run
        elif one.WhichOneof("record_type") == "history":
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in one.history.item}
            rows[int(row["_step"])] = row
    return run, rows


@pytest.mark.train
def test_all_attempts_of_a_run_are_one(tmp_path: Path) -> None:
    """The first is offline as asked; the second cannot reach W&B, which stops nothing and loses nothing."""
    folder, home = make_run(tmp_path), tmp_path / "home"
    home.mkdir()
    process = supervise(folder, home)
    deadline = time.monotonic() + 600
    while not any(step >= 2 for step in steps(folder)):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0].decode()
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR2)
    output = end(process, exit_codes.STOPPED)
    stopped_at = record(folder)["last_step"]
    assert 2 <= stopped_at < LAST

    spec = records.read_json(folder.spec)
    spec["profile"]["wandb"]["mode"] = "online"
    records.write_json(folder.spec, spec)
    request(folder)
    output += end(supervise(folder, home), exit_codes.DONE)
    assert "W&B: this attempt is logged offline, for `wandb sync`: CommError" in output
    (failed,) = events(folder, "tracker_failed")
    assert failed["attempt"] == 1

    files = sorted(folder.path.glob("wandb/offline-run-*/run-*.wandb"))
    assert [path.name for path in files] == [f"run-{WANDB_ID}.wandb"] * 2
    attempts = [range(1, stopped_at + 1), range(stopped_at + 1, LAST + 1)]
    for path, wanted in zip(files, attempts, strict=True):
        run, rows = logged(path)
        assert (run.run_id, run.display_name, run.project) == (WANDB_ID, RUN_ID, "seatrial")
        assert (run.run_group, list(run.tags)) == (
            "the-group", ["qwen35_9b_gb200", "convergence", "local-cpu", "rehearsal"],
        )  # fmt: skip
        assert [step for step, row in rows.items() if "lm loss" in row] == list(wanted)
    assert "lm loss validation" in rows[LAST]

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert len(list(folder.tensorboard.iterdir())) == 2
    board = EventAccumulator(str(folder.tensorboard)).Reload()
    assert [one.step for one in board.Scalars("lm loss")] == list(range(1, LAST + 1))
    assert board.Scalars("lm loss")[-1].value == pytest.approx(rows[LAST]["lm loss"])

    places = [path for root in (folder.path, home) for path in root.rglob("*") if path.is_file()]
    assert len(places) > 20
    assert [path for path in places if KEY.encode() in path.read_bytes()] == []
    assert KEY not in output


class Fake:
    """Stands for the wandb module; ``fails`` names what raises, ``blocks`` what never returns."""

    def __init__(self, fails: str = "", blocks: str = "") -> None:
        self.called: list[Any] = []
        self.config = SimpleNamespace(update=self._do("config"))
        self.log, self.finish, self.teardown = self._do("log"), self._do("finish"), self._do("teardown")
        self._fails, self._blocks = fails, blocks

    def _do(self, name: str) -> Any:
        def call(*words: Any, **options: Any) -> None:
            if name == self._fails:
                raise OSError(f"service died with {KEY}")
            if name == self._blocks:
                threading.Event().wait()
            self.called.append((name, *words, options) if options else (name, *words))

        return call


@pytest.fixture
def report(tmp_path: Path) -> trackers.Report:
    return trackers.Report(tmp_path / "wandb.json", "MY_KEY", {"MY_KEY": KEY})


def trouble(tmp_path: Path) -> str | None:
    path = tmp_path / "wandb.json"
    return json.loads(path.read_text())["trouble"] if path.exists() else None


def loop(wandb: Any) -> None:
    """What Megatron's loop does with its writer."""
    import torch

    wandb.config.update({"slurm_job_name": "x"})
    loss = torch.tensor(2.0)
    wandb.log({"lm loss": loss}, 1)
    loss += 1
    wandb.log({"lm loss": loss}, 2)
    wandb.finish()


def test_the_loop_logs_in_order(tmp_path: Path, report: trackers.Report) -> None:
    wandb = Fake()
    trackers.Teller(wandb, report)
    loop(wandb)
    assert wandb.called == [
        ("config", {"slurm_job_name": "x"}, {"allow_val_change": True}),
        ("log", {"lm loss": 2.0}, 1), ("log", {"lm loss": 3.0}, 2), ("finish",),
    ]  # fmt: skip
    assert trouble(tmp_path) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fails": "config"}, "the rest is not logged: OSError: service died with <MY_KEY>"),
        ({"fails": "log"}, "the rest is not logged: OSError: service died with <MY_KEY>"),
        ({"fails": "finish"}, "the rest is not logged: OSError"),
        ({"blocks": "log"}, "not all was taken within"),
        ({"blocks": "finish"}, "not all was taken within"),
    ],
    ids=str,
)
def test_a_failure_of_wandb_is_none_of_the_loop(
    options: dict[str, str], words: str, tmp_path: Path, report: trackers.Report, capfd: pytest.CaptureFixture[str]
) -> None:
    wandb = Fake(**options)
    trackers.Teller(wandb, report, seconds=0.3)
    loop(wandb)
    assert words in (trouble(tmp_path) or "")
    assert wandb.called[-1] == ("teardown",)
    said = capfd.readouterr().out
    assert words in said and "the training goes on" in said and KEY not in said


def test_a_service_that_takes_nothing_costs_no_memory(
    tmp_path: Path, report: trackers.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "_MOST_WAITING", 3)
    wandb = Fake(blocks="log")
    teller = trackers.Teller(wandb, report)
    for step in range(100):
        wandb.log({"lm loss": 1.0}, step)
    assert isinstance(teller._calls, queue.Queue) and teller._calls.qsize() <= 3
    assert "takes nothing any more" in (trouble(tmp_path) or "")


@pytest.mark.parametrize(("error", "words"), [
    (ImportError("No module named 'wandb'"), "pip install 'seatrial[wandb]'"),
    (ValueError("odd\nproject"), "nothing is logged: ValueError: odd"),
])  # fmt: skip
def test_without_wandb_the_training_begins(
    error: Exception, words: str, tmp_path: Path, report: trackers.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")

    def set_writer(args: Any) -> None:
        raise error

    trackers.start(set_writer, report, None)
    assert words in (trouble(tmp_path) or "")


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("WANDB_API_KEY", {"WANDB_API_KEY": "k"}, "k"),
        ("TEAM", {"TEAM": "t"}, "t"),
        ("TEAM", {"TEAM": "t", "WANDB_API_KEY": "k"}, "t"),
        ("TEAM", {}, None),
        (None, {"TEAM": "t"}, None),
    ],
)
def test_the_key_is_in_this_process_alone(key: str | None, before: dict[str, str], after: str | None) -> None:
    environment = {"WANDB_SERVICE": "outer", "WANDB_MODE": "disabled", "WANDB_CONSOLE": "wrap", **before}
    trackers.set_environment(Tracker(key, {"WANDB_MODE": "online"}), environment)
    assert environment.get("WANDB_API_KEY") == after
    assert (environment["WANDB_MODE"], environment["WANDB_CONSOLE"]) == ("online", "wrap")
    assert "WANDB_SERVICE" not in environment and environment["WANDB_SILENT"] == "true"


def test_a_final_evaluation_made_up_alone_is_written() -> None:
    seen: list[Any] = []
    evaluate = trackers.always_written(lambda *words, **options: seen.append((words, options)))
    evaluate("prefix", write_to_tensorboard=False, verbose=True)
    assert seen == [(("prefix",), {"write_to_tensorboard": True, "verbose": True})]
