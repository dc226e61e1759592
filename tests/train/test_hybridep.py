"""The rehearsal's HybridEP against a plain computation, forward and backward, over real gloo ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.harness import ROOT

pytestmark = pytest.mark.train


@pytest.mark.parametrize("ranks", [2, 4])
def test_it_agrees_with_a_plain_computation(tmp_path: Path, ranks: int) -> None:
    script = Path(__file__).parent / "hybridep_ranks.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "launchers"), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(ranks), str(tmp_path / "store")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    for process in started:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0 and "agrees" in output, output[-3000:]
