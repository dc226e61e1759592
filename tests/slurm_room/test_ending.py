"""What a stopped attempt left, and whom signals may reach."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.ending import saved, write_stop_file
from seatrial.slurm.local_job import held, look, send, supervisor

HOLDER = """
import signal, sys, time
from pathlib import Path
from seatrial.run.layout import RunFolder
from seatrial.supervise.lock import only_supervisor
with only_supervisor(RunFolder(Path(sys.argv[1])), None, 0):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("record", "good", "said"),
    [
        (None, False, "nobody can say"),
        ([], False, "nobody can say"),
        ({"outcome": "completed", "reason": "100 steps", "last_step": 100}, True, "it was complete: 100 steps"),
        ({"outcome": "stopped", "last_step": None, "saved_steps": []}, True, "before its first step"),
        ({"outcome": "stopped", "last_step": 7, "saved_steps": [7]}, True, "checkpoint 7 is saved"),
        ({"outcome": "stopped", "last_step": 7, "saved_steps": [5]}, False, "steps 6-7 are lost"),
        ({"outcome": "stopped", "last_step": 7, "saved_steps": [], "reason": "x"}, False, "no checkpoint was saved"),
        ({"outcome": "failed", "last_step": 7, "saved_steps": [7]}, True, "checkpoint 7 is saved"),
    ],
)
def test_what_was_saved(record: Any, good: bool, said: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    attempt = folder.new_attempt()
    if record is not None:
        records.write_json(attempt.record, record)
    for which in (0, None):
        found = saved(folder, which)
        assert found.good is good
        assert said in found.words


def test_nothing_is_known_of_no_attempt(tmp_path: Path) -> None:
    assert saved(RunFolder.create(tmp_path / "run"), None).good is False


def test_the_stop_file_is_whole(tmp_path: Path) -> None:
    attempt = RunFolder.create(tmp_path / "run").new_attempt()
    for _ in range(2):
        write_stop_file(attempt)
    assert [path.name for path in attempt.path.iterdir()] == ["stop"]
    assert attempt.stop_file.read_text().startswith("seatrial stop 20")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A run folder and a process that holds it as a supervisor does."""
    folder = RunFolder.create(tmp_path / "run").path
    words = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield folder, process
        process.kill()


def test_the_holder_of_the_lock_is_found_and_the_lock_not_taken(holder: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, process = holder
    for _ in range(3):
        assert supervisor(folder, look()) == process.pid
    with held(process.pid, folder) as handle:
        assert handle is not None
    assert send(folder, signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    assert supervisor(folder, look()) is None
    assert send(folder, signal.SIGTERM) is False


def test_a_process_that_does_not_hold_the_folder_gets_no_signal(holder: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, _ = holder
    with held(os.getpid(), folder) as handle:
        assert handle is None
    other = RunFolder.create(folder.parent / "other").path
    assert send(other, signal.SIGTERM) is False


def test_a_process_that_is_gone_gets_no_signal(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    with held(gone.pid, tmp_path) as handle:
        assert handle is None
