"""A rank program for the supervisor's tests: prints what a rank prints, and ends as it is told.

``FATE`` in the environment is JSON: rank (or "all") -> what becomes of it:
  steps, first: how many steps it runs, and from which on (after the plan's --ckpt-step where that is given)
  pace: seconds a step      print: a file to print instead of steps, as fast as it can
  nan_at: step without loss      final: whether it evaluates at the end      unfinished: ends without a newline
  pause: seconds after its last step      dumps: leaves its stack on SIGUSR1
  exit: a code, "kill", "stop" (SIGKILL, SIGSTOP to itself), "hang", "loop" or "vanish" (code 0, no exit record)
  message, time: for its exit record      ignore_term      helper: leaves a process behind
Exit records are written as the real ranks write them.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LINE = (
    " [2026-12-01 02:27:42.570068] iteration {step:8d}/{of:8d} | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): 20.0 | throughput per GPU (TFLOP/s/GPU): 0.0 | learning rate: 2.083333E-06 | "
    "global batch size:     4 | {loss}loss scale: 1.0 | grad norm: 1.090 | "
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
    if fate.get("dumps"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    if fate.get("helper"):
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"helper {helper.pid}", flush=True)
    words = plan["arguments"]
    of = int(words[words.index("--train-iters") + 1])
    loaded = int(words[words.index("--ckpt-step") + 1]) if "--ckpt-step" in words else 0
    first = fate.get("first", loaded + 1)
    last = rank == plan["world_size"] - 1
    if last and "print" in fate:
        sys.stdout.write(Path(fate["print"]).read_text())
        first = of + 1
    for step in range(first, fate.get("steps", of) + 1):
        if last:
            loss = "" if step == fate.get("nan_at") else f"lm loss: {5 - step / of:.6E} | "
            print(LINE.format(step=step, of=of, samples=4 * step, loss=loss), flush=True)
        if Path(plan["stop_file"]).exists():
            break
        time.sleep(fate.get("pace", 0))
    time.sleep(fate.get("pause", 0))
    if last and fate.get("final", True):
        for which in ("validation", "test"):
            print(FINAL.format(of=of, which=which), flush=True)
    end(plan, rank, fate)


def end(plan: dict, rank: int, fate: dict) -> None:  # type: ignore[type-arg]
    code = fate.get("exit", 0)
    if code == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if code == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while code == "loop":
        pass
    if code in ("hang", "stop"):
        time.sleep(600)
    if fate.get("unfinished"):
        sys.stdout.write("a last line without its end")
        sys.stdout.flush()
    if code == "vanish":
        os._exit(0)
    how = "completed" if code == 0 else "exit"
    record = {
        "schema": 1,
        "rank": rank,
        "code": code,
        "how": how,
        "message": fate.get("message"),
        "time": fate.get("time"),
    }
    (Path(plan["attempt_folder"]) / f"exit-{rank:05d}.json").write_text(json.dumps(record))
    sys.exit(code)


if __name__ == "__main__":
    main()
