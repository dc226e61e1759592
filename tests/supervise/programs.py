"""A rank program for the supervisor's tests: prints what a rank prints, and ends as it is told.

``FATE`` in the environment is JSON: rank -> {"steps": N, "exit": code | "kill" | "hang", "ignore_term": bool,
"final": bool}. Rank logs, exit records and checkpoints are written as the real ranks write them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

LINE = (
    " [2026-12-01 02:27:42.570068] iteration {step:8d}/{of:8d} | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): 20.0 | throughput per GPU (TFLOP/s/GPU): 0.0 | learning rate: 2.083333E-06 | "
    "global batch size:     4 | lm loss: {loss} | loss scale: 1.0 | grad norm: 1.090 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
FINAL = " validation loss at iteration {of} on {which} set | lm loss value: 3.634062E+00 | lm loss PPL: 3.786631E+01 | "


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    rank = int(os.environ["RANK"])
    fates = json.loads(os.environ["FATE"])
    fate = fates.get(str(rank), fates.get("all", {}))
    if fate.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    of = int(plan["arguments"][plan["arguments"].index("--train-iters") + 1])
    last = rank == plan["world_size"] - 1
    for step in range(1, fate.get("steps", of) + 1):
        if last:
            loss = "NAN" if step == fate.get("nan_at") else f"{5 - step / of:.6E}"
            print(LINE.format(step=step, of=of, samples=4 * step, loss=loss), flush=True)
        if Path(plan["stop_file"]).exists():
            break
        time.sleep(fate.get("pace", 0))
    if last and fate.get("final", True):
        for which in ("validation", "test"):
            print(FINAL.format(of=of, which=which), flush=True)
    end = fate.get("exit", 0)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "hang":
        time.sleep(600)
    if fate.get("unfinished"):
        sys.stdout.write("a last line without its end")
        sys.stdout.flush()
    how = "completed" if end == 0 else "exit"
    record = {"schema": 1, "rank": rank, "code": end, "how": how, "message": fate.get("message")}
    (Path(plan["attempt_folder"]) / f"exit-{rank:05d}.json").write_text(json.dumps(record))
    sys.exit(end)


if __name__ == "__main__":
    main()
