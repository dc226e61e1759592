"""What a sandbox cluster is made of: its settings, and where its files and ports lie. Pure data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args

from seatrial.errors import SeatrialError

Version = Literal["24.11", "22.05"]
Topology = Literal["block", "none"]
PreemptMode = Literal["OFF", "REQUEUE", "CANCEL"]

BLOCK = 18  # nodes in one NVLink domain: an NVL72 rack has 18 trays
MAX_NODES = 72
CONTROLLER_PORT, DATABASE_PORT, FIRST_NODE_PORT = 0, 1, 10  # offsets from base_port
_LONGEST_FOLDER = 60  # a Unix socket's path has at most 107 bytes, and slurmstepd's lie deepest


def default_folder() -> Path:
    """Return the folder of the sandbox that has no name of its own."""
    return Path.home() / ".local" / "share" / "seatrial" / "sandbox"


@dataclass(frozen=True)
class SandboxConfig:
    """One cluster. Seconds and counts are what Slurm's own settings of that name mean.

    ``preempt_mode`` other than OFF makes ``batch`` give way to a second partition ``urgent``, after ``grace_seconds``;
    ``send_user_signal`` then sends a job's ``--signal`` at the start of the grace time. ``requeue_delay_seconds`` is
    how long a requeued job waits (Slurm's own is 120; the sandbox's is short). Two clusters live side by side where
    their folders and ports differ. Raises SeatrialError for values that no cluster can have.
    """

    folder: Path = field(default_factory=default_folder)
    version: Version = "24.11"
    nodes: int = BLOCK
    gpus_per_node: int = 4
    topology: Topology = "block"
    accounting: bool = True
    preempt_mode: PreemptMode = "OFF"
    send_user_signal: bool = False
    grace_seconds: int = 0
    requeue_delay_seconds: int = 10
    kill_wait_seconds: int = 10
    slurmd_timeout_seconds: int = 30
    pyxis: bool = True
    base_port: int = 27200

    def __post_init__(self) -> None:
        folder = Path(self.folder).expanduser().absolute()
        object.__setattr__(self, "folder", folder)
        for key, kind in (("version", Version), ("topology", Topology), ("preempt_mode", PreemptMode)):
            _require(
                key, getattr(self, key), getattr(self, key) in get_args(kind), f"one of {', '.join(get_args(kind))}"
            )
        _require("nodes", self.nodes, 1 <= self.nodes <= MAX_NODES, f"1 to {MAX_NODES}")
        _require("gpus_per_node", self.gpus_per_node, 0 <= self.gpus_per_node <= 16, "0 to 16")
        last = 65535 - FIRST_NODE_PORT - MAX_NODES
        _require("base_port", self.base_port, 1024 <= self.base_port <= last, f"1024 to {last}")
        for key in ("grace_seconds", "requeue_delay_seconds", "kill_wait_seconds", "slurmd_timeout_seconds"):
            _require(key, getattr(self, key), 0 <= getattr(self, key) <= 3600, "0 to 3600")
        if self.topology == "block":
            _require("topology", "block", self.version != "22.05", "Slurm 22.05 has no topology/block", "topology none")
            _require("nodes", self.nodes, self.nodes % BLOCK == 0, f"whole blocks of {BLOCK} with topology block")
        # Slurm's files give no way to quote these, and the path of a socket is short.
        clean = str(folder).isascii() and not set(str(folder)) & set(" \t\n\"'#=,[]%;\\")
        _require(
            "folder", str(folder), clean, "no spaces, quotes or signs that Slurm's configuration files give a meaning"
        )
        _require("folder", str(folder), len(str(folder)) <= _LONGEST_FOLDER, f"at most {_LONGEST_FOLDER} characters")

    @property
    def node_names(self) -> list[str]:
        """Every node: gb200-001 and on."""
        return [f"gb200-{number:03d}" for number in range(1, self.nodes + 1)]

    @property
    def ports(self) -> dict[str, int]:
        """The TCP port of each daemon that listens, by the daemon's name."""
        ports = {"slurmctld": self.base_port + CONTROLLER_PORT}
        if self.accounting:
            ports["slurmdbd"] = self.base_port + DATABASE_PORT
        first = self.base_port + FIRST_NODE_PORT
        return ports | {f"slurmd-{name}": first + index for index, name in enumerate(self.node_names)}

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them; ``from_json`` reads them."""
        return dataclasses.asdict(self) | {"folder": str(self.folder)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SandboxConfig:
        """Return the settings that ``to_json`` wrote."""
        return cls(**data | {"folder": Path(data["folder"])})


@dataclass(frozen=True)
class Layout:
    """Where one cluster keeps its files: all of them below its folder."""

    folder: Path

    @property
    def settings(self) -> Path:
        """The SandboxConfig that the folder belongs to, as JSON."""
        return self.folder / "sandbox.json"

    @property
    def etc(self) -> Path:
        """Slurm's configuration files."""
        return self.folder / "etc"

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF names."""
        return self.etc / "slurm.conf"

    @property
    def logs(self) -> Path:
        """One log per daemon, ``<daemon>.log``."""
        return self.folder / "log"

    @property
    def pids(self) -> Path:
        """One record per running daemon."""
        return self.folder / "pids"

    @property
    def state(self) -> Path:
        """The controller's StateSaveLocation."""
        return self.folder / "state"

    @property
    def spool(self) -> Path:
        """SlurmdSpoolDir, one folder per node."""
        return self.folder / "spool"

    @property
    def devices(self) -> Path:
        """The GPUs' device files."""
        return self.folder / "dev"

    @property
    def munge_socket(self) -> Path:
        """munged's socket."""
        return self.folder / "munge" / "socket"

    @property
    def database(self) -> Path:
        """MariaDB's data."""
        return self.folder / "mysql"

    @property
    def database_socket(self) -> Path:
        """MariaDB's socket, in a folder that only root may enter: it listens on nothing else."""
        return self.database / "socket"

    @property
    def plugin(self) -> Path:
        """The built stand-in for pyxis."""
        return self.folder / "pyxis.so"

    @property
    def steps(self) -> Path:
        """What the stand-in for pyxis recorded: one JSON line per step and node."""
        return self.folder / "log" / "pyxis.jsonl"


def _require(key: str, value: Union[str, int], holds: bool, rule: str, fix: Union[str, None] = None) -> None:
    if not holds:
        raise SeatrialError(f"the sandbox cannot have {key} {value}", key=key, value=value, rule=rule, fix=fix)
