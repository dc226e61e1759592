"""A ``run.SlurmExecutor`` of a profile."""

from __future__ import annotations

from typing import Any

from seatrial.errors import SeatrialError
from seatrial.interop.nemo_run import settings as of
from seatrial.spec.runspec import RunSpec


def executor(spec: RunSpec, *, tunnel: Any = None) -> Any:
    """Return a ``run.SlurmExecutor`` for tasks of this spec's profile and kind.

    ``tunnel``: a ``run.SSHTunnel`` or ``run.LocalTunnel``; None: Slurm's commands are on this machine. It requests what
    our own batch script requests; NeMo-Run's retries stay off, as the supervisor decides what is tried again.
    Raises SeatrialError where NeMo-Run is not installed, or the profile is none of Slurm's.
    """
    if spec.profile["executor"] != "slurm":
        raise SeatrialError(
            "not a profile of a Slurm cluster", key="profile.executor", value=spec.profile["executor"],
            fix="name a Slurm profile; on this machine: seatrial gate --profile local-cpu",
        )  # fmt: skip
    wanted = of.settings(spec)
    run = nemo_run()
    from seatrial.interop.nemo_run.job_details import OneLog

    return run.SlurmExecutor(
        **wanted.fields,
        additional_parameters=wanted.additional,
        tunnel=tunnel or run.LocalTunnel(job_dir=""),
        packager=run.Packager(),  # the task carries its code
        srun_args=[of.MARK],
        setup_lines=of.SETUP_LINES,
        job_name_prefix=of.JOB_NAME_PREFIX,
        job_details=OneLog(),
        retries=0,
    )


def nemo_run() -> Any:
    """Return the nemo_run module. Raises SeatrialError where it cannot be imported."""
    try:
        import nemo_run as run
    except ImportError as error:
        raise SeatrialError(
            f"NeMo-Run cannot be imported: {error}", rule="nemo-run 0.10 or 0.11, with leptonai below 0.47",
            fix='pip install "seatrial[nemo-run]"',
        ) from error  # fmt: skip
    return run
