"""A run of 48,000 steps and 30 attempts: how long its page takes to build and how large it is, and how its log is read.

Each part is measured in a process of its own. Exit code 1 where a limit is broken.

Usage: python benchmarks/report_page.py [--steps N] [--attempts N]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "launchers"), str(REPOSITORY)]

PAGE_SECONDS, PAGE_BYTES = 10.0, 5_000_000
LOG_SECONDS, LOG_BYTES = 3.0, 200 * 1024 * 1024


def page(run: Path) -> dict[str, Any]:
    """Build the page of the run."""
    from seatrial.report.page import run_page
    from seatrial.run.layout import RunFolder

    began = time.perf_counter()
    text = run_page(RunFolder(run), None)
    return {"seconds": time.perf_counter() - began, "bytes": len(text.encode())}


def markdown(run: Path) -> dict[str, Any]:
    """Build the block for a pull request."""
    from seatrial.report.markdown import validation_block
    from seatrial.run.layout import RunFolder

    began = time.perf_counter()
    text = validation_block(RunFolder(run))
    return {"seconds": time.perf_counter() - began, "bytes": len(text.encode())}


def log(run: Path) -> dict[str, Any]:
    """Read all logs of the run, keeping every record as the judge does."""
    from seatrial.judge.collect import read_log
    from seatrial.judge.records import StepRecord

    began = time.perf_counter()
    found = [record for path in sorted(run.glob("attempts/*/rank-*.log")) for record in read_log(path)]
    return {"seconds": time.perf_counter() - began, "steps": sum(isinstance(one, StepRecord) for one in found)}


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {"page": page, "markdown": markdown, "log": log}


def measured(part: str, run: Path) -> dict[str, Any]:
    """Return what a part took, with the peak memory of its process in bytes."""
    done = subprocess.run(
        [sys.executable, __file__, "--part", part, "--run", str(run)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout))


def peak() -> int:
    """Return the peak memory of this process in bytes; getrusage would count that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def main() -> int:
    """Measure, print, and hold against the limits."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=48_000)
    arguments.add_argument("--attempts", type=int, default=30)
    arguments.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.part:
        found = PARTS[options.part](options.run)
        print(json.dumps(found | {"peak": peak()}))
        return 0

    from tests.synthetic_run import write_run

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run = write_run(Path(folder) / "run", steps=options.steps, attempts=options.attempts, logs=True)
        written = time.perf_counter() - began
        print(f"run: {options.steps} steps, {options.attempts} attempts, written and judged in {written:.1f} s")
        found = {part: measured(part, run.path) for part in PARTS}
    for part, one in found.items():
        more = f"{one['bytes'] / 1e6:.2f} MB" if "bytes" in one else f"{one['steps']} steps"
        print(f"{part}: {one['seconds']:.2f} s, peak {one['peak'] / 1024**2:.0f} MiB, {more}")
    broken = [
        words for words, over in (
            (f"the page took {PAGE_SECONDS:.0f} s or more", found["page"]["seconds"] >= PAGE_SECONDS),
            (f"the page has {PAGE_BYTES / 1e6:.0f} MB or more", found["page"]["bytes"] >= PAGE_BYTES),
            (f"the log took {LOG_SECONDS:.0f} s or more", found["log"]["seconds"] >= LOG_SECONDS),
            (f"reading the log took {LOG_BYTES / 1024**2:.0f} MiB or more", found["log"]["peak"] >= LOG_BYTES),
        ) if over
    ]  # fmt: skip
    for words in broken:
        print(f"LIMIT BROKEN: {words}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
