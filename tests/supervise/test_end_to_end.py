"""The supervisor over the real rank program and Megatron's real loop: stopped by a signal, resumed, killed, resumed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seatrial.data.text import ensure_text
from seatrial.run import checkpoint, records
from seatrial.run.layout import RunFolder
from seatrial.slurm.submit import spec_document
from seatrial.spec.provenance import Source
from seatrial.spec.resolve import resolve
from seatrial.supervise import exit_codes
from tests.supervise.harness import SOURCES, events, pids_of, record, request, running, steps

pytestmark = pytest.mark.train
LAST = 24


def make_run(root: Path) -> RunFolder:
    """A short convergence run of the rehearsed Nano, as submission writes it."""
    changes = {
        "profile.paths.data": str(root / "data"), "profile.host_python": sys.executable,
        "schedule.train_iters": str(LAST), "checkpoint.save_interval": "12", "data.split": "90,5,5",
    }  # fmt: skip
    spec = resolve("nemotron_3_nano_gb200", "local-cpu", "convergence", list(changes.items()))
    ensure_text(root / "data")
    folder = RunFolder.create(root / "run")
    records.write_json(folder.spec, spec_document(spec, "end-to-end", Source(None)))
    return folder


def start(folder: RunFolder) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(SOURCES / "seatrial" / "supervise"), str(folder.path)]
    environment = {**os.environ, "SLURM_PROCID": "5", "RANK": "5"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def reach(folder: RunFolder, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while not any(one >= step for one in steps(folder)):
        assert process.poll() is None, process.communicate()[0].decode()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=300)
    return process.returncode, output.decode()


@pytest.mark.campaign  # the voyages on Slurm are the same with more disturbances
def test_stopped_and_killed_and_resumed_to_the_end(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    process = start(folder)
    reach(folder, 4, process)
    process.send_signal(signal.SIGUSR2)
    code, log = end(process)
    stopped = record(folder, 0)
    assert code == exit_codes.STOPPED, log
    saved = stopped["last_step"]
    assert 4 <= saved < LAST
    assert stopped["saved_steps"] == [saved]
    assert all(r["code"] == 0 and r["record"] for r in stopped["ranks"])
    a_real_checkpoint_is_whole_until_it_is_cut(folder, saved, tmp_path / "copy")

    assert (stopped["class"], stopped["saved_on_signal"]) == ("cancelled", True)

    assert end(start(folder))[0] == exit_codes.STOPPED  # a person ended it: only a person brings it back
    request(folder)
    process = start(folder)
    reach(folder, saved + 2, process)
    victim = events(folder, "ranks_started")[-1]["pids"][1]
    os.kill(victim, signal.SIGKILL)
    code, log = end(process)
    assert code == exit_codes.DONE, log
    killed, done = record(folder, 1), record(folder, 2)
    assert killed["reason"] == "rank 1 ended with signal SIGKILL, without an exit record"
    assert (killed["first_step"], killed["decision"]["action"]) == (saved + 1, "restart")
    assert not any(running(pid) for event in events(folder, "ranks_started") for pid in event["pids"])
    assert (done["outcome"], done["last_step"]) == ("completed", LAST)
    assert {r["code"] for r in done["ranks"]} == {0}
    assert set(steps(folder)) == set(range(1, LAST + 1))
    replayed_alike(list(records.read_lines(folder.metrics)))
    evidence = [e["when"] for e in events(folder, "evidence") if e["attempt"] == 2]
    assert evidence == ["first step", "end"]
    assert len(pids_of(folder)) == 2


def a_real_checkpoint_is_whole_until_it_is_cut(folder: RunFolder, step: int, copy: Path) -> None:
    real = checkpoint.checkpoint_folder(folder.checkpoints, step)
    assert checkpoint.check(real).whole
    assert checkpoint.tracked_step(folder.checkpoints) == step
    names = sorted(p.name for p in real.iterdir())
    assert len(names) >= 4
    for name in names:
        for damage in ("cut", "removed"):
            broken = shutil.copytree(real, copy / damage / name / real.name)
            if damage == "cut":
                os.truncate(broken / name, (broken / name).stat().st_size - 1)
            else:
                (broken / name).unlink()
            assert not checkpoint.check(broken).whole, f"{name} {damage}"
            shutil.rmtree(broken)


def replayed_alike(metrics: list[dict[str, Any]]) -> None:
    """Steps that two attempts ran have the same losses; the second of an attempt is only recovered from a mean."""
    by_step: dict[int, list[float]] = {}
    for one in metrics:
        if not one["recovered"]:
            by_step.setdefault(one["step"], []).append(one["losses"]["lm loss"])
    assert all(len(set(losses)) == 1 for losses in by_step.values())
