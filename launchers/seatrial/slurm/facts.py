"""What a site's Slurm says about itself: partitions, nodes, QOSs, associations, configuration. Parsers; pure.

Columns are asked for by name and are the same from 22.05 to 26.05. A limit that is not set is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from seatrial.slurm.table import SEPARATOR, listed, minutes, number, pairs, rows

NODE_ARGV = (
    "sinfo", "--noheader", "--Node", f"--format={SEPARATOR.join(('%N', '%R', '%T', '%c', '%m', '%G', '%f'))}",
)  # fmt: skip
_QOS = ("Name", "MaxWall", "MaxTRESPU", "MaxJobsPU", "Preempt", "PreemptMode", "GraceTime", "Flags")
_ASSOCIATION = ("Cluster", "Account", "Partition", "QOS", "DefaultQOS", "MaxWall", "MaxJobs")
_PARSABLE = ("sacctmgr", "--readonly", "--noheader", "--parsable2")
QOS_ARGV = (*_PARSABLE, "show", "qos", f"format={','.join(_QOS)}")
ASSOCIATION_ARGV = (*_PARSABLE, "show", "associations", f"format={','.join(_ASSOCIATION)}")


@dataclass(frozen=True)
class Partition:
    """``max_minutes`` None: no limit. ``allow_*`` None: all may; ``deny_*`` names who may not."""

    name: str
    state: str
    default: bool
    max_minutes: int | None
    max_nodes: int | None
    total_nodes: int
    nodes: str
    allow_accounts: tuple[str, ...] | None
    deny_accounts: tuple[str, ...] | None
    allow_qos: tuple[str, ...] | None
    deny_qos: tuple[str, ...] | None
    qos: str | None
    preempt_mode: str
    grace_seconds: int


@dataclass(frozen=True)
class Node:
    """One node in one partition (a node in two is listed twice). ``memory_mb`` in MiB, as Slurm counts."""

    name: str
    partition: str
    state: str
    cpus: int
    memory_mb: int
    gres: str
    features: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """GPUs of all types: from ``gpu:4``, ``gpu:gb200:4(S:0-1)`` and lists of those."""
        return sum(int(m[1]) for m in re.finditer(r"(?:^|,)gpu(?::[^,:(]+)?:(\d+)(?=[(,]|$)", self.gres))

    @property
    def usable(self) -> bool:
        """Whether jobs may start here now or once others end; ``*`` means that the node does not answer."""
        bad = ("down", "drain", "fail", "maint", "unk", "inval", "powering_down", "powered_down", "reboot")
        return not self.state.endswith("*") and not self.state.lower().startswith(bad)


@dataclass(frozen=True)
class Qos:
    """``max_tres_per_user`` as Slurm prints it, such as ``gres/gpu=8``."""

    name: str
    max_minutes: int | None
    max_tres_per_user: str
    max_jobs_per_user: int | None
    preempts: tuple[str, ...]
    preempt_mode: str
    grace_seconds: int
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Association:
    """What one user may use. ``partition`` None: any. ``qos`` empty: the cluster says nothing."""

    cluster: str
    account: str
    partition: str | None
    qos: tuple[str, ...]
    default_qos: str | None
    max_minutes: int | None
    max_jobs: int | None


def parse_partitions(text: str) -> list[Partition]:
    """Read ``scontrol --oneliner show partition``."""
    found = []
    for line in text.splitlines():
        at = pairs(line)
        if "PartitionName" not in at:
            continue
        qos = at.get("QoS", "N/A")
        found.append(Partition(
            name=at["PartitionName"], state=at.get("State", ""), default=at.get("Default") == "YES",
            max_minutes=minutes(at.get("MaxTime", "")), max_nodes=number(at.get("MaxNodes", "")),
            total_nodes=number(at.get("TotalNodes", "")) or 0, nodes=at.get("Nodes", "").replace("(null)", ""),
            allow_accounts=listed(at.get("AllowAccounts", "")), deny_accounts=listed(at.get("DenyAccounts", "")),
            allow_qos=listed(at.get("AllowQos", "")), deny_qos=listed(at.get("DenyQos", "")),
            qos=None if qos in ("N/A", "") else qos, preempt_mode=at.get("PreemptMode", ""),
            grace_seconds=number(at.get("GraceTime", "")) or 0,
        ))  # fmt: skip
    return found


def parse_nodes(text: str) -> list[Node]:
    """Read the output of ``NODE_ARGV``."""
    return [
        Node(name, partition.rstrip("*"), state, number(cpus) or 0, number(memory) or 0,
             "" if gres == "(null)" else gres, listed(features) or ())
        for name, partition, state, cpus, memory, gres, features in rows(text, 7)
    ]  # fmt: skip


def parse_qos(text: str) -> list[Qos]:
    """Read the output of ``QOS_ARGV``."""
    found = []
    for name, wall, tres, jobs, preempts, mode, grace, flags in _cells(text, len(_QOS)):
        hours = re.fullmatch(r"(\d+):(\d+):(\d+)", grace)
        seconds = int(hours[1]) * 3600 + int(hours[2]) * 60 + int(hours[3]) if hours else 0
        found.append(Qos(
            name, minutes(wall), tres, number(jobs), listed(preempts) or (), mode, seconds, listed(flags) or ()
        ))  # fmt: skip
    return found


def parse_associations(text: str) -> list[Association]:
    """Read the output of ``ASSOCIATION_ARGV``."""
    return [
        Association(
            cluster, account, partition or None, listed(qos) or (), default or None, minutes(wall), number(jobs)
        )
        for cluster, account, partition, qos, default, wall, jobs in _cells(text, len(_ASSOCIATION))
    ]


def parse_config(text: str) -> dict[str, str]:
    """Read ``scontrol show config``; ``(null)`` becomes the empty string. Parts below (cgroup.conf) do not overrule."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"([A-Za-z][\w/.()\[\]-]*)\s*=\s?(.*)$", line)
        if match:
            found.setdefault(match[1], "" if match[2].strip() == "(null)" else match[2].strip())
    return found


def parse_version(text: str) -> tuple[int, ...] | None:
    """Read ``scontrol --version`` ("slurm 24.11.5", "slurm-wlm 22.05.8"): (24, 11, 5)."""
    match = re.search(r"\b(\d{2})\.(\d{2})(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part is not None) if match else None


def _cells(text: str, columns: int) -> list[list[str]]:
    """Read sacctmgr's table: it knows no other separator than ``|``, and no name in it may hold one."""
    lines = (line.split("|") for line in text.splitlines())
    return [[cell.strip() for cell in cells] for cells in lines if len(cells) == columns]
