"""Every error text that is retried, as Slurm prints it; and texts that are not."""

from __future__ import annotations

import pytest

from seatrial.slurm.passing import PASSING, Passing, passing, refused

UNCLEAR = [
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "slurm_load_jobs error: Zero Bytes were transmitted or received",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (send failure)",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive failure)",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (shutdown failure)",
    "sbatch: error: Batch job submission failed: Message receive failure",
    "sbatch: error: Batch job submission failed: Message send failure",
    "sbatch: error: Batch job submission failed: Unexpected missing socket error",
    "sbatch: error: Batch job submission failed: Connection timed out",
    "sbatch: error: Batch job submission failed: Connection reset by peer",
    "sbatch: error: Batch job submission failed: Broken pipe",
    "sbatch: error: Batch job submission failed: Transport endpoint is not connected",
]
NOT_TAKEN = [
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "slurm_load_jobs error: Communication connection failure",
    "sacct: error: Problem talking to the database: Connection refused",
    "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode",
    "sbatch: error: Batch job submission failed: Controller is in standby mode, try a different controller",
    "sbatch: error: Batch job submission failed: Rate limit exceeded, please retry momentarily",
    "sbatch: error: Too many pending RPCs",
    "sbatch: error: Batch job submission failed: Unable to create job record, try again",
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying.",
    "sbatch: error: Batch job submission failed: Resource temporarily unavailable",
    "slurm_update error: Job can not be altered now, try again later",
    "Job update not available right now, the DB index is being set, try again in a bit for job 7",
]
FINAL = [
    "sbatch: error: Batch job submission failed: Invalid partition name specified",
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    "sbatch: error: Batch job submission failed: Invalid qos specification",
    "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)",
    "allocation failure: Requested time limit is invalid (missing or exceeds some limit)",
    "sbatch: error: Batch job submission failed: Access/permission denied",
]


@pytest.mark.parametrize("words", UNCLEAR)
def test_may_have_been_carried_out(words: str) -> None:
    assert passing(words) is Passing.UNCLEAR and not refused(words)


@pytest.mark.parametrize("words", NOT_TAKEN)
def test_surely_not_carried_out(words: str) -> None:
    assert passing(words) is Passing.NOT_TAKEN and not refused(words)


@pytest.mark.parametrize("words", FINAL)
def test_refused_for_good(words: str) -> None:
    assert passing(words) is None and refused(words)


@pytest.mark.parametrize(
    "words", ["", "sbatch: unrecognized option '--segment=2'", "sbatch: error: Unable to open file x"]
)
def test_neither(words: str) -> None:
    assert passing(words) is None and not refused(words)


def test_every_row_has_its_example() -> None:
    for row in PASSING:
        assert any(row.text in words.lower() for words in UNCLEAR + NOT_TAKEN), row
