from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_room.fakes import FakeCommands


@pytest.fixture
def fake(tmp_path: Path) -> FakeCommands:
    """Fake Slurm commands, in a folder with an odd name."""
    root = tmp_path / "odd ' name é"
    root.mkdir()
    return FakeCommands(root)
