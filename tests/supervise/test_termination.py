"""Slurm's own words in the batch log for why it ended a job; lines of slurmstepd 24.11 and 22.05."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.supervise.termination import all_said_in, batch_log, said_in, size

HEAD = "slurmstepd-gb200-001: error: *** JOB 1 ON gb200-001 CANCELLED AT 2026-12-02T16:40:34"
STEP = "slurmstepd-gb200-001: error: *** STEP 1.0 ON gb200-001 CANCELLED AT 2026-12-02T16:40:34 ***"


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([f"{HEAD} DUE TO PREEMPTION ***"], "PREEMPTED"),
        ([f"{HEAD} DUE TO JOB REQUEUE ***"], "REQUEUED"),
        ([f"{HEAD} DUE TO TIME LIMIT ***"], "TIMEOUT"),
        ([f"{HEAD} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"], "NODE_FAIL"),
        ([HEAD.replace("-gb200-001", "") + " ***"], "CANCELLED"),  # of an older Slurm
        ([f"{HEAD} ***"], "CANCELLED"),
        ([f"{HEAD} DUE TO SOMETHING OF LATER ***"], None),
        ([STEP], None),
        ([HEAD.replace("JOB 1", "JOB 11") + " ***"], None),
        (["attempt 0: 8 ranks started"], None),
        ([], None),
        ([f"{HEAD} DUE TO PREEMPTION ***", "attempt 1", f"{HEAD} DUE TO TIME LIMIT ***"], "TIMEOUT"),
    ],
)
def test_said(tmp_path: Path, lines: list[str], word: str | None) -> None:
    log = batch_log(tmp_path, "1")
    log.write_text("\n".join([*lines, "\udcff"]), errors="surrogateescape")
    assert said_in(log, "1") == word


def test_only_what_came_since_counts(tmp_path: Path) -> None:
    log = batch_log(tmp_path, "1")
    assert said_in(log, "1") is None
    assert (size(log), all_said_in(log, "1")) == (0, [])
    log.write_text(f"{HEAD} DUE TO PREEMPTION ***\n")
    since = size(log)
    assert said_in(log, "1", since) is None
    with log.open("a") as stream:
        stream.write("x" * 100_000 + f"\n{HEAD} DUE TO JOB REQUEUE ***\n")
    assert said_in(log, "1", since) == "REQUEUED"
    assert said_in(log, "1") == "REQUEUED"
    assert all_said_in(log, "1") == ["PREEMPTED", "REQUEUED"]
