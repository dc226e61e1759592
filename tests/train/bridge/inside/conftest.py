"""These tests run in Megatron-Bridge's environment (``test_inside.py`` starts them there); elsewhere there are none."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("megatron.bridge") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _declared() -> None:
    """Stand-ins for what this machine lacks, once, and CUDA's names on the CPU."""
    from seatrial.train.bridge import rehearsal

    rehearsal.install()


@pytest.fixture
def recipe() -> Any:
    """A fresh configuration of Nemotron 3 Nano."""
    from seatrial.train.bridge import recipes

    return recipes.load("nemotron_3_nano_gb200_pretrain_config").config
