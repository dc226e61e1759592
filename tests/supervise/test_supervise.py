"""The real supervisor over real processes: how each way to end is told, recorded and turned into an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import exit_codes
from tests.run.test_checkpoint import make as make_checkpoint
from tests.run.test_checkpoint import torchs_names  # noqa: F401 - the look-alikes need their names

PROGRAM = Path(__file__).parent / "programs.py"
STEPS = 4


def make_run(root: Path, fate: dict[str, Any], *, kind: str = "convergence", world: int = 3) -> RunFolder:
    """Write a run folder as submission writes it, for ranks of the test program."""
    folder = RunFolder.create(root / f"test-{kind}-run")
    fields = {
        "schedule.train_iters": {"value": STEPS, "owner": "kind", "source": "test"},
        "schedule.lr_decay_iters": {"value": STEPS, "owner": "kind", "source": "test"},
        "evaluation.eval_iters": {"value": 1, "owner": "kind", "source": "test"},
    }
    spec = {
        "schema": 1, "run_id": folder.path.name, "kind": kind, "rehearsal": True, "world_size": world,
        "profile": {"device": "cpu", "host_python": "python3"}, "environment": {"FATE": json.dumps(fate)},
        "arguments": ["--train-iters", str(STEPS)], "fields": fields,
        "gate": {"steps": STEPS, "save_steps": [STEPS], "learning_ratio": None},
    }  # fmt: skip
    records.write_json(folder.spec, spec)
    return folder


def start(folder: RunFolder) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from seatrial.supervise.main import supervise\n"
        f"sys.exit(supervise({str(folder.path)!r}, [sys.executable, {str(PROGRAM)!r}]))"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def supervise(folder: RunFolder) -> int:
    process = start(folder)
    output, _ = process.communicate(timeout=60)
    assert b"Traceback" not in output, output.decode()
    return process.returncode


def record(folder: RunFolder, attempt: int = 0) -> dict[str, Any]:
    return dict(records.read_json(folder.attempt(attempt).record))


def wait_for(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def pids_of(folder: RunFolder) -> list[int]:
    found = [e for e in records.read_lines(folder.events) if e["event"] == "ranks_started"]
    return list(found[0]["pids"]) if found else []


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_complete(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"unfinished": True}})
    make_checkpoint(folder.checkpoints, STEPS)
    assert supervise(folder) == exit_codes.DONE
    done = record(folder)
    assert (done["outcome"], done["first_step"], done["last_step"]) == ("completed", 1, STEPS)
    assert done["ranks"] == [{"rank": r, "code": 0, "record": True} for r in range(3)]
    assert [m["step"] for m in records.read_lines(folder.metrics)] == [1, 2, 3, 4]
    evaluated = {e["which"] for e in records.read_lines(folder.events) if e["event"] == "evaluation"}
    assert evaluated == {"validation", "test"}


HANG = {"steps": 1, "exit": "hang"}


@pytest.mark.parametrize(
    ("fate", "code", "words"),
    [
        ({"1": {"steps": 2, "exit": 42, "message": "no luck"}, "all": HANG}, 42, ["rank 1", "exit code 42", "no luck"]),
        ({"2": {"steps": 2, "exit": 42}, "all": HANG | {"ignore_term": True}}, 42, ["rank 2"]),
        ({"0": {"steps": 2, "exit": "kill"}, "all": HANG}, 137, ["rank 0", "SIGKILL", "without an exit record"]),
        ({"all": {"steps": 3}}, exit_codes.NOT_DONE, ["step 3 of 4"]),
        ({"all": {"steps": 0, "final": False}}, exit_codes.NOT_DONE, ["step None of 4"]),
        ({"all": {"final": False}}, exit_codes.NOT_DONE, ["no final test and validation loss"]),
    ],
    ids=["exit 42", "others ignore TERM", "killed", "one step short", "no step", "no evaluation"],
)  # fmt: skip
def test_not_complete(tmp_path: Path, fate: dict[str, Any], code: int, words: list[str]) -> None:
    folder = make_run(tmp_path, fate)
    make_checkpoint(folder.checkpoints, STEPS)
    began = time.monotonic()
    assert supervise(folder) == code
    assert time.monotonic() - began < 20  # nobody waits for the ranks that hang
    failed = record(folder)
    assert failed["outcome"] == "failed"
    assert failed["exit_code"] == code
    for word in words:
        assert word in failed["reason"]
    assert not any(running(pid) for pid in pids_of(folder))


def test_exit_zero_without_a_checkpoint_is_not_complete(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    assert supervise(folder) == exit_codes.NOT_DONE
    assert "no whole checkpoint at step 4" in record(folder)["reason"]


def test_the_last_lines_of_the_first_failed_rank_are_kept(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"2": {"steps": 2, "exit": 3}, "all": HANG})
    supervise(folder)
    assert any("iteration        2/" in line for line in record(folder)["last_lines"])


def test_a_gate_is_judged_whatever_happened(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"steps": 3}}, kind="gate")
    assert supervise(folder) == exit_codes.NOT_DONE
    verdict = records.read_json(folder.verdict)
    assert verdict["verdict"] == "FAIL"
    assert [e["event"] for e in records.read_lines(folder.events)][-2:] == ["verdict", "decision"]


def test_a_nan_loss_fails_the_gate(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": {"nan_at": 3}}, kind="gate")
    make_checkpoint(folder.checkpoints, STEPS)
    assert supervise(folder) == exit_codes.VERDICT_FAIL
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
    assert record(folder)["outcome"] == "stopped"


def test_a_second_term_ends_the_ranks_at_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"all": HANG | {"ignore_term": True}})
    process = start(folder)
    wait_for(lambda: list(records.read_lines(folder.metrics)))
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert process.wait(10) != 0
    assert not any(running(pid) for pid in pids_of(folder))


def test_no_rank_outlives_a_killed_supervisor(slow_run: tuple[RunFolder, Any]) -> None:
    folder, process = slow_run
    pids = pids_of(folder)
    assert len(pids) == 3
    process.kill()
    wait_for(lambda: not any(running(pid) for pid in pids))


def test_a_broken_supervisor_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    folder.spec.write_text('{"kind": "gate"}')
    process = start(folder)
    process.communicate(timeout=30)
    assert process.returncode == exit_codes.SUPERVISOR_ERROR
    last = list(records.read_lines(folder.events))[-1]
    assert (last["event"], last["exit_code"]) == ("decision", exit_codes.SUPERVISOR_ERROR)
    assert "the supervisor broke" in last["reason"]


def test_ranks_do_not_believe_an_outer_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seatrial.supervise.ranks import LocalRanks

    for name in ("RANK", "SLURM_PROCID", "SUBMITIT_EXECUTOR", "MASTER_PORT"):
        monkeypatch.setenv(name, "7")
    log = tmp_path / "log"
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    ranks = LocalRanks([sys.executable, "-c", code], [log], {"MINE": "1"}, os.environ)
    while None in ranks.codes():
        time.sleep(0.02)
    seen = json.loads(log.read_text())
    assert (seen["RANK"], seen["WORLD_SIZE"], seen["MINE"]) == ("0", "1", "1")
    assert seen["MASTER_PORT"] != "7"
    assert not {"SLURM_PROCID", "SUBMITIT_EXECUTOR"} & set(seen)
