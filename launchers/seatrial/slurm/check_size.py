"""Whether a partition can hold the job: time, nodes, and what each node must have. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from seatrial.check.blame import Finding, profile
from seatrial.slurm.check_access import associations_of, named_qos, qos_of
from seatrial.slurm.check_facts import Site
from seatrial.slurm.facts import Node, Partition
from seatrial.spec.runspec import RunSpec

_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}  # MiB, as --mem counts
_GPU_TYPE = re.compile(r"(?:^|,)gpu:([^,:(\d][^,:(]*)(?=[:,(]|$)")


class Demand(NamedTuple):
    """What each node must have: the profile's key, the amount, the word for it, and a node's own amount."""

    key: str
    amount: int
    word: str
    of: Callable[[Node], int]


def nodes_needed(spec: RunSpec) -> int:
    """Return the nodes that the job asks for."""
    return int(spec.profile["nodes"]) + int(spec.profile["spare_nodes"])


def check_time(spec: RunSpec, site: Site, partition: Partition) -> Iterator[Finding]:
    """The time limit is within the partition's and accounting's: a longer job is refused, or waits for ever."""
    wanted = int(spec.profile["time_limit_minutes"])
    qos = qos_of(spec, site, partition)
    limits = []
    if partition.max_minutes is not None and not (qos and "PartitionTimeLimit" in qos.flags):
        limits.append((partition.max_minutes, f"partition {partition.name}"))
    if site.enforces("limits"):
        limits += _accounting_limit(spec, site, partition)
    for most, whose in limits:
        if wanted > most:
            rule = f"at most {most} minutes in {whose}"
            yield profile(spec, "time_limit_minutes", rule, f"--set profile.time_limit_minutes={most}")


def check_nodes(spec: RunSpec, site: Site, partition: Partition) -> Iterator[Finding]:
    """The partition has the nodes, and enough of them have the GPUs, processors and memory that each must have."""
    needed = nodes_needed(spec)
    qos = qos_of(spec, site, partition)
    if (
        partition.max_nodes is not None
        and needed > partition.max_nodes
        and not (qos and "PartitionMaxNodes" in qos.flags)
    ):
        yield profile(spec, "nodes", f"at most {partition.max_nodes} a job in partition {partition.name}", value=needed)
    if needed > partition.total_nodes:
        yield profile(spec, "nodes", f"partition {partition.name} has {partition.total_nodes} in all", value=needed)
        return
    here = nodes_of(site, partition)
    if not here:
        return
    short = False
    for demand in demands(spec):
        fitting = [node for node in here if demand.of(node) >= demand.amount]
        if len(fitting) < needed:
            short = True
            yield _too_little(spec, partition, demand, len(fitting), max(map(demand.of, here)))
    whole = fitting_nodes(spec, site, partition)
    if short:
        return
    if len(whole) < needed:
        rule = f"{len(whole)} nodes of partition {partition.name} have all that each node must have"
        yield profile(spec, "nodes", rule, "fewer nodes, or less on each", value=needed)
    elif len([node for node in whole if node.usable]) < needed:
        usable = len([node for node in whole if node.usable])
        rule = f"{usable} fitting nodes of partition {partition.name} are in service now: the job waits for more"
        yield profile(spec, "nodes", rule, severity="warning", value=needed)
    yield from _gpu_type(spec, partition, whole)


def check_user_limit(spec: RunSpec, site: Site, partition: Partition) -> Iterator[Finding]:
    """The QOS lets one user have as many nodes and GPUs at a time."""
    qos = qos_of(spec, site, partition)
    if qos is None or not site.enforces("limits"):
        return
    has = {"node": nodes_needed(spec)}
    if spec.profile["gpu_request"] != "none":
        has["gres/gpu"] = nodes_needed(spec) * int(spec.profile["gpus_per_node"])
    for part in qos.max_tres_per_user.split(","):
        name, _, most = part.partition("=")
        if name in has and most.isdigit() and has[name] > int(most):
            word = "nodes" if name == "node" else "GPUs"
            rule = f"QOS {qos.name} gives a user at most {most} {word}, the job asks for {has[name]}"
            yield profile(spec, "qos", rule, "another QOS, or a smaller job", value=qos.name)


def demands(spec: RunSpec) -> list[Demand]:
    """Return what the job asks of each node."""
    where = spec.profile
    found = []
    if where["gpu_request"] != "none":
        found.append(Demand("gpus_per_node", int(where["gpus_per_node"]), "GPUs", lambda node: node.gpus))
    if where["cpus_per_task"]:
        cpus = int(where["cpus_per_task"]) * int(where["gpus_per_node"])
        found.append(Demand("cpus_per_task", cpus, "processors", lambda node: node.cpus))
    memory = memory_mb(where["memory"])
    if memory:
        found.append(Demand("memory", memory, "MiB of memory", lambda node: node.memory_mb))
    return found


def memory_mb(text: str | None) -> int:
    """Return ``--mem``'s amount in MiB; 0 for all of a node's, for none, and for what is no amount."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", (text or "").strip().upper())
    return round(int(match[1]) * _UNITS[match[2]]) if match else 0


