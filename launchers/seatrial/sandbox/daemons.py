"""The sandbox's daemons: how each is started, and how one knows that it answers."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.sandbox import processes
from seatrial.sandbox.conf import ACCOUNT, CLUSTER
from seatrial.sandbox.config import Layout, SandboxConfig
from seatrial.sandbox.packages import Software

PATIENCE = 90.0  # seconds for a daemon to answer: a busy machine may be slow
_MARIADB = (
    "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", "--innodb-lock-wait-timeout=900",
    "--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF",
)  # fmt: skip  # nothing here has to outlive a power cut


class Daemons:
    """Starts the daemons of one cluster. ``start_*`` skips what runs already, and waits until it answers."""

    def __init__(self, config: SandboxConfig, software: Software) -> None:
        self.config, self.software, self.at = config, software, Layout(config.folder)

    def environment(self) -> dict[str, str]:
        """Return SLURM_CONF, by which Slurm's commands find this cluster, and PATH with the commands first."""
        path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
        commands = str(self.software.clients)
        if path.split(":")[0] != commands:
            path = f"{commands}:{path}"
        return {"PATH": path, "SLURM_CONF": str(self.at.slurm_conf)}

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands against this cluster; its result, whatever it is."""
        program = str(self.software.clients / command[0])
        scrubbed = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_"))}
        return subprocess.run(
            [program, *command[1:]],
            env=scrubbed | self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start_munged(self) -> None:
        """Start MUNGE with a key and a socket of its own."""
        folder = self.at.munge_socket.parent
        key = folder / "key"
        folder.mkdir(mode=0o755, exist_ok=True)
        if not key.exists():
            key.touch(0o600)
            key.write_bytes(secrets.token_bytes(128))
        options = [f"--key-file={key}", f"--socket={self.at.munge_socket}", f"--pid-file={folder}/pid"]
        options += [
            f"--log-file={folder}/log",
            f"--seed-file={folder}/seed",
            "--num-threads=2",
            "--foreground",
            "--force",
        ]
        self._start("munged", [self.software.program("munged"), *options])
        probe = [self.software.program("munge"), "--no-input", f"--socket={self.at.munge_socket}"]
        self._await("munged", lambda: _succeeds(probe))

    def start_database(self) -> None:
        """Start MariaDB on a socket alone, making its system tables the first time."""
        data, base = self.at.database, self.software.prefix / "usr"
        common = ["--no-defaults", "--user=root", f"--basedir={base}", f"--datadir={data}"]
        if not (data / "complete").exists():
            shutil.rmtree(data, ignore_errors=True)
            install = [str(base / "bin" / "mariadb-install-db"), *common, "--skip-test-db"]
            install += ["--auth-root-authentication-method=normal", *_MARIADB]
            done = subprocess.run(install, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise SeatrialError(f"MariaDB cannot make its tables: {(done.stderr or done.stdout)[-600:]}", file=data)
            (data / "complete").touch()
        options = [*common, f"--socket={self.at.database_socket}", "--skip-networking", "--skip-name-resolve"]
        options += [f"--pid-file={data}/pid", *_MARIADB]
        self._start("mariadbd", [self.software.program("mariadbd"), *options])
        client = [self.software.program("mariadb"), "--no-defaults", f"--socket={self.at.database_socket}"]
        # slurmdbd would make its database itself, but MariaDB 11.8.9's client library then fails its next query.
        create = [*client, "--user=root", "--execute=create database if not exists slurm_acct_db"]
        self._await("mariadbd", lambda: _succeeds(create))

    def start_slurmdbd(self) -> None:
        """Start slurmdbd, and register the cluster, an account and the user the first time."""
        extra = {"MYSQL_UNIX_PORT": str(self.at.database_socket)}
        self._start("slurmdbd", [self.software.program("slurmdbd"), "-D"], extra)
        listed = ("sacctmgr", "--noheader", "--parsable2", "list", "cluster", "format=cluster")
        self._await("slurmdbd", lambda: self.run(*listed).returncode == 0)
        if CLUSTER in self.run(*listed).stdout.split():
            return
        for words in (
            f"add cluster {CLUSTER}",
            f"add account {ACCOUNT} Description=research Organization=sandbox",
            "add qos urgent Priority=1000",
            f"add user root Account={ACCOUNT} DefaultAccount={ACCOUNT}",
            "modify user root set QOS=normal,urgent DefaultQOS=normal",
        ):
            done = self.run("sacctmgr", "--immediate", "--quiet", *words.split())
            if done.returncode:
                raise SeatrialError(f"sacctmgr {words}: {(done.stderr or done.stdout).strip()}")

    def start_slurmctld(self) -> None:
        """Start the controller."""
        self._start("slurmctld", [self.software.program("slurmctld"), "-D", "-f", str(self.at.slurm_conf)])
        self._await("slurmctld", lambda: " is UP" in self.run("scontrol", "ping").stdout)

    def start_slurmds(self, nodes: Sequence[str]) -> None:
        """Start the daemons of ``nodes`` and wait until the controller has heard from each."""
        for node in nodes:
            (self.at.spool / node).mkdir(parents=True, exist_ok=True)
            options = ["-D", "-N", node, "-f", str(self.at.slurm_conf), "-d", self.software.program("slurmstepd")]
            self._start(f"slurmd-{node}", [self.software.program("slurmd"), *options])
        waiting = [f"slurmd-{node}" for node in nodes]
        self._await_all(waiting, lambda: all(is_up(self.node_states().get(node, "unknown")) for node in nodes))

    def node_states(self) -> dict[str, str]:
        """Return each node's state in sinfo's long form, such as ``idle`` or ``down*``; empty without a controller."""
        done = self.run("sinfo", "--noheader", "--Node", "--format=%N %T")
        return dict(line.split(None, 1) for line in done.stdout.splitlines()) if done.returncode == 0 else {}

    def _start(self, name: str, command: Sequence[str], extra: dict[str, str] | None = None) -> None:
        if processes.recorded(self.at.pids, name):
            return
        port = self.config.ports.get(name)
        if port and not port_is_free(port):
            raise SeatrialError(
                f"port {port} is in use, so {name} cannot start",
                key="base_port",
                value=self.config.base_port,
                rule="each sandbox has ports of its own, from base_port on",
                fix=f"another base port, such as {self.config.base_port + 200}; or end what listens there",
            )
        environment = {"HOME": str(Path.home()), "LC_ALL": "C.UTF-8"} | self.environment() | (extra or {})
        processes.start(name, command, self.at.pids, self._log(name), environment, self.at.logs)

    def _await(self, name: str, answers: Callable[[], bool]) -> None:
        self._await_all([name], answers)

    def _await_all(self, names: Sequence[str], answers: Callable[[], bool]) -> None:
        def gone() -> list[str]:
            return [name for name in names if not processes.recorded(self.at.pids, name)]

        if processes.wait(lambda: answers() or gone(), PATIENCE, 0.1) and not gone():
            return
        name = (gone() or list(names))[0]
        what = "ended" if gone() else f"does not answer within {PATIENCE:.0f} s"
        log = self._log(name)
        raise SeatrialError(f"{name} {what}\n{processes.last_lines(log)}", file=log)

    def _log(self, name: str) -> Path:
        return self.at.logs / f"{name}.out"


def is_up(state: str) -> bool:
    """Whether a node in sinfo's long state answers the controller."""
    return not state.endswith("*") and not state.startswith(("down", "unknown", "inval", "error"))


def port_is_free(port: int) -> bool:
    """Whether a daemon could listen on ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError:
            return False
    return True


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
