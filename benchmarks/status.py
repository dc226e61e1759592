"""The state of 1, 100 and 1000 runs with fake squeue and sacct: calls to Slurm, our own time, memory.

python benchmarks/status.py
Must: one squeue and one sacct call whatever the number of runs, and under 1 s of our own for 1000.
First the question alone, then the whole command `seatrial status --json` over as many run folders (a spec, 2,000 steps
and 300 events each), Python's start included. Own time is the whole less what two bare runs of the fakes take; memory
is the peak that the question adds, or the peak of the command's process.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launchers"))

from seatrial.run import records
from seatrial.slurm.client import Slurm
from seatrial.slurm.state import JobRef, states
from seatrial.slurm.table import SEPARATOR
from seatrial.spec.resolve import resolve

LAUNCHERS = sys.path[0]
ROUNDS = 5
NAME = "nemotron_3_nano_gb200-convergence-20261201-000000-abc{:03d}"


def fakes(folder: Path, runs: int) -> None:
    """Write the fake commands: two thirds of the jobs are over, each after two requeues; one third is running."""
    queue, accounting = [], []
    for n in range(runs):
        name, job, ends = NAME.format(n), str(5_000_000 + n), ["REQUEUED", "REQUEUED", "COMPLETED"]
        if n % 3 == 0:
            ends[-1] = "RUNNING"
            queue.append(
                [job, "ada", "1000", "RUNNING", "1800000000", "1800000001", "N/A", "gb200-[001-016]", "None", name]
            )
        for restarts, state in enumerate(ends):
            times = [str(1_800_000_000 + 20_000 * restarts + n) for n in (0, 100, 14_500)]
            accounting.append(
                [job, "ada", "1000", state, *times, "gb200-[001-016]", "0:0", "0:0", str(restarts), "", "None", name]
            )
    for command, table in (("squeue", queue), ("sacct", accounting)):
        answer = folder / f"{command}.answer"
        answer.write_text("".join(SEPARATOR.join(row) + "\n" for row in table))
        script = folder / command
        script.write_text(f"#!/bin/sh\necho >> {folder}/calls\nexec cat {answer}\n")
        script.chmod(0o755)


def measure(runs: int) -> tuple[int, float, float]:
    """Return calls to Slurm, our own median seconds, and the peak of added memory in MiB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fakes(folder, runs)
        slurm = Slurm(dict(os.environ) | {"PATH": f"{folder}:{os.environ['PATH']}"})
        refs = [
            JobRef(NAME.format(n), str(5_000_000 + n), "ada", "2027-01-15T08:00:00+00:00", folder) for n in range(runs)
        ]
        own = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for command in ("squeue", "sacct"):
                subprocess.run([str(folder / command)], check=True, capture_output=True)
            bare = time.perf_counter() - began
            began = time.perf_counter()
            found = states(refs, slurm)
            own.append(time.perf_counter() - began - bare)
            assert {state.state for state in found.values()} <= {"RUNNING", "COMPLETED"} and len(found) == runs
        (folder / "calls").unlink()
        tracemalloc.start()
        states(refs, slurm)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        return len((folder / "calls").read_text().splitlines()), statistics.median(own), peak


def write_runs(runs: Path, count: int) -> None:
    """Write run folders such as convergence runs leave behind them."""
    spec = resolve("nemotron_3_nano_gb200", "gb200-64gpu", "convergence", []).to_json()
    spec |= {
        "arguments": [f"--argument-{n}" for n in range(200)],
        "created": records.now(),
        "provenance": {"host": "login"},
    }
    step = {
        "schema": 1, "attempt": 0, "of": 48_000, "time": "2026-12-01T02:27:42.570068", "consumed_samples": 4,
        "step_time_ms": 89.7, "tflops_per_gpu": None, "learning_rate": 2.08e-06, "global_batch_size": 4,
        "losses": {"lm loss": 4.85, "load_balancing_loss": 1.0, "seq_load_balancing_loss": 1.0}, "loss_scale": 1.0,
        "grad_norm": 1.09, "skipped": 0, "nan": 0, "recovered": False,
    }  # fmt: skip
    metrics = "".join(json.dumps(step | {"step": n}, separators=(",", ":")) + "\n" for n in range(1, 2001))
    for n in range(count):
        folder = runs / NAME.format(n)
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(json.dumps(spec | {"run_id": folder.name}))
        (folder / "metrics.jsonl").write_text(metrics)
        sent = {"executor": "slurm", "job_id": str(5_000_000 + n), "user": "ada", "submit_time": "2027-01-15T08:00:00"}
        events: list[dict[str, object]] = [{"event": "submitted", **sent}, {"event": "attempt_started", "attempt": 0}]
        events += [{"event": "checkpoint_saved", "step": k, "path": str(folder), "attempt": 0} for k in range(298)]
        lines = [json.dumps({"schema": 1, "time": records.now(), **event}, separators=(",", ":")) for event in events]
        (folder / "events.jsonl").write_text("\n".join(lines) + "\n")


def measure_command(count: int) -> tuple[int, float, float]:
    """Return calls to Slurm, the command's own median seconds, and the peak memory of its process in MiB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fakes(folder, count)
        write_runs(folder / "runs", count)
        environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": LAUNCHERS, "HOME": name}
        words = [sys.executable, "-m", "seatrial", "status", "--json", "--runs", str(folder / "runs")]
        own = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for command in ("squeue", "sacct"):
                subprocess.run([str(folder / command)], check=True, capture_output=True)
            bare = time.perf_counter() - began
            (folder / "calls").unlink()
            began = time.perf_counter()
            done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
            own.append(time.perf_counter() - began - bare)
            assert len(json.loads(done.stdout)["runs"]) == count
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return len((folder / "calls").read_text().splitlines()), statistics.median(own), peak


def main() -> int:
    """Print the tables; return 1 where a bound does not hold."""
    good = True
    for runs in (1, 100, 1000):
        calls, seconds, memory = measure(runs)
        print(f"{runs:5} runs  {calls} calls  {seconds * 1000:7.1f} ms of our own  {memory:5.1f} MiB")
        good = good and calls == 2 and seconds < 1
    print("seatrial status --json:")
    for runs in (1, 100, 1000):
        calls, seconds, memory = measure_command(runs)
        print(f"{runs:5} runs  {calls} calls  {seconds * 1000:7.1f} ms of our own  {memory:5.1f} MiB in all")
        good = good and calls == 2 and seconds < 1
    print("must: 2 calls, under 1000 ms")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
