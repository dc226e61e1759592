"""Start the ranks of an attempt as the supervisor does: one process per rank, logs and records in a folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RANK = ROOT / "launchers" / "seatrial" / "train" / "rank.py"
MEGATRON_CORE = version("megatron-core")  # of the environment that runs the tests: 0.19, or 0.18 in the campaign
STEP = re.compile(r"iteration\s+(\d+)/\s*\d+ \|")


@cache
def rendered(recipe: str) -> tuple[str, ...]:
    """The rehearsal's Megatron arguments of a shipped recipe's gate, as ``seatrial render`` prints them."""
    command = [sys.executable, "-m", "seatrial.cli.main", "render", recipe, "--kind", "gate"]
    command += ["--profile", "local-cpu", "--set", f"profile.megatron_core={MEGATRON_CORE}", "--format", "args"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "launchers")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    return tuple(shlex.split(done.stdout))


def changed(arguments: Sequence[str], *, without: Sequence[str] = (), **values: object) -> list[str]:
    """Return ``arguments`` with options set (None removes one, True is a bare flag) and flags removed."""
    names = {"--" + name.replace("_", "-") for name in values} | set(without)
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if argument.startswith("--"):
            skip = argument in names
        if not skip:
            kept.append(argument)
    for name, value in values.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            kept += (
                [flag]
                if value is True
                else [flag, *([str(v) for v in value] if isinstance(value, list) else [str(value)])]
            )
    return kept


@dataclass
class Attempt:
    """A started attempt: its folder and its rank processes."""

    folder: Path
    plan: dict[str, Any]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def log(self, rank: int = 0) -> str:
        return (self.folder / f"rank-{rank:05d}.log").read_text(encoding="utf-8", errors="replace")

    def record(self, rank: int = 0) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.folder / f"exit-{rank:05d}.json").read_text())
        return record

    def wait(self, seconds: float = 400) -> list[int]:
        """Wait for all ranks; kills them, and says so, after ``seconds``."""
        end = time.monotonic() + seconds
        try:
            return [process.wait(max(0.1, end - time.monotonic())) for process in self.processes]
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    process.wait()

    def wait_for_step(self, step: int, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not any(s >= step for s in self.steps()):
            assert time.monotonic() < end, f"no step {step}: {self.log()[-2000:]}"
            assert all(process.poll() is None for process in self.processes), self.log()[-3000:]
            time.sleep(0.1)

    def steps(self) -> dict[int, dict[str, str]]:
        """The printed fields of each step, from the last rank's log."""
        found = {}
        for line in self.log(self.plan["world_size"] - 1).splitlines():
            match = STEP.search(line)
            if match:
                pairs = (part.rsplit(":", 1) for part in line.split("|")[1:] if ":" in part)
                found[int(match[1])] = {name.strip(): value.strip() for name, value in pairs}
        return found

    def losses(self, name: str = "lm loss") -> list[float]:
        return [float(fields[name]) for _, fields in sorted(self.steps().items())]

    def evidence(self, when: str) -> dict[str, Any]:
        lines = [line for line in self.log().splitlines() if line.startswith("[seatrial evidence] ")]
        records = [json.loads(line.partition("] ")[2]) for line in lines]
        (record,) = [record for record in records if record["when"] == when]
        return dict(record)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(
    folder: Path,
    arguments: Sequence[str],
    *,
    ranks: int = 2,
    environment: dict[str, str] | None = None,
    schedule_iters: int = 48000,
    world_size: int | None = None,
    device: str = "cpu",
) -> Attempt:
    """Write the plan and start the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = {
        "schema": 1,
        "run_id": "test",
        "attempt": 0,
        "arguments": list(arguments),
        "megatron_core": MEGATRON_CORE,
        "world_size": world_size or ranks,
        "device": device,
        "rehearsal": True,
        "attempt_folder": str(folder),
        "stop_file": str(folder / "stop"),
        "exit_signal": "SIGUSR2",
        "schedule_iters": schedule_iters,
        "environment": {"CUDA_VISIBLE_DEVICES": ""},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    attempt = Attempt(folder, plan)
    port = str(free_port())
    for rank in range(ranks):
        variables = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            **(environment or {}),
        }
        variables.pop("PYTHONPATH", None)
        with (folder / f"rank-{rank:05d}.log").open("wb") as log:
            attempt.processes.append(
                subprocess.Popen(
                    [sys.executable, str(RANK), str(folder / "plan.json")],
                    env=variables,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    start_new_session=True,
                )
            )
    return attempt


def run_owned(save: Path | None = None, load: Path | None = None) -> list[str]:
    """The arguments that a run owns."""
    owned = ["--exit-signal-handler", "--exit-signal", "SIGUSR2"]
    if save is not None:
        owned += ["--save", str(save)]
    if load is not None:
        owned += ["--load", str(load)]
    return owned
