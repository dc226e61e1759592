"""Up and down: nothing is left behind, twice is harmless, and what stands in the way is named."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.sandbox import processes
from seatrial.sandbox.cluster import Cluster, SandboxConfig, attach, up
from seatrial.sandbox.daemons import port_is_free
from tests.slurm.conftest import CACHE, settings
from tests.slurm.jobs import output, records, submit, until, wait_for


@pytest.fixture
def config(machine: None) -> Iterator[SandboxConfig]:
    """Settings of a small cluster that is not up."""
    chosen = settings(nodes=2, topology="none", kill_wait_seconds=2)
    yield chosen
    if (chosen.folder / "sandbox.json").exists():
        attach(chosen.folder, CACHE).down(wipe=True)
    shutil.rmtree(chosen.folder, ignore_errors=True)


def naming(text: str) -> list[str]:
    """Return the processes whose command line, open files or working folder name ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            links = [str(link.readlink()) for link in [*(entry / "fd").iterdir(), entry / "cwd"]]
            line = (entry / "cmdline").read_text()
        except OSError:
            continue
        if text in line or any(text in link for link in links):
            found.append(f"{entry.name} {line}")
    return found


@pytest.mark.parametrize("wipe", [False, True])
def test_down_leaves_nothing(wipe: bool, config: SandboxConfig, tmp_path: Path) -> None:
    cluster = up(config, cache=CACHE)
    job = submit(cluster, tmp_path, "srun --overlap sleep 4242 & echo ready; wait", "--nodes=2")
    until(lambda: "ready" in output(tmp_path, job), "the job runs")
    assert naming(str(config.folder))
    cluster.down(wipe=wipe)
    assert until(lambda: not naming(str(config.folder)), f"processes end: {naming(str(config.folder))}", 10)
    assert not [entry for entry in naming("sleep\0004242") if entry]
    assert all(map(port_is_free, config.ports.values()))
    assert config.folder.exists() != wipe
    cluster.down(wipe=wipe)


def test_up_again_is_harmless_and_keeps_what_was(config: SandboxConfig, tmp_path: Path) -> None:
    cluster = up(config, cache=CACHE)
    first = submit(cluster, tmp_path, "sleep 600")
    wait_for(cluster, first, ["RUNNING"])
    before = processes.all_recorded(cluster.at.pids)
    again = up(config, cache=CACHE)
    assert processes.all_recorded(again.at.pids) == before
    assert wait_for(again, first, ["RUNNING"]) == "RUNNING"
    cluster.down()
    assert attach(config.folder, CACHE).status().running == []
    third = up(config, cache=CACHE)
    until(lambda: "CANCELLED" in str(records(third, first, "State")), "the record of the job that down ended")
    assert int(submit(third, tmp_path, "true")) > int(first)


def test_up_starts_what_is_missing(config: SandboxConfig) -> None:
    cluster = up(config, cache=CACHE)
    cluster.stop_controller()
    cluster.kill_node("gb200-002")
    assert set(cluster.status().missing) == {"slurmctld", "slurmd-gb200-002"}
    assert up(config, cache=CACHE).status().missing == []


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmdbd", "slurmd-gb200-002"])
def test_a_port_in_use_is_named(daemon: str, config: SandboxConfig) -> None:
    port = config.ports[daemon]
    with socket.create_server(("127.0.0.1", port)), pytest.raises(SeatrialError) as error:
        up(config, cache=CACHE)
    assert f"port {port} is in use" in error.value.message
    assert not naming(str(config.folder)), "what was started is ended"


def test_other_settings_or_a_strange_folder_are_refused(config: SandboxConfig, tmp_path: Path) -> None:
    up(config, cache=CACHE).down()
    with pytest.raises(SeatrialError, match="another nodes"):
        up(dataclasses.replace(config, nodes=3), cache=CACHE)
    strange = Path("/tmp") / f"seatrial-strange-{os.getpid()}"
    strange.mkdir()
    try:
        (strange / "thesis.txt").write_text("mine")
        with pytest.raises(SeatrialError, match="something else"):
            up(dataclasses.replace(config, folder=strange), cache=CACHE)
        assert (strange / "thesis.txt").read_text() == "mine"
    finally:
        shutil.rmtree(strange)


def test_a_daemon_that_fails_shows_its_log(config: SandboxConfig) -> None:
    cluster = up(config, cache=CACHE)
    cluster.stop_controller()
    (cluster.at.etc / "slurm.conf").write_text("ClusterName=sandbox\nNoSuchKey=1\n")
    with pytest.raises(SeatrialError) as error:
        cluster.start_controller()
    assert "slurmctld ended" in error.value.message
    assert "NoSuchKey" in error.value.message


def test_the_command_line(config: SandboxConfig, own_home: Path) -> None:
    own_home.joinpath(".cache").mkdir()
    own_home.joinpath(".cache", "seatrial").symlink_to(CACHE)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "seatrial.sandbox", *words, f"--folder={config.folder}"]
        return subprocess.run(command, capture_output=True, text=True)

    assert "no sandbox here" in run("status").stderr
    done = run("up", "--nodes=2", f"--base-port={config.base_port}", "--no-accounting")
    assert done.returncode == 0, done.stderr
    shell = f"{done.stdout}\nunset SLURM_JOB_ID; srun --nodes=2 bash -c 'echo $SLURMD_NODENAME'"
    ran = subprocess.run(["bash", "-euc", shell], capture_output=True, text=True)
    assert sorted(ran.stdout.split()) == ["gb200-001", "gb200-002"], ran.stderr
    assert "2 idle" in run("status").stdout
    assert run("down", "--wipe").returncode == 0
    assert not config.folder.exists()
    assert run("status").returncode == 2


def test_a_node_that_is_not_there(config: SandboxConfig) -> None:
    cluster = up(config, cache=CACHE)
    assert isinstance(cluster, Cluster)
    with pytest.raises(SeatrialError, match="no node gb200-003"):
        cluster.kill_node("gb200-003")
