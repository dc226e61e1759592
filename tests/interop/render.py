"""Run by the environment of NeMo-Run: ``render.py CASES`` prints, as JSON, the script that it renders for each case.

A case: ``recipe``, ``profile``, ``kind``, and ``settings`` as (key, value) pairs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import nemo_run as run

from seatrial.interop import nemo_run
from seatrial.slurm.script import batch_script
from seatrial.spec.resolve import resolve


def render(case: dict[str, Any], home: Path) -> dict[str, Any]:
    spec = resolve(case["recipe"], case["profile"], case["kind"], [tuple(pair) for pair in case["settings"]])
    task = nemo_run.task(spec, allow_dirty=True, no_gate=None if case["kind"] == "gate" else "a test")
    executor = nemo_run.executor(spec, tunnel=run.LocalTunnel(job_dir=str(home / "jobs")))
    with run.Experiment(f"title-{home.name}", base_dir=str(home), clean_mode=True) as experiment:
        experiment.add(task, executor=executor, name="gate")
        experiment.dryrun(log=False, delete_exp_dir=False)
        info = experiment.jobs[0]._dryrun_info
        theirs = Path(experiment._exp_dir, "gate_sbatch.sh").read_text()
        inline = Path(experiment._exp_dir, "gate", "scripts", "gate.sh").read_text()
    run_id = nemo_run.run_folder(task).name
    return {
        "ours": batch_script(spec, run_id), "theirs": theirs, "command": info.request.launch_cmd, "inline": inline,
        "folder": str(nemo_run.run_folder(task)), "run_id": run_id,
    }  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        cases = json.loads(sys.argv[1])
        found = []
        for number, case in enumerate(cases):
            home = Path(root, str(number))
            home.mkdir()
            found.append(render(case, home))
    print("RENDERED " + json.dumps(found))
