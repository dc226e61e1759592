"""Every shell block of the docs is run; what a block needs is the environment that `make setup` leaves."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PAGES = sorted([REPO / "README.md", *(REPO / "docs").rglob("*.md")])
TRAINS = re.compile(r"^(make gate|\.venv/bin/seatrial gate .*)$")


def commands(page: Path) -> list[str]:
    """Return the command lines of a page's bash blocks."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


ALL = [(page.relative_to(REPO).as_posix(), line) for page in PAGES for line in commands(page)]


def run(line: str, home: Path, tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("MAKEFLAGS", None)
    done = subprocess.run(["bash", "-euc", line], cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize(("page", "line"), [c for c in ALL if not TRAINS.match(c[1]) and c[1] != "make test"])
def test_a_line_of_the_docs(page: str, line: str, own_home: Path, tmp_path: Path) -> None:
    run(line, own_home, tmp_path)


@pytest.mark.train
def test_make_gate(own_home: Path, tmp_path: Path) -> None:
    assert ("README.md", "make gate") in ALL
    run("make gate", own_home, tmp_path)


def test_make_test_is_this_test_run() -> None:
    """Running it here would run itself: what it would run is enough."""
    assert ("README.md", "make test") in ALL
    done = subprocess.run(["make", "-n", "test"], cwd=REPO, capture_output=True, text=True, check=True)
    assert "pytest" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
