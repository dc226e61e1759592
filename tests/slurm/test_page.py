"""The sandbox's page: its shell blocks, run one after the other in one shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.conftest import CACHE, settings

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def short_home(machine: None) -> Iterator[Path]:
    """A home whose path leaves room for sockets, with the software in its cache."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir="/tmp"))
    (home / ".cache").mkdir()
    CACHE.mkdir(parents=True, exist_ok=True)
    (home / ".cache" / "seatrial").symlink_to(CACHE)
    yield home
    shutil.rmtree(home)


def test_the_page(short_home: Path) -> None:
    page = (REPO / "docs" / "how-to" / "sandbox.md").read_text()
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL))
    port = settings(folder=short_home / "unused").base_port
    script = script.replace("sandbox up", f"sandbox up --base-port {port}").replace(".venv/bin/", f"{REPO}/.venv/bin/")
    environment = os.environ | {"HOME": str(short_home)}
    done = subprocess.run(["bash", "-euc", script], cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {f"gb200-00{1 + rank // 4} rank {rank} GPUs 0,1,2,3" for rank in range(8)} <= set(done.stdout.splitlines())
    assert "18 idle" in done.stdout
    assert not (short_home / ".local" / "share" / "seatrial" / "sandbox").exists()
