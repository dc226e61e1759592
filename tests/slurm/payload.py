#!/usr/bin/env python3
"""Stands where a rank's Python would: records where it runs, prints what a rank prints, ends as it is told.

Started as ``payload.py .../train/rank.py PLAN_JSON``: profile.rank_python names this file. ``FATE`` as in
tests/supervise/programs.py.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

RANK = int(os.environ["SLURM_PROCID"])
LINE = (
    " [2026-12-01 02:27:42.570068] iteration {step:8d}/{of:8d} | consumed samples: {step:12d} | "
    "elapsed time per iteration (ms): 20.0 | learning rate: 2.0E-06 | global batch size:     4 | lm loss: 4.5E+00 | "
    "loss scale: 1.0 | grad norm: 1.090 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
NAMES = (
    "SLURMD_NODENAME", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NODEID", "SLURM_CPUS_PER_TASK",
    "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "HYBRID_EP_CACHE_DIR", "SLURM_TOPOLOGY_ADDR", "NUMACTL",
    "USE_MNNVL",
)  # fmt: skip


def main() -> None:
    plan = json.loads(Path(sys.argv[2]).read_text())
    folder = Path(plan["attempt_folder"])
    parent = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    seen = {name: os.environ.get(name) for name in NAMES}
    seen |= {"argv": sys.argv[1:], "parent": parent, "names": sorted(os.environ), "cwd": str(Path.cwd())}
    aside = folder / f".seen-{RANK}"
    aside.write_text(json.dumps(seen))
    aside.replace(folder / f"seen-{RANK}.json")
    fates = json.loads(os.environ.get("FATE", "{}"))
    fate = fates.get(str(RANK), fates.get("all", {}))
    of = int(plan["arguments"][plan["arguments"].index("--train-iters") + 1])
    last = int(os.environ["SLURM_NTASKS"]) - 1
    for step in range(1, fate.get("steps", of) + 1):
        if last == RANK:
            print(LINE.format(step=step, of=of), flush=True)
        if Path(plan["stop_file"]).exists():
            break
        time.sleep(fate.get("pace", 0))
    end = fate.get("exit", 0)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "hang":
        time.sleep(600)
    record = {"schema": 1, "rank": RANK, "code": end, "how": "exit", "message": None}
    (folder / f"exit-{RANK:05d}.json").write_text(json.dumps(record))
    sys.exit(end)


if __name__ == "__main__":
    main()
