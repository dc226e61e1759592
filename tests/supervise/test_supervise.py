"""The real supervisor over real processes: how each way to end is told, recorded and turned into an exit code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import exit_codes
from tests.run.test_checkpoint import make as make_checkpoint
from tests.run.test_checkpoint import torchs_names  # noqa: F401 - the look-alikes need their names
from tests.supervise.harness import (
    HANG,
    SOURCES,
    STEPS,
    events,
    make_run,
    pids_of,
    record,
    running,
    start,
    steps,
    supervise,
    wait_for,
)
from tests.test_rooms import old_python

LOGS = Path(__file__).resolve().parents[1] / "judge" / "logs"


def test_complete(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"unfinished": True}})
    make_checkpoint(folder.checkpoints, STEPS)
    code, log = supervise(folder)
    assert code == exit_codes.DONE
    done = record(folder)
    assert (done["outcome"], done["first_step"], done["last_step"]) == ("completed", 1, STEPS)
    assert done["ranks"] == [{"rank": r, "code": 0, "record": True} for r in range(3)]
    assert steps(folder) == [1, 2, 3, 4]
    assert {e["which"] for e in events(folder, "evaluation")} == {"validation", "test"}
    assert sorted(e["rank"] for e in events(folder, "rank_exited")) == [0, 1, 2]
    assert "exit code 0: done" in log


@pytest.mark.parametrize(
    ("fate", "code", "words"),
    [
        (
            {"1": {"steps": 2, "exit": 42, "message": "out of luck"}, "all": HANG},
            42,
            ["rank 1", "code 42: out of luck"],
        ),
        ({"2": {"steps": 2, "exit": 42}, "all": HANG | {"ignore_term": True}}, 42, ["rank 2"]),
        ({"0": {"steps": 2, "exit": "kill"}, "all": HANG}, 137, ["rank 0", "SIGKILL", "without an exit record"]),
        ({"all": {"steps": 3}}, exit_codes.NOT_DONE, ["step 3 of 4"]),
        ({"all": {"steps": 0, "final": False}}, exit_codes.NOT_DONE, ["step None of 4"]),
        ({"all": {"final": False}}, exit_codes.NOT_DONE, ["no final test and validation loss"]),
        ({"2": {"steps": 2}, "all": {"exit": 3}}, 3, ["exit code 3"]),
        ({"all": {"first": 3}}, exit_codes.RESUME_MISMATCH, ["first step was 3, not 1"]),
    ],
    ids=["exit 42", "others ignore TERM", "killed", "one short", "no step", "no evaluation", "all", "step 3 first"],
)
def test_not_complete(tmp_path: Path, fate: dict[str, Any], code: int, words: list[str]) -> None:
    if code == exit_codes.RESUME_MISMATCH:
        fate["all"]["pace"] = 1
    folder = make_run(tmp_path, fate, kind="gate")
    make_checkpoint(folder.checkpoints, STEPS)
    began = time.monotonic()
    assert supervise(folder)[0] == code
    assert time.monotonic() - began < 20  # nobody waits for the ranks that hang
    failed = record(folder)
    assert failed["outcome"] == "failed"
    assert failed["exit_code"] == code
    for word in words:
        assert word in failed["reason"]
    assert not any(running(pid) for pid in pids_of(folder))


def test_the_other_ranks_are_ended_at_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"1": {"steps": 2, "exit": 42}, "all": HANG | {"ignore_term": True}})
    assert supervise(folder)[0] == 42
    times = [datetime.fromisoformat(e["time"]) for e in events(folder, "rank_exited")]
    assert (max(times) - min(times)).total_seconds() < 2
    ended = {r["rank"]: r for r in record(folder)["ranks"]}
    assert ended[1]["code"] == 42 and not ended[1]["killed_by_supervisor"]
    for rank in (0, 2):
        assert ended[rank] == {
            "rank": rank, "code": 137, "record": False, "wait_status": -9, "killed_by_supervisor": True,
            "how": "ended with signal SIGKILL, without an exit record",
        }  # fmt: skip


def test_a_rank_that_vanishes_with_code_0_is_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"1": {"exit": "vanish"}})
    make_checkpoint(folder.checkpoints, STEPS)
    supervise(folder)
    assert record(folder)["ranks"][1]["how"] == "ended with exit code 0, without an exit record"


def test_ranks_that_do_not_end_with_the_others_are_ended(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"1": HANG}, kind="gate")
    make_checkpoint(folder.checkpoints, STEPS)
    assert supervise(folder, stragglers=0.5)[0] == exit_codes.HUNG_AT_END
    assert "ranks 1 did not end" in record(folder)["reason"]
    assert not any(running(pid) for pid in pids_of(folder))


def test_exit_zero_without_a_checkpoint_is_not_complete(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    assert supervise(folder)[0] == exit_codes.NOT_DONE
    assert "no whole checkpoint at step 4" in record(folder)["reason"]


def test_99_of_100_steps_of_a_real_log_are_not_complete(tmp_path: Path) -> None:
    text = (LOGS / "ok100.log").read_text()
    short = tmp_path / "short.log"
    short.write_text("".join(x for x in text.splitlines(keepends=True) if "iteration      100/" not in x))
    folder = make_run(tmp_path, {"all": {"print": str(short), "final": False}}, kind="gate", steps=100)
    make_checkpoint(folder.checkpoints, 100)
    assert supervise(folder)[0] == exit_codes.NOT_DONE
    assert record(folder)["reason"] == "all ranks ended with 0, but at step 99 of 100"
    assert steps(folder) == list(range(1, 100))


def test_the_last_lines_of_the_first_failed_rank_are_kept(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"2": {"steps": 2, "exit": 3}, "all": HANG})
    _, log = supervise(folder)
    assert any("iteration        2/" in line for line in record(folder)["last_lines"])
    assert re.search(r"rank 2 on \S+: .*iteration +2/", log)


def test_a_gate_is_judged_whatever_happened(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"steps": 3}}, kind="gate")
    assert supervise(folder)[0] == exit_codes.NOT_DONE
    verdict = records.read_json(folder.verdict)
    assert verdict["verdict"] == "FAIL"
    assert [e["event"] for e in records.read_lines(folder.events)][-3:] == [
        "verdict", "decision", "supervisor_ended",
    ]  # fmt: skip


def test_a_nan_loss_fails_the_gate(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"nan_at": 3}}, kind="gate")
    make_checkpoint(folder.checkpoints, STEPS)
    assert supervise(folder)[0] == exit_codes.VERDICT_FAIL
    losses = next(r for r in records.read_json(folder.verdict)["rules"] if r["rule"] == "losses")
    assert (losses["verdict"], losses["steps"]) == ("FAIL", [3])


@pytest.fixture
def slow_run(tmp_path: Path) -> Iterator[tuple[RunFolder, subprocess.Popen[bytes]]]:
    """A run whose ranks take a second a step, after its first step."""
    folder = make_run(tmp_path, {"all": {"pace": 1, "final": False}})
    process = start(folder)
    wait_for(lambda: list(records.read_lines(folder.metrics)))
    yield folder, process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_the_ranks_to_save_and_end(slow_run: tuple[RunFolder, Any], number: signal.Signals) -> None:
    folder, process = slow_run
    process.send_signal(number)
    assert process.wait(20) == exit_codes.STOPPED
    assert folder.attempt(0).stop_file.read_text().startswith(number.name)
    assert (record(folder)["outcome"], record(folder)["stop"]) == ("stopped", number.name)
    assert [e["by"] for e in events(folder, "stop_requested")] == [number.name]


def test_a_stop_file_stops_too(slow_run: tuple[RunFolder, Any]) -> None:
    folder, process = slow_run
    folder.attempt(0).stop_file.touch()
    assert process.wait(20) == exit_codes.STOPPED
    assert record(folder)["stop"] == "the stop file"


def test_term_after_usr2_does_not_cut_a_save_short(slow_run: tuple[RunFolder, Any]) -> None:
    folder, process = slow_run
    for number in (signal.SIGUSR2, signal.SIGUSR2, signal.SIGTERM):
        process.send_signal(number)
        time.sleep(0.15)
    assert process.wait(20) == exit_codes.STOPPED
    assert all(r["code"] == 0 for r in record(folder)["ranks"])


def test_a_second_term_ends_the_ranks_at_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": HANG | {"ignore_term": True}})
    process = start(folder)
    wait_for(lambda: list(records.read_lines(folder.metrics)))
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert process.wait(10) == exit_codes.ENDED_AT_ONCE
    assert not any(running(pid) for pid in pids_of(folder))


def test_no_rank_outlives_a_killed_supervisor(slow_run: tuple[RunFolder, Any]) -> None:
    folder, process = slow_run
    pids = pids_of(folder)
    assert len(pids) == 3
    process.kill()
    wait_for(lambda: not any(running(pid) for pid in pids))


def test_what_a_rank_leaves_behind_is_ended(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"0": {"helper": True}, "1": {"helper": True, "exit": "kill"}}, world=2)
    supervise(folder)
    logs = "".join(folder.attempt(0).rank_log(rank).read_text() for rank in range(2))
    helpers = [int(pid) for pid in re.findall(r"helper (\d+)", logs)]
    assert len(helpers) == 2
    wait_for(lambda: not any(running(pid) for pid in helpers))


def test_the_compute_hosts_old_python_will_do(tmp_path: Path) -> None:
    python = old_python()
    if python is None:
        pytest.skip("no Python older than 3.12 on this machine")
    folder = make_run(tmp_path, {})
    make_checkpoint(folder.checkpoints, STEPS)
    code, log = supervise(folder, python=python)
    assert code == exit_codes.DONE, log


@pytest.mark.parametrize("how", [["-m", "seatrial.supervise"], [str(SOURCES / "seatrial" / "supervise")]])
def test_the_command_starts_by_name_and_by_path(tmp_path: Path, how: list[str]) -> None:
    by_name = how[0] == "-m"
    command = [sys.executable, *([] if by_name else ["-I"]), *how, str(tmp_path)]
    environment = {"PYTHONPATH": str(SOURCES)} if by_name else {}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (exit_codes.MISTAKE, "")
    assert "not a run folder" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_every_code_of_ours_has_a_meaning() -> None:
    codes = [v for k, v in vars(exit_codes).items() if k.isupper() and isinstance(v, int)]
    assert sorted(codes) == sorted(exit_codes.MEANINGS)
