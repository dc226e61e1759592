"""Ranks as a job step: what needs no Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.run.layout import Attempt
from seatrial.supervise.srun import SrunRanks


def test_a_step_that_was_never_started_ends_without_a_word(tmp_path: Path) -> None:
    """A stop that comes before the ranks begin, or a question to Slurm that fails."""
    ranks = SrunRanks({"world_size": 4, "profile": {"nodes": 2}}, Attempt(tmp_path, 0), ["true"], {})
    with pytest.raises(SeatrialError, match="no Slurm job"):
        ranks.start(lambda nodes: None)
    assert ranks.end() == []
    assert ranks.end(1.0) == []
