"""Who watches the batch host of a job that outlives its nodes: what it makes of Slurm's answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import watchman
from seatrial.supervise.nodes import parse_down
from tests.slurm_room.fakes import Reply, on_path

RUNS = Reply("JobId=7 JobState=RUNNING Restarts=0 NodeList=n[1-3] BatchHost=n1\n")
WELL = Reply("NodeName=n1 Arch=aarch64 State=MIXED ThreadsPerCore=1\n")
SILENT = Reply("NodeName=n1 Arch=aarch64 State=MIXED+NOT_RESPONDING ThreadsPerCore=1\n")
DOWN = Reply("NodeName=n1 Arch=aarch64 State=DOWN+NOT_RESPONDING Reason=State=MIXED\n")
AWAY = Reply(err="slurm_load error: Unable to contact slurm controller (connect failure)", rc=1)
DONE = Reply()


@pytest.mark.parametrize(
    ("said", "down"),
    [
        (DOWN.out, True),
        ("NodeName=n1 State=DOWN*+DRAIN", True),
        (WELL.out, False),
        (SILENT.out, False),
        ("NodeName=n1 State=IDLE+DRAIN Reason=State=DOWN", False),
        ("Node n1 not found", False),
        ("", False),
    ],
)
def test_only_slurms_word_makes_a_node_lost(said: str, down: bool) -> None:
    assert parse_down(said) == ({"n1"} if down else set())


@pytest.mark.parametrize(
    ("replies", "requeued"),
    [
        ([RUNS, WELL, RUNS, SILENT, RUNS, DOWN, DONE], True),
        ([AWAY, RUNS, AWAY, RUNS, DOWN, AWAY, RUNS, DOWN, DONE], True),
        ([RUNS, WELL, Reply(RUNS.out.replace("Restarts=0", "Restarts=1"))], False),
        ([RUNS, WELL, Reply(RUNS.out.replace("RUNNING", "COMPLETING"))], False),
    ],
)
def test_the_job_goes_back_only_when_its_batch_host_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Reply], requeued: bool
) -> None:
    fakes = on_path(tmp_path, monkeypatch)
    fakes.script("scontrol", *replies)
    folder = RunFolder.create(tmp_path / "run")
    watchman.keep_watch(folder, "7", 0, "n1", every=0.0)
    calls = fakes.calls("scontrol")
    assert len(calls) == len(replies)
    assert (["requeue", "7"] in calls) is requeued
    lost = [event["host"] for event in records.read_objects(folder.events)]
    assert lost == (["n1"] if requeued else [])


def test_the_program_runs_by_path_on_another_node(tmp_path: Path) -> None:
    words = [sys.executable, "-S", watchman.__file__]
    done = subprocess.run([*words, str(tmp_path), "7", "x", "n1"], capture_output=True, text=True, cwd="/")
    assert (done.returncode, done.stderr) == (2, "usage: watchman.py RUN_FOLDER JOB RESTART HOST\n")


@pytest.mark.parametrize(
    ("host", "nodes", "on"), [("n1", ["n1", "n2", "n3"], "n3"), ("n3", ["n1", "n2", "n3"], "n2"), ("n1", ["n1"], None),
                              ("", ["n1", "n2"], None)],
)  # fmt: skip
def test_the_watch_is_kept_elsewhere_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, nodes: list[str], on: str | None
) -> None:
    notes = tmp_path / "calls"
    srun = tmp_path / "srun"
    srun.write_text(f'#!/bin/sh\necho "$@" >> {notes}\nexec sleep 60\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    watch = watchman.Watchman(
        "/usr/bin/python3", tmp_path, {**os.environ, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": host}
    )
    for _ in range(2):
        watch.ensure(nodes)
        time.sleep(0.3)
    watch.stop()
    calls = notes.read_text().splitlines() if notes.exists() else []
    assert len(calls) == (on is not None)
    assert all(f"--nodelist={on} " in call for call in calls)
