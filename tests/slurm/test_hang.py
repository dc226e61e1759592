"""A rank stands still on the real Slurm, in real training: found in time, on record with its stack, and made good."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from tests.slurm import voyages
from tests.slurm.fleet import Sea
from tests.slurm.voyages import SAVES, STEPS

pytestmark = [pytest.mark.train, pytest.mark.campaign]  # tests/supervise/test_hang.py is the same without Slurm
STEP, LIMIT = 30, 8
LOOK = 4.0  # a look takes 0.1 s; this machine has other work, too


@pytest.mark.parametrize("how", ["stop", "loop"])
def test_a_rank_that_stands_still(cluster: Cluster, calm: RunFolder, tmp_path: Path, how: str) -> None:
    sea = Sea(cluster, tmp_path, calm)
    fault = {"rank": 1, "step": STEP, "how": how}
    settings = {"hang.step_minimum_seconds": LIMIT, "hang.step_factor": 2, "hang.py_spy": how == "loop"}
    folder = sea.embark(fault=fault, **settings)
    first, second = sea.ended_well(folder)
    (found,) = voyages.events(folder, "hang_detected")
    assert (found["phase"], found["step"], found["limit_seconds"]) == ("step", STEP, LIMIT)
    assert LIMIT <= found["silent_seconds"] < LIMIT + LOOK
    assert LIMIT <= seconds_after_the_last_step(folder, found) < LIMIT + LOOK

    hang = first["hang"]
    assert (first["class"], first["exit_code"]) == ("hang", 91)
    assert (first["first_failed_rank"], first["failed_node"]) == (1, first["nodes"][1])
    assert sorted(hang["stacks"]) == ["0", "1"]
    assert any("happen" in frame for frame in hang["stacks"]["1"])
    assert not any("happen" in frame for frame in hang["stacks"]["0"])
    assert hang["without_stack"] == ([1] if how == "stop" else [])
    for rank in (0, 1):
        log = folder.attempts()[0].rank_log(rank).read_text(errors="replace")
        assert "(most recent call first):" in log
    assert f"rank 1 {'answered only when continued, in' if how == 'stop' else 'is in'} happen" in first["class_why"]
    asked = [path.read_text() for path in folder.attempts()[0].path.glob("py-spy-*.log")]
    assert len(asked) == (2 if how == "loop" else 0), "one of each node, beside the ranks"
    assert all("py-spy is not installed" in text or "== process" in text for text in asked)
    assert first["decision"]["action"] == "restart"
    assert not any(rank["code"] == 0 for rank in first["ranks"]), "a rank that went on must not get far"
    assert (second["resume_step"], second["class"]) == (STEP - STEP % SAVES, "complete")
    assert second["last_step"] == STEPS


def seconds_after_the_last_step(folder: RunFolder, found: dict[str, Any]) -> float:
    """How long after the line of the last step before it, by the clock of the ranks."""
    steps = [s for s in voyages.read_steps(folder.metrics) if s.attempt == 0 and s.step < STEP]
    assert steps[-1].time is not None
    printed = datetime.fromisoformat(steps[-1].time).astimezone()
    return (datetime.fromisoformat(found["time"]) - printed).total_seconds()
