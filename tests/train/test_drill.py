"""The rank's side of a drill: at its step, once, in the ranks that are named, and on record before it happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.train.drill import SIGNALS, of
from seatrial.train.plan import Fault, Place, Plan, plan_from_json
from tests.train.harness import ROOT


def plan(folder: Path, fault: Fault | None) -> Plan:
    return Plan("r", 0, (), "0.19.2", 2, "cpu", True, folder, folder / "stop", "SIGUSR2", 100, {}, fault)


RANK = """
import sys
from pathlib import Path
sys.path.insert(0, {sources!r})
from seatrial.train.drill import of
from seatrial.train.plan import Fault, Place, Plan
folder = Path({folder!r})
fault = Fault({fault!r}, 5, (1,))
plan = Plan("r", 0, (), "0.19.2", 2, "cpu", True, folder, folder / "stop", "SIGUSR2", 100, {{}}, fault)
before = of(plan, Place(1, 1, 2))
for step in range(1, 8):
    for micro_batch in range(2):
        before(step)
        print(step, micro_batch, flush=True)
"""


def start(folder: Path, fault: str) -> subprocess.Popen[str]:
    code = RANK.format(sources=str(ROOT / "launchers"), folder=str(folder), fault=fault)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("fault", ["kill-rank", "kill-node", "truncate-checkpoint"])
def test_a_rank_is_gone_at_the_beginning_of_its_step(tmp_path: Path, fault: str) -> None:
    rank = start(tmp_path, fault)
    said, _ = rank.communicate(timeout=600)
    assert rank.returncode == -signal.SIGKILL
    assert [line for line in said.splitlines() if line[0] != "["][-1] == "4 1"
    mark = json.loads((tmp_path / "drill-00001.json").read_text())
    assert (mark["fault"], mark["step"], mark["rank"], mark["signal"]) == (fault, 5, 1, "SIGKILL")


def test_a_rank_stands_still_whoever_continues_it(tmp_path: Path) -> None:
    rank = start(tmp_path, "hang")
    try:
        for _ in range(3):
            _, status = os.waitpid(rank.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            assert (tmp_path / "drill-00001.json").is_file()
            rank.send_signal(signal.SIGCONT)
    finally:
        rank.kill()
    said, _ = rank.communicate(timeout=600)
    assert [line for line in said.splitlines() if line[0] != "["][-1] == "4 1"


@pytest.mark.parametrize(
    ("fault", "rank"), [(None, 1), (Fault("kill-rank", 5, (1,)), 0), (Fault("stop-signal", 5, (1,)), 1)]
)
def test_other_ranks_have_no_part_in_it(tmp_path: Path, fault: Fault | None, rank: int) -> None:
    assert of(plan(tmp_path, fault), Place(rank, rank, 2)) is None


def test_where_no_mark_can_be_left_nothing_happens(tmp_path: Path) -> None:
    disturbance = of(plan(tmp_path / "missing", Fault("kill-rank", 5, (1,))), Place(1, 1, 2))
    assert disturbance is not None
    with pytest.raises(OSError):
        disturbance(5)  # and this process is still there


def test_the_plan_carries_it(tmp_path: Path) -> None:
    document = {
        "schema": 1, "run_id": "r", "attempt": 0, "arguments": [], "megatron_core": "0.19.2", "world_size": 2,
        "device": "cpu", "rehearsal": True, "attempt_folder": str(tmp_path),
        "stop_file": str(tmp_path / "stop"), "exit_signal": "SIGUSR2",
        "schedule_iters": 100, "environment": {},
    }  # fmt: skip
    assert plan_from_json(document).drill is None, "a plan of before there were drills"
    assert plan_from_json(document | {"drill": None}).drill is None
    fault = {"fault": "hang", "step": 9, "ranks": [2, 3]}
    assert plan_from_json(document | {"drill": fault}).drill == Fault("hang", 9, (2, 3))


def test_every_fault_that_a_rank_does_is_known() -> None:
    from seatrial.spec.drill import FAULTS

    assert set(SIGNALS) == set(FAULTS) - {"stop-signal"}
