"""Runs to use the verbs on: real supervisors on this machine, whose ranks only pretend to train."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seatrial.run.layout import RunFolder

REPO = Path(__file__).resolve().parents[2]
NANO = "nemotron_3_nano_gb200"
COMMAND = [sys.executable, "-m", "seatrial"]
# Prints a step each `pace` seconds; asked to stop it says that it has saved, as Megatron does, and ends.
_RANK = """#!{python}
import json, os, sys, time
from pathlib import Path
plan = json.loads(Path(sys.argv[2]).read_text())
rank, last = int(os.environ["RANK"]), plan["world_size"] - 1
of = int(plan["arguments"][plan["arguments"].index("--train-iters") + 1])
LINE = (" [2026-12-01 02:27:42.570068] iteration {{step:8d}}/{{of:8d}} | consumed samples: {{step:12d}} | "
    "elapsed time per iteration (ms): 20.0 | learning rate: 2.0E-06 | global batch size:     4 | lm loss: 4.5E+00 | "
    "loss scale: 1.0 | grad norm: 1.090 | number of skipped iterations:   0 | number of nan iterations:   0 |")
for step in range(1, of + 1):
    time.sleep({pace})
    if rank == last:
        print(LINE.format(step=step, of=of), flush=True)
    if {stops} and Path(plan["stop_file"]).exists():
        time.sleep(0.5)  # a save takes longer than a look of the supervisor's
        if rank == last and {saves}:
            print(f"  successfully saved checkpoint from iteration {{step:7d}} to /nowhere", flush=True)
        break
record = {{"schema": 1, "rank": rank, "code": 0, "how": "exit", "message": None}}
(Path(plan["attempt_folder"]) / f"exit-{{rank:05d}}.json").write_text(json.dumps(record))
"""


def verb(*words: str, cwd: Path = REPO, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``seatrial`` in a process of its own, without a terminal."""
    return subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=600,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def start(
    root: Path, *, steps: int = 10_000, pace: float = 0.05, saves: bool = True, stops: bool = True, trains: bool = False
) -> RunFolder:
    """Start a local gate of ``steps`` steps; return once its first step is on record. ``trains``: with real ranks."""
    settings = {
        "profile.paths.runs": str(root / "runs"), "schedule.train_iters": str(steps),
        "checkpoint.save_interval": str(steps),
    }  # fmt: skip
    if not trains:
        rank = root / "rank.py"
        rank.write_text(_RANK.format(python=sys.executable, pace=pace, saves=saves, stops=stops))
        rank.chmod(0o755)
        settings["profile.rank_python"] = str(rank)
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    said = root / "submitted"
    with said.open("w") as stream:  # no pipe: the run inherits it and holds it to its end
        gate = [*COMMAND, "gate", NANO, "--detach", *words]
        code = subprocess.run(gate, cwd=REPO, stdout=stream, stderr=stream).returncode
    assert code == 0, said.read_text()
    folder = RunFolder(next((root / "runs").iterdir()))
    until(folder.metrics.is_file, "the first step")
    return folder


def until(holds: Callable[[], Any], what: str, patience: float = 600) -> Any:
    """Poll until ``holds()`` is true; return what it gave."""
    end = time.monotonic() + patience
    while not (value := holds()):
        assert time.monotonic() < end, f"not within {patience:.0f} s: {what}"
        time.sleep(0.05)
    return value
