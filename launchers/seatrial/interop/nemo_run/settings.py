"""From a spec to the fields of a ``run.SlurmExecutor``: our own directives, by NeMo-Run's names. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seatrial.interop.nemo_run.differences import BOUND
from seatrial.slurm.script import directives
from seatrial.spec.runspec import RunSpec

# What SlurmExecutor has a field for; every other directive is one of its additional_parameters.
_FIELDS = (
    "account", "partition", "qos", "nodes", "ntasks-per-node", "gpus-per-node", "gres", "cpus-per-task", "mem",
    "exclusive", "segment", "time", "signal", "open-mode",
)  # fmt: skip
# NeMo-Run starts a task by srun. As a step the supervisor would not be what Slurm signals ahead of the time limit, and
# at a preemption its child, the ranks' own srun, would be told to end them before they have saved. So the script's srun
# is a function that runs our task beside bash, which passes SIGUSR2 on, outlives SIGTERM as the supervisor does, and
# ends with its code. The mark tells our task from other uses of srun; it is the last word before the command.
MARK = "--comment=seatrial"
SETUP_LINES = f"""\
srun() {{
    case " $* " in *" {MARK} "*) ;; *) command srun "$@"; return ;; esac
    while [ "$1" != {MARK} ]; do shift; done
    shift
    "$@" &
    seatrial_task=$!
    wait "$seatrial_task"
    while kill -0 "$seatrial_task" 2> /dev/null; do wait "$seatrial_task"; done
    wait "$seatrial_task"
}}
trap '[ -z "$seatrial_task" ] || kill -USR2 "$seatrial_task"' USR2
trap : TERM"""
JOB_NAME_PREFIX = "seatrial."  # with one, NeMo-Run needs no account to make a name of


@dataclass(frozen=True)
class Settings:
    """``fields``: of SlurmExecutor. ``additional``: its additional_parameters; the value True is a flag."""

    fields: dict[str, Any]
    additional: dict[str, Any]


def settings(spec: RunSpec) -> Settings:
    """Return what the executor must have, so that NeMo-Run's script has our directives.

    Those that belong to one run, and not to where it runs, are left out: an executor may serve several tasks.
    Raises SeatrialError as ``directives`` does.
    """
    wanted = {name: value for name, value in directives(spec, "run", "/runs/run") if name not in BOUND}
    fields: dict[str, Any] = {"account": None}  # SlurmExecutor cannot be made without
    additional: dict[str, Any] = {}
    for name, value in wanted.items():
        place = fields if name in _FIELDS else additional
        place[name.replace("-", "_")] = True if value is None else value
    for name in ("time", "mem"):
        if name in fields:
            fields[name] = str(fields[name])
    return Settings(fields, additional)
