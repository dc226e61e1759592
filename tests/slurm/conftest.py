"""A real Slurm for the tests of this folder: one for the whole session, and others by their settings."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder
from seatrial.sandbox import packages
from seatrial.sandbox.cluster import Cluster, SandboxConfig, up
from seatrial.sandbox.daemons import port_is_free

HERE = Path(__file__).parent
CACHE = packages.cache_folder()  # of the real home: each test gets one of its own
_reserved: dict[int, IO[str]] = {}

Factory = Callable[..., Cluster]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that starts a cluster, as it needs root, Debian, and the first time 70 MB of packages."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slurm)


def _reserve(port: int) -> bool:
    """Take the hundred ports from ``port`` on for this test run, unless another run or another program has them."""
    if port in _reserved or not all(map(port_is_free, range(port, port + 90))):
        return False
    (CACHE / "ports").mkdir(parents=True, exist_ok=True)
    lock = (CACHE / "ports" / str(port)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    _reserved[port] = lock  # open until the test run ends
    return True


def settings(**changes: Any) -> SandboxConfig:
    """Return settings with a folder and ports that nobody uses; short waits."""
    port = next(p for p in range(20000, 32000, 100) if _reserve(p))
    if "folder" not in changes:
        changes["folder"] = Path(tempfile.mkdtemp(prefix="seatrial-", dir="/tmp"))
    return SandboxConfig(**{"base_port": port, "slurmd_timeout_seconds": 15} | changes)


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip where no sandbox can run."""
    try:
        packages.require_root()
        packages.debian_codename()
    except SeatrialError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(error.message)


@contextlib.contextmanager
def clusters() -> Iterator[Factory]:
    """Give a factory of clusters, and wipe what it made."""
    made: list[SandboxConfig] = []

    def make(**changes: Any) -> Cluster:
        made.append(settings(**changes))
        return up(made[-1], cache=CACHE)

    try:
        yield make
    finally:
        for config in made:
            Cluster(config, packages.ensure(config.version, CACHE)).down(wipe=True)
            shutil.rmtree(config.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(machine: None) -> Iterator[Cluster]:
    """Slurm 24.11 with 18 nodes in one block, accounting, and a requeue delay of 10 s. Leave no job behind."""
    with clusters() as make:
        yield make()


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run that nothing disturbs: what all others are compared with."""
    from tests.slurm import voyages

    return voyages.undisturbed(tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="module")
def make_cluster(machine: None) -> Iterator[Factory]:
    """A factory of clusters with settings of their own (SandboxConfig's), which live as long as the test module."""
    with clusters() as make:
        yield make
