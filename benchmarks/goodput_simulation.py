"""What failures cost a run of 48,000 steps: simulated runs through the supervisor's own decisions, against the ideal.

    .venv/bin/python benchmarks/goodput_simulation.py [RUNS]

Must: at each published failure rate all runs (200) end at step 48,000, with a mean goodput within 2 points of the
ideal (docs/goodput.md). Below: what the shipped save interval costs, and rates that no job of 8 or 64 GPUs has.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "launchers")]

from tests.simulation import STEPS, sail  # noqa: E402
from tests.simulation_conditions import HOUR, RATES, Conditions, all_conditions  # noqa: E402

LIMIT = 0.02
SHIPPED_INTERVAL = 1000


def row(name: str, conditions: list[Conditions], runs: int, interval: int | None = None) -> bool:
    """Simulate and print one line; return whether all runs ended near the ideal."""
    results = [sail(conditions[seed % len(conditions)], seed, interval)[1] for seed in range(runs)]
    ended = sum(result.reached == STEPS and result.decision.action == "done" for result in results)
    goodput, ideal = fmean(result.goodput for result in results), fmean(result.ideal for result in results)
    failures = sum(
        count for result in results for kind, count in result.classes.items() if kind not in ("complete", "time_limit")
    )
    slots = sum(result.classes.get("time_limit", 0) for result in results)
    difference = 100 * (goodput - ideal)
    print(f"| {name} | {ended} of {runs} | {slots} | {failures} | {goodput:.2%} | {ideal:.2%} | {difference:+.2f} |")
    for reason in sorted({result.decision.reason for result in results if result.reached < STEPS}):
        print(f"  given up: {reason}", file=sys.stderr)
    return ended == runs and abs(goodput - ideal) <= LIMIT


def main(runs: int) -> int:
    """Print the table; return 1 where a bound does not hold."""
    began = time.perf_counter()
    print("| failure rate | ended | time limits | failures | goodput | ideal | points |")
    print("|---|---|---|---|---|---|---|")
    good = [row(name, all_conditions(per_gpu=seconds), runs) for name, seconds in RATES.items()]
    for name, seconds in RATES.items():
        conditions = [at for at in all_conditions(per_gpu=seconds) if at.save == 20]
        row(f"the same, 20 s a save, saved every {SHIPPED_INTERVAL} steps: {name}", conditions, runs, SHIPPED_INTERVAL)
    row("8 and 64 GPUs that fail as 1,024 do: one per 7.9 h", all_conditions(mttf=7.9 * HOUR, cluster=256), runs)
    row("8 and 64 GPUs that fail as 16,384 do: one per 3.1 h", all_conditions(mttf=3.1 * HOUR, cluster=4096), runs)
    verdict = "PASS" if all(good) else "FAIL"
    print(f"all end, within {100 * LIMIT:.0f} points: {verdict} ({time.perf_counter() - began:.0f} s)")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
