"""Run folders for the test rank program, and the real supervisor over them in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.spec.failures import load_failures

PROGRAM = Path(__file__).parent / "programs.py"
SOURCES = Path(__file__).resolve().parents[2] / "launchers"
STEPS = 4
HANG = {"steps": 1, "exit": "hang"}


def make_run(
    root: Path, fate: dict[str, Any], *, kind: str = "convergence", world: int = 3, steps: int = STEPS,
    failures: int = 0,
) -> RunFolder:  # fmt: skip
    """Write a run folder as submission writes it, for ranks of the test program. ``failures``: how many may happen
    without a newer checkpoint; at 0 the first one ends the run."""
    folder = RunFolder.create(root / f"test-{kind}-run")
    fields = {
        "schedule.train_iters": {"value": steps, "owner": "kind", "source": "test"},
        "schedule.lr_decay_iters": {"value": steps, "owner": "kind", "source": "test"},
        "evaluation.eval_iters": {"value": 1, "owner": "kind", "source": "test"},
    }
    spec = {
        "schema": 1, "run_id": folder.path.name, "kind": kind, "rehearsal": True, "world_size": world,
        "megatron_core": "0.19.2",
        "profile": {
            "device": "cpu", "host_python": "python3",
            "recovery": {"failures_without_progress": failures, "backoff_seconds": 0.1, "gate_checkpoints": True},
        },
        "failures": load_failures(), "environment": {"FATE": json.dumps(fate)},
        "arguments": ["--train-iters", str(steps)], "fields": fields,
        "gate": {"steps": steps, "save_steps": [steps], "learning_ratio": None},
    }  # fmt: skip
    records.write_json(folder.spec, spec)
    return folder


def request(folder: RunFolder, **wishes: Any) -> None:
    """Bring a run back by hand."""
    records.append_event(folder.events, "requeue_requested", **wishes)


def change_fate(folder: RunFolder, fate: dict[str, Any]) -> None:
    """Give the ranks of the next attempt another fate."""
    spec = records.read_json(folder.spec)
    spec["environment"]["FATE"] = json.dumps(fate)
    records.write_json(folder.spec, spec)


def start(
    folder: RunFolder,
    *,
    before: str = "",
    python: str = sys.executable,
    program: Sequence[str] = (sys.executable, str(PROGRAM)),
    stragglers: float = 300,
) -> subprocess.Popen[bytes]:
    """Start the supervisor. ``before`` is code that it runs first."""
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n"
        "from seatrial.supervise.main import supervise\n"
        "from seatrial.supervise.job import Patience\n"
        f"{before}\n"
        f"patience = Patience(stragglers={stragglers})\n"
        f"sys.exit(supervise({str(folder.path)!r}, {list(program)!r}, patience))"
    )
    # A shell that starts the tests in the background has them ignore SIGINT.
    return subprocess.Popen(
        [python, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def supervise(folder: RunFolder, **options: Any) -> tuple[int, str]:
    """Run the supervisor to its end; return its exit code and the batch log."""
    process = start(folder, **options)
    output, _ = process.communicate(timeout=600)
    return process.returncode, output.decode()


def record(folder: RunFolder, attempt: int = 0) -> dict[str, Any]:
    return dict(records.read_json(folder.attempt(attempt).record))


def events(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return [event for event in records.read_lines(folder.events) if event["event"] == name]


def steps(folder: RunFolder) -> list[int]:
    return [step["step"] for step in records.read_lines(folder.metrics)]


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def pids_of(folder: RunFolder) -> list[int]:
    """The process ids of the first attempt's ranks."""
    found = events(folder, "ranks_started")
    return list(found[0]["pids"]) if found else []


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
