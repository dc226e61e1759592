"""Slurm's configuration files for a sandbox, as text. Pure functions of the settings.

Comments give the reason where a value is not Slurm's default: most of them cost a cluster that did not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seatrial.sandbox.config import BLOCK, FIRST_NODE_PORT, Layout, SandboxConfig

CLUSTER = "sandbox"
ACCOUNT = "research"
GPU_TYPE = "gb200"
_CORES, _MEMORY_MB = 144, 900_000  # of a GB200 tray: two Grace processors of 72 cores


@dataclass(frozen=True)
class Machine:
    """What the files need to know of the host: its short name, and the plugins of the Slurm that reads them."""

    hostname: str
    plugins: Path


def render(config: SandboxConfig, machine: Machine) -> Mapping[str, str]:
    """Return every file of ``etc/`` by name."""
    files = {
        "slurm.conf": slurm_conf(config, machine),
        "gres.conf": gres_conf(config),
        "plugstack.conf": plugstack_conf(config),
    }
    if config.accounting:
        files["slurmdbd.conf"] = slurmdbd_conf(config, machine)
    if config.topology == "block":
        files["topology.conf"] = topology_conf(config)
    return files


def nodes(config: SandboxConfig, first: int = 1, last: int | None = None) -> str:
    """Return nodes ``first`` to ``last`` in Slurm's bracket form."""
    return f"gb200-[{first:03d}-{last or config.nodes:03d}]"


def slurm_conf(config: SandboxConfig, machine: Machine) -> str:
    """Return slurm.conf."""
    at = Layout(config.folder)
    auth = f"socket={at.munge_socket}"
    if config.requeue_delay_seconds != 120:
        # A requeued job waits until its old credentials have expired; nothing else sets that delay.
        auth += f",cred_expire={config.requeue_delay_seconds}"
    ports = f"[{config.base_port + FIRST_NODE_PORT}-{config.base_port + FIRST_NODE_PORT + config.nodes - 1}]"
    lines = [
        f"ClusterName={CLUSTER}",
        f"SlurmctldHost={machine.hostname}(127.0.0.1)",
        f"SlurmctldPort={config.ports['slurmctld']}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "# Listen on the loopback address alone.",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        "AuthType=auth/munge",
        f"AuthInfo={auth}",
        "CredType=cred/munge",
        f"PluginDir={machine.plugins}",
        f"PlugStackConfig={at.etc / 'plugstack.conf'}",
        f"StateSaveLocation={at.state}",
        f"SlurmdSpoolDir={at.spool}/%n",
        f"SlurmctldPidFile={at.state}/slurmctld.pid",
        f"SlurmdPidFile={at.spool}/%n/slurmd.pid",
        f"SlurmctldLogFile={at.logs}/slurmctld.log",
        f"SlurmdLogFile={at.logs}/slurmd-%n.log",
        "SlurmctldDebug=verbose",
        "SlurmdDebug=verbose",
        "# One machine without cgroups plays every node.",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=5",
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=1000",
        "# Decide within seconds, as nobody waits for a big queue here.",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=10000,bf_interval=1",
        "PriorityType=priority/basic",
        "EnforcePartLimits=ALL",
        "ReturnToService=2",
        "JobRequeue=1",
        f"KillWait={config.kill_wait_seconds}",
        "SlurmctldTimeout=30",
        f"SlurmdTimeout={config.slurmd_timeout_seconds}",
        "MessageTimeout=20",
        "TCPTimeout=10",
        "# At least five message time-outs.",
        "UnkillableStepTimeout=120",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "PropagateResourceLimits=NONE",
        *_preemption(config),
        *_accounting(config, at),
    ]
    if config.topology == "block":
        lines.append("TopologyPlugin=topology/block")
    gres = f" Gres=gpu:{GPU_TYPE}:{config.gpus_per_node}" if config.gpus_per_node else ""
    if gres:
        lines.append("GresTypes=gpu")
    lines.append(
        f"NodeName={nodes(config)} NodeHostname={machine.hostname} NodeAddr=127.0.0.1 Port={ports} Sockets=2"
        f" CoresPerSocket={_CORES // 2} ThreadsPerCore=1 RealMemory={_MEMORY_MB}{gres} Feature=gb200,nvl72"
        " State=UNKNOWN"
    )
    return "\n".join([*lines, *_partitions(config)]) + "\n"


def gres_conf(config: SandboxConfig) -> str:
    """Return gres.conf. Each GPU needs a character device, or CUDA_VISIBLE_DEVICES stays empty."""
    if not config.gpus_per_node:
        return "AutoDetect=off\n"
    files = f"{Layout(config.folder).devices}/nvidia[0-{config.gpus_per_node - 1}]"
    return f"AutoDetect=off\nNodeName={nodes(config)} Name=gpu Type={GPU_TYPE} File={files}\n"


def slurmdbd_conf(config: SandboxConfig, machine: Machine) -> str:
    """Return slurmdbd.conf. It has no setting for MariaDB's socket: slurmdbd takes it from MYSQL_UNIX_PORT."""
    at = Layout(config.folder)
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={at.munge_socket}",
        "DbdHost=localhost",
        "DbdAddr=127.0.0.1",
        f"DbdPort={config.ports['slurmdbd']}",
        "CommunicationParameters=NoInAddrAny",
        "SlurmUser=root",
        "DebugLevel=info",
        f"LogFile={at.logs}/slurmdbd.log",
        f"PidFile={at.state}/slurmdbd.pid",
        f"PluginDir={machine.plugins}",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        "StorageLoc=slurm_acct_db",
    ]
    return "\n".join(lines) + "\n"


def topology_conf(config: SandboxConfig) -> str:
    """Return topology.conf: one block per NVLink domain."""
    blocks = [
        f"BlockName=nvl72-{number + 1:02d} Nodes={nodes(config, number * BLOCK + 1, (number + 1) * BLOCK)}"
        for number in range(config.nodes // BLOCK)
    ]
    return "\n".join([*blocks, f"BlockSizes={BLOCK}"]) + "\n"


def plugstack_conf(config: SandboxConfig) -> str:
    """Return plugstack.conf: the stand-in for pyxis, or nothing."""
    at = Layout(config.folder)
    return f"required {at.plugin} log={at.steps}\n" if config.pyxis else ""


def _preemption(config: SandboxConfig) -> list[str]:
    if config.preempt_mode == "OFF":
        return ["PreemptType=preempt/none", "PreemptMode=OFF"]
    lines = ["PreemptType=preempt/partition_prio", f"PreemptMode={config.preempt_mode}"]
    return [*lines, "PreemptParameters=send_user_signal"] if config.send_user_signal else lines


def _accounting(config: SandboxConfig, at: Layout) -> list[str]:
    if not config.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={config.ports['slurmdbd']}",
        "# Without it the commands ask the host's own munged.",
        f"AccountingStoragePass={at.munge_socket}",
        "AccountingStorageEnforce=associations,limits,qos",
        *(["AccountingStorageTRES=gres/gpu"] if config.gpus_per_node else []),
    ]


def _partitions(config: SandboxConfig) -> list[str]:
    common = "MaxTime=04:00:00 DefaultTime=00:30:00 State=UP"
    if config.preempt_mode == "OFF":
        return [f"PartitionName=batch Nodes=ALL Default=YES {common}"]
    grace = f"PreemptMode={config.preempt_mode} GraceTime={config.grace_seconds}"
    return [
        f"PartitionName=batch Nodes=ALL Default=YES PriorityTier=1 {grace} {common}",
        f"PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF {common}",
    ]
