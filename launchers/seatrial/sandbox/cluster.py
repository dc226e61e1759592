"""A sandbox cluster: up, down, and the mishaps that a test needs."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.run.records import read_json, write_json
from seatrial.sandbox import apt, conf, packages, processes
from seatrial.sandbox.config import Layout, SandboxConfig
from seatrial.sandbox.daemons import Daemons

__all__ = ["Cluster", "SandboxConfig", "Status", "attach", "up"]

_SOURCE = Path(__file__).with_name("pyxis.c")


@dataclass(frozen=True)
class Status:
    """The daemons that run, those that should and do not, and each node's state in sinfo's words."""

    running: Sequence[str]
    missing: Sequence[str]
    nodes: dict[str, str]


class Cluster:
    """One sandbox cluster, running or not. Its folder says everything about it."""

    def __init__(self, config: SandboxConfig, software: packages.Software) -> None:
        self.config, self.software, self.at = config, software, Layout(config.folder)
        self._daemons = Daemons(config, software)

    def environment(self) -> dict[str, str]:
        """Return the variables (PATH and SLURM_CONF) by which Slurm's commands find this cluster."""
        return self._daemons.environment()

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands against this cluster; its result, whatever it is."""
        return self._daemons.run(*command, timeout=timeout)

    def status(self) -> Status:
        """Return what runs."""
        running = processes.all_recorded(self.at.pids)
        missing = [name for name in self._names() if name not in running]
        return Status(sorted(running), missing, self._daemons.node_states() if "slurmctld" in running else {})

    def down(self, wipe: bool = False) -> None:
        """End the cluster's jobs and daemons. ``wipe`` removes its folder too; then everything is simply killed."""
        if not self.at.settings.exists():
            return
        packages.require_root()
        with _lock(self.config.folder):
            self._down(wipe)
            if wipe:
                shutil.rmtree(self.config.folder)

    def _down(self, wipe: bool) -> None:
        running = processes.all_recorded(self.at.pids)
        if not wipe and "slurmctld" in running:
            self._cancel_jobs()
        number, patience = (signal.SIGKILL, 5) if wipe else (signal.SIGTERM, 20)
        processes.end_all([one for name, one in running.items() if name.startswith("slurmd-")], number, patience)
        self._kill_steps(self.config.node_names)
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            if name in running:
                running[name].end(number, patience)
        for record in self.at.pids.glob("*.json"):
            record.unlink()

    def kill_node(self, name: str) -> None:
        """Let a node die: its daemon and every process of its steps, at once and without a word."""
        self.stop_slurmd(name, signal.SIGKILL)
        self._kill_steps([name])

    def stop_slurmd(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a node's daemon; its steps run on."""
        self._stop(f"slurmd-{self._known(name)}", number)

    def start_slurmd(self, name: str) -> None:
        """Start a node's daemon and wait until the controller has heard from it."""
        self._daemons.start_slurmds([self._known(name)])

    def stop_controller(self, number: int = signal.SIGTERM) -> None:
        """End slurmctld."""
        self._stop("slurmctld", number)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._daemons.start_slurmctld()

    def stop_dbd(self, number: int = signal.SIGTERM) -> None:
        """End slurmdbd: sacct and sacctmgr fail, and the controller keeps its records until it is back."""
        self._stop("slurmdbd", number)

    def start_dbd(self) -> None:
        """Start slurmdbd and wait until it answers."""
        self._daemons.start_slurmdbd()

    def _names(self) -> list[str]:
        accounting = ["mariadbd", "slurmdbd"] if self.config.accounting else []
        return ["munged", *accounting, "slurmctld", *(f"slurmd-{node}" for node in self.config.node_names)]

    def _known(self, node: str) -> str:
        if node not in self.config.node_names:
            raise SeatrialError(f"the sandbox has no node {node}", value=node, rule=conf.nodes(self.config))
        return node

    def _stop(self, name: str, number: int) -> None:
        if found := processes.recorded(self.at.pids, name):
            found.end(number)

    def _kill_steps(self, nodes: Sequence[str]) -> None:
        # A step's daemon is nobody's child; it holds its node's log open.
        logs = [(self.at.logs / f"slurmd-{node}.log").resolve() for node in nodes]
        daemons = processes.holding(logs, Path(self.software.program("slurmstepd")).resolve())
        processes.end_all(processes.with_descendants(daemons), signal.SIGKILL)

    def _cancel_jobs(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--user=root", timeout=10)
            empty = lambda: not self.run("squeue", "--noheader", timeout=10).stdout.strip()  # noqa: E731
            processes.wait(empty, self.config.kill_wait_seconds + 10, 0.3)

    def _start(self, say: Callable[[str], None]) -> None:
        for folder in (self.at.etc, self.at.logs, self.at.pids, self.at.state, self.at.spool, self.at.devices):
            folder.mkdir(exist_ok=True)
        for number in range(self.config.gpus_per_node):
            device = self.at.devices / f"nvidia{number}"
            if not device.is_symlink():
                device.symlink_to("/dev/null")  # Slurm wants a character device
        write_json(self.at.settings, self.config.to_json())
        if self.config.pyxis:
            self._build_plugin()
        machine = conf.Machine(socket.gethostname().split(".")[0], self.software.plugins)
        for name, text in conf.render(self.config, machine).items():
            (self.at.etc / name).write_text(text)
            (self.at.etc / name).chmod(0o600 if name == "slurmdbd.conf" else 0o644)
        say("starting munged")
        self._daemons.start_munged()
        if self.config.accounting:
            say("starting mariadbd and slurmdbd")
            self._daemons.start_database()
            self._daemons.start_slurmdbd()
        say("starting slurmctld")
        self._daemons.start_slurmctld()
        say(f"starting {self.config.nodes} slurmd")
        self._daemons.start_slurmds(self.config.node_names)

    def _build_plugin(self) -> None:
        if self.at.plugin.exists() and self.at.plugin.stat().st_mtime >= _SOURCE.stat().st_mtime:
            return
        aside = self.at.plugin.with_suffix(".new")
        options = [
            "-std=gnu11",
            "-O1",
            "-shared",
            "-fPIC",
            f"-I{self.software.headers}",
            "-o",
            str(aside),
            str(_SOURCE),
        ]
        done = subprocess.run([apt.install_compiler(), *options], capture_output=True, text=True)
        if done.returncode:
            raise SeatrialError(f"the stand-in for pyxis does not compile: {done.stderr.strip()}", file=_SOURCE)
        aside.rename(self.at.plugin)


def up(config: SandboxConfig, say: Callable[[str], None] = lambda _: None, cache: Path | None = None) -> Cluster:
    """Start the cluster, or what is missing of it; return once every node answers. ``cache`` keeps the software.

    Raises SeatrialError where the machine cannot (not Debian, not root), where the folder holds another cluster, where
    a port is taken, and where a daemon does not answer (with the end of its log). What it started is then ended.
    """
    packages.require_root()
    cluster = Cluster(config, packages.ensure(config.version, cache, say))
    config.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _lock(config.folder):
        other = read_json(cluster.at.settings)
        if other and other != config.to_json():
            differing = sorted(key for key in other if other[key] != config.to_json().get(key))
            raise SeatrialError(
                f"the folder holds a sandbox with another {', '.join(differing)}",
                file=cluster.at.settings,
                rule="a sandbox keeps its settings: they are in its state and in its database",
                fix="seatrial sandbox down --wipe, or another folder",
            )
        if other is None and any(entry.name != ".lock" for entry in config.folder.iterdir()):
            raise SeatrialError(
                "the folder holds something else", file=config.folder, fix="name an empty or a new folder"
            )
        before = set(processes.all_recorded(cluster.at.pids))
        try:
            cluster._start(say)
        except BaseException:
            started = processes.all_recorded(cluster.at.pids)
            processes.end_all([one for name, one in started.items() if name not in before])
            raise
    return cluster


def attach(folder: Path, cache: Path | None = None) -> Cluster:
    """Return the cluster of ``folder``, running or not. Raises SeatrialError where there is none."""
    data = read_json(Layout(folder.expanduser().absolute()).settings)
    if data is None:
        raise SeatrialError("no sandbox here", file=folder, fix="seatrial sandbox up")
    config = SandboxConfig.from_json(data)
    return Cluster(config, packages.ensure(config.version, cache))


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
