"""Killed after the checkpoint at 50, then resumed: steps 51 to 100 equal the undisturbed run's, as printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.judge.collect import read_steps
from seatrial.judge.compare import compare_losses
from seatrial.judge.merge import merge_steps
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.submit import placed, prepare, spec_document
from seatrial.spec.provenance import Source
from seatrial.spec.recipe import recipe_names
from seatrial.spec.resolve import resolve

pytestmark = pytest.mark.campaign
KILLED_AFTER = 55


def run_folder(root: Path, recipe: str, name: str) -> RunFolder:
    spec = placed(resolve(recipe, "local-cpu", "gate", [("profile.paths.runs", str(root))]))
    prepare(spec)
    folder = RunFolder.create(root / name)
    records.write_json(folder.spec, spec_document(spec, name, Source(None)))
    return folder


def supervise(folder: RunFolder) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "seatrial.supervise", str(folder.path)], stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("recipe", recipe_names())
def test_steps_51_to_100_are_the_undisturbed_runs(recipe: str, tmp_path: Path) -> None:
    undisturbed, disturbed = (run_folder(tmp_path, recipe, name) for name in ("undisturbed", "disturbed"))
    assert supervise(undisturbed).wait() == 0
    first = supervise(disturbed)
    while not any(s.step >= KILLED_AFTER for s in read_steps(disturbed.metrics)):
        assert first.poll() is None
        time.sleep(0.2)
    started = next(e for e in records.read_lines(disturbed.events) if e["event"] == "ranks_started")
    os.kill(started["pids"][1], signal.SIGKILL)
    assert first.wait() == 128 + signal.SIGKILL
    records.append_event(disturbed.events, "requeue_requested")
    supervise(disturbed).wait()
    assert records.read_json(disturbed.attempt(1).record)["first_step"] == 51
    curves = [merge_steps(read_steps(folder.metrics)).steps for folder in (undisturbed, disturbed)]
    compared = compare_losses(*curves, first_step=51, last_step=100)
    assert compared.equal, compared.first
    assert [s.step for s in curves[1]] == list(range(1, 101))
