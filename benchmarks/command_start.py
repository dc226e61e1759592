"""How long commands take to start, beside `import submitit` alone. Interleaved, median of N.

python benchmarks/command_start.py [N]
Must: `--help` at most 5 times the import of submitit.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

NANO = "nemotron_3_nano_gb200"
SEATRIAL = [sys.executable, "-m", "seatrial"]
COMMANDS = {
    "import submitit": [sys.executable, "-c", "import submitit"],
    "--help": [*SEATRIAL, "--help"],
    "render": [*SEATRIAL, "render", NANO, "--profile", "gb200-8gpu"],
    "check": [*SEATRIAL, "check", NANO, "--profile", "local-cpu"],
    "verdict --log": [*SEATRIAL, "verdict", "--log", "tests/judge/logs/ok100.log"],
}


def main(rounds: int) -> int:
    """Print the table; return 1 where the bound does not hold."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    base = medians["import submitit"]
    for name, value in medians.items():
        print(f"{name:<16} {value * 1000:6.0f} ms  {value / base:5.2f} x")
    ratio = medians["--help"] / base
    print(f"--help is {ratio:.2f} x import submitit (must be at most 5)")
    return 0 if ratio <= 5 else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 9))
