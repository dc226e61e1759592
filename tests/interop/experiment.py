"""Run by the environment of NeMo-Run: ``experiment.py CASE`` runs an experiment of one task to its end.

A case: ``recipe``, ``kind``, ``settings`` as (key, value) pairs, and ``tunnel``: the fields of a SSHTunnel, or none,
then Slurm's commands are on this machine. ``no_gate``: a reason. Prints the run folder, and as JSON what NeMo-Run says
of the task.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import nemo_run as run

from seatrial.interop import nemo_run
from seatrial.spec.resolve import resolve


def main(case: dict[str, Any]) -> None:
    spec = resolve(case["recipe"], "slurm-sandbox", case["kind"], [tuple(pair) for pair in case["settings"]])
    tunnel = run.SSHTunnel(**case["tunnel"]) if case.get("tunnel") else None
    executor = nemo_run.executor(spec, tunnel=tunnel)
    task = nemo_run.task(spec, allow_dirty=True, no_gate=case.get("no_gate"))
    folder = str(nemo_run.run_folder(task))
    print(f"FOLDER {folder}", flush=True)
    with run.Experiment("voyage", skip_status_at_exit=True) as experiment:
        experiment.add(task, executor=executor, name="gate", tail_logs=case.get("tail_logs", False))
        experiment.run()
    said = experiment.status(return_dict=True)["gate"]
    print("SAID " + json.dumps({"folder": folder, "status": str(said["status"]), "job": said["job_id"]}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
