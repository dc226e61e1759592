"""Lines per second and peak memory of the Megatron log parser, on a real log repeated to many lines.

Usage: python benchmarks/log_parser.py [LOG] [--lines N] [--only-steps]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "launchers"))

from seatrial.judge.parse import LogParser  # noqa: E402
from seatrial.judge.records import StepRecord  # noqa: E402

CHUNK = 1 << 16  # what a reader of a growing file would hand over at once


def main() -> None:
    """Parse and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("log", nargs="?", type=Path, default=REPOSITORY / "tests/judge/logs/ok100.log")
    arguments.add_argument("--lines", type=int, default=1_000_000)
    arguments.add_argument("--only-steps", action="store_true", help="keep only the iteration lines")
    options = arguments.parse_args()

    lines = options.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    if options.only_steps:
        lines = [line for line in lines if "consumed samples" in line]
    text = "".join(lines)
    parser, count, steps = LogParser(), 0, 0
    start = time.perf_counter()
    while count < options.lines:
        for at in range(0, len(text), CHUNK):
            # Records are counted and dropped, as the supervisor does: memory is the parser's own.
            steps += sum(isinstance(record, StepRecord) for record in parser.feed(text[at : at + CHUNK]))
        count += len(lines)
    parser.close()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} lines, {steps} step records, {seconds:.2f} s: {count / seconds:,.0f} lines/s, peak {peak:.0f} MiB")


if __name__ == "__main__":
    main()
