#!/usr/bin/env python3
"""Stands where a rank's Python would, runs the real rank program in it, and spoils one step as it is told.

``FAULT`` is JSON: rank, step (or "evaluation"), how ("raise", "exit", "abort", "kill", "hang", "loop", "stop", "nan",
"import"), times (how often over all attempts; 1). ``PACE``: seconds that each step is slowed down by,
``SLOW_EVALUATION``: each micro batch of an evaluation.
Started as ``faulty.py .../train/rank.py PLAN_JSON``; ``PYTHON`` is the interpreter that has Megatron.
"""

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path


def due(fault: dict, step: object) -> bool:  # type: ignore[type-arg]
    """Whether the fault happens now; each time it does leaves a mark that outlives this process."""
    rank = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
    if fault.get("rank") not in (rank, "all") or step != fault["step"]:
        return False
    marks = Path(sys.argv[-1]).parents[2]
    before = len(list(marks.glob(f"fault-{rank}-*")))
    if before >= fault.get("times", 1):
        return False
    (marks / f"fault-{rank}-{before}").touch()
    return True


def spoil(fault: dict, pace: float) -> None:  # type: ignore[type-arg]
    sys.path.insert(0, str(Path(sys.argv[1]).resolve().parents[2]))
    from seatrial.train import forward

    real = forward.ForwardStep.__call__

    def spoiled(self, *words):  # type: ignore[no-untyped-def]
        evaluates = not words[1].training
        step = "evaluation" if evaluates else getattr(self.args, "curr_iteration", 0) + 1
        if evaluates:
            time.sleep(float(os.environ.get("SLOW_EVALUATION", "0")))
        if getattr(self, "slowed", None) != step:
            self.slowed = step
            time.sleep(0 if evaluates else pace)
            if fault and due(fault, step):
                happen(self, fault["how"])
        output, loss = real(self, *words)
        return (output * float("nan") if getattr(self, "poisoned", False) else output), loss

    forward.ForwardStep.__call__ = spoiled


def happen(step, how: str) -> None:  # type: ignore[no-untyped-def]
    if how == "raise":
        raise RuntimeError("the test wants it so")
    if how == "exit":
        os._exit(7)
    if how == "abort":
        os.abort()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(3600)
    while how == "loop":
        pass
    while how == "stop":  # also when it is continued, to leave its stack
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "nan":
        step.poisoned = True


if __name__ == "__mp_main__":
    runpy.run_path(sys.argv[0], run_name="__mp_main__")

if __name__ == "__main__":
    if sys.executable != os.environ["PYTHON"]:
        os.execv(os.environ["PYTHON"], [os.environ["PYTHON"], *sys.argv])
    wanted = json.loads(os.environ.get("FAULT", "{}"))
    if wanted.get("how") == "import":
        raise ModuleNotFoundError("No module named 'the_model'")
    if wanted or any(float(os.environ.get(name, "0")) for name in ("PACE", "SLOW_EVALUATION")):
        spoil(wanted, float(os.environ.get("PACE", "0")))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
