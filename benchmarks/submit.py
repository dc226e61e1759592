"""What a submission costs beside bare submitit, with an sbatch that answers at once. Interleaved, median of N.

python benchmarks/submit.py [N]
Must: under 0.5 s of our own a submission (resolve, checks without Slurm, snapshot, run folder, script, one sbatch).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

LIMIT_SECONDS = 0.5


def ours(root: Path) -> None:
    """Do what `seatrial gate` does up to the accepted job."""
    from seatrial.check.findings import run_checks
    from seatrial.slurm.submit import prepare, submit
    from seatrial.spec.resolve import resolve

    settings = [("profile.paths.runs", str(root / "runs")), ("profile.paths.data", str(root / "data"))]
    spec = resolve("nemotron_3_nano_gb200", "slurm-sandbox", "gate", settings)
    prepare(spec)
    list(run_checks(spec))
    submit(spec, allow_dirty=True)


def bare(root: Path) -> None:
    """Submit a function with submitit alone."""
    import submitit

    executor = submitit.SlurmExecutor(root / "submitit")
    executor.update_parameters(time=10, nodes=2)
    executor.submit(os.getcwd)


def main(rounds: int) -> int:
    """Print the medians; return 1 where the bound does not hold."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        tools = root / "tools"
        tools.mkdir()
        answer = 'case "$*" in *parsable*) echo 1;; *) echo Submitted batch job 1;; esac'
        for tool, says in (("sbatch", answer), ("srun", "true")):
            (tools / tool).write_text(f"#!/bin/sh\n{says}\n")
            (tools / tool).chmod(0o755)
        os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
        ours(root)  # imports, the text, and git's cache count once
        bare(root)
        seconds: dict[str, list[float]] = {"seatrial": [], "bare submitit": []}
        for _ in range(rounds):
            for what, call in (("seatrial", ours), ("bare submitit", bare)):
                began = time.perf_counter()
                call(root)
                seconds[what].append(time.perf_counter() - began)
    medians = {what: statistics.median(values) for what, values in seconds.items()}
    for what, value in medians.items():
        print(f"{what:<14} {value * 1000:6.0f} ms")
    print(f"limit {LIMIT_SECONDS * 1000:.0f} ms: {'PASS' if medians['seatrial'] < LIMIT_SECONDS else 'FAIL'}")
    return int(medians["seatrial"] >= LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
