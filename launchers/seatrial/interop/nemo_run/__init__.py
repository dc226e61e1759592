"""Runs as tasks of NeMo-Run experiments, on executors made from our profiles.

``executor`` makes a ``run.SlurmExecutor`` of a spec's profile, ``task`` a ``run.Script`` of the spec, for
``exp.add(task, executor=executor)``. The task carries all that the run needs (spec, code, script): on the cluster its
first process makes the run folder, then becomes the supervisor. So the experiment may be started from a machine that
does not see the cluster's file system. ``DIFFERENCES`` lists where NeMo-Run's script is not ours, and why.

NeMo-Run is imported by these functions, not by this module.
"""

from seatrial.interop.nemo_run.differences import DIFFERENCES, Difference, compare
from seatrial.interop.nemo_run.executor import executor
from seatrial.interop.nemo_run.task import run_folder, task

__all__ = ["DIFFERENCES", "Difference", "compare", "executor", "run_folder", "task"]