def nodes_of(site: Site, partition: Partition) -> list[Node]:
    """Return the partition's nodes."""
    return [node for node in site.nodes or () if node.partition == partition.name]


def fitting_nodes(spec: RunSpec, site: Site, partition: Partition) -> list[Node]:
    """Return the nodes that have all that the job asks of each, in service or not."""
    asked = demands(spec)
    return [node for node in nodes_of(site, partition) if all(d.of(node) >= d.amount for d in asked)]


def gpu_types(node: Node) -> set[str]:
    """Return the types in a node's gres (``gpu:gb200:4``), lower case; none where it names none."""
    return {name.lower() for name in _GPU_TYPE.findall(node.gres)}


def _accounting_limit(spec: RunSpec, site: Site, partition: Partition) -> list[tuple[int, str]]:
    """Return the one time limit of accounting that counts: partition's QOS, job's QOS, association, in that order."""
    of_partition, of_job = named_qos(site, partition.qos), qos_of(spec, site, partition)
    order = [of_partition, of_job]
    if of_job and "OverPartQOS" in of_job.flags:
        order.reverse()
    for qos in order:
        if qos and qos.max_minutes is not None:
            return [(qos.max_minutes, f"QOS {qos.name}")]
    for association in associations_of(spec, site, partition):
        if association.max_minutes is not None:
            return [(association.max_minutes, f"account {association.account} for user {site.user}")]
    return []


def _too_little(spec: RunSpec, partition: Partition, demand: Demand, count: int, most: int) -> Finding:
    rule = f"{nodes_needed(spec)} nodes with {demand.amount} {demand.word} each: partition {partition.name} has {count}"
    rule += f", its largest has {most}"
    fix = "another partition, or ask for less"
    if demand.key == "gpus_per_node" and most == 0:
        fix = "another partition; where this Slurm counts no GPUs: --set profile.gpu_request=none"
    return profile(spec, demand.key, rule, fix)


def _gpu_type(spec: RunSpec, partition: Partition, fitting: list[Node]) -> Iterator[Finding]:
    """Warn where the job may land on another GPU: it asks for a number, not for a type."""
    wanted = str(spec.profile["gpu_type"] or "").lower()
    if not wanted or spec.rehearsal or spec.profile["gpu_request"] == "none":
        return
    others = sorted({name for node in fitting for name in gpu_types(node) if wanted not in name and name not in wanted})
    if others:
        rule = f"partition {partition.name} has GPUs that it calls {', '.join(others)}, and the job asks for no type"
        yield profile(spec, "gpu_type", rule, "a partition of one type, or the name of this type", severity="warning")
