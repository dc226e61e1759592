"""Daemons by process id: what is recorded is ended, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.run.records import read_json, write_json
from seatrial.sandbox import processes
from seatrial.sandbox.processes import Process


def start(folder: Path, *command: str) -> Process:
    return processes.start("one", command, folder, folder / "log", {"PATH": "/usr/bin:/bin"}, folder)


def test_a_daemon_is_recorded_and_ended(tmp_path: Path) -> None:
    started = start(tmp_path, "sleep", "60")
    assert processes.recorded(tmp_path, "one") == started
    assert processes.all_recorded(tmp_path) == {"one": started}
    assert os.getsid(started.pid) == started.pid
    started.end()
    assert not started.alive
    assert processes.recorded(tmp_path, "one") is None
    assert not Path(f"/proc/{started.pid}").exists(), "a child of ours is reaped"


def test_a_daemon_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    started = start(tmp_path, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    assert processes.wait(lambda: "ready" in (tmp_path / "log").read_text(), 10)
    began = time.monotonic()
    started.end(patience=0.3)
    assert not started.alive
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("other", [{"start": 1}, {"boot": "another boot"}])
def test_a_recycled_id_is_left_alone(other: dict[str, object], tmp_path: Path) -> None:
    started = start(tmp_path, "sleep", "60")
    try:
        stale = dataclasses.replace(started, **other)
        stale.end(signal.SIGKILL, 0.1)
        assert started.alive
        write_json(tmp_path / "one.json", read_json(tmp_path / "one.json") | other)
        assert processes.recorded(tmp_path, "one") is None
    finally:
        started.end(signal.SIGKILL)


def test_all_that_descends_is_found(tmp_path: Path) -> None:
    started = start(tmp_path, "sh", "-c", "sh -c 'sleep 61 & sleep 62' & sleep 63")
    found: list[Process] = []

    def four() -> bool:
        found[:] = processes.with_descendants([started])
        for one in found:
            one.send(signal.SIGCONT)
        return len(found) >= 4

    assert processes.wait(four, 10)
    processes.end_all(processes.with_descendants([started]), signal.SIGKILL)
    assert not any(one.alive for one in found)


def test_who_holds_a_file(tmp_path: Path) -> None:
    (tmp_path / "held").touch()
    started = start(tmp_path, "sh", "-c", f"exec 5<{tmp_path}/held; exec sleep 60")
    try:
        program = Path("/bin/sleep").resolve()
        held, other = (tmp_path / "held").resolve(), (tmp_path / "other").resolve()
        assert processes.wait(lambda: processes.holding([other, held], program) == [started], 10)
        assert processes.holding([other], program) == []
    finally:
        started.end(signal.SIGKILL)


def test_other_children_are_not_reaped(tmp_path: Path) -> None:
    child = subprocess.Popen(["sh", "-c", "exit 7"])
    time.sleep(0.2)
    processes.holding([tmp_path], Path("/none"))
    assert child.wait() == 7


def test_a_program_that_ends_at_once_shows_its_words(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n".join(f"line {n}" for n in range(20)))
    assert processes.last_lines(tmp_path / "log", 2) == "  | line 18\n  | line 19"
    assert "no" in processes.last_lines(tmp_path / "missing")
    with pytest.raises((SeatrialError, FileNotFoundError)):
        start(tmp_path, "no-such-program")
