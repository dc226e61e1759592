"""Where a run in the foreground may start, from the environment alone."""

from __future__ import annotations

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm.here import require_allocation
from seatrial.spec.resolve import resolve

NANO = "nemotron_3_nano_gb200"
INSIDE = {"SLURM_JOB_ID": "12", "SLURM_JOB_NUM_NODES": "2"}


@pytest.mark.parametrize(
    ("profile", "environment", "said"),
    [
        ("slurm-sandbox", INSIDE, ""),
        ("slurm-sandbox", INSIDE | {"SLURM_JOB_NUM_NODES": "3"}, ""),
        # The shell of an salloc may be a step that holds nothing.
        ("slurm-sandbox", INSIDE | {"SLURM_STEP_ID": "4294967290"}, ""),
        ("slurm-sandbox", {}, "not inside an allocation"),
        ("slurm-sandbox", INSIDE | {"SLURM_JOB_NUM_NODES": "1"}, "has 1 nodes, the run needs 2"),
        ("slurm-sandbox", {"SLURM_JOB_ID": "12", "SLURM_NNODES": "1"}, "has 1 nodes"),
        ("slurm-sandbox", INSIDE | {"SLURM_STEP_ID": "0"}, "a job step itself"),
        ("local-cpu", INSIDE, "--here is for Slurm"),
    ],
)
def test_where_a_run_may_start(profile: str, environment: dict[str, str], said: str) -> None:
    spec = resolve(NANO, profile, "gate", [])
    if not said:
        assert require_allocation(spec, environment) == "12"
        return
    with pytest.raises(SeatrialError, match=said):
        require_allocation(spec, environment)
