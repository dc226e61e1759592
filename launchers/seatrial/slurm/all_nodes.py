"""Gates side by side over a set of nodes: which nodes, and in which groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.errors import SeatrialError, did_you_mean
from seatrial.slurm.check_access import chosen_partitions
from seatrial.slurm.check_facts import Site
from seatrial.slurm.check_size import fitting_nodes, nodes_of
from seatrial.slurm.client import Slurm
from seatrial.slurm.requeue_queue import expand
from seatrial.slurm.submit import placed
from seatrial.slurm.table import pairs
from seatrial.spec.runspec import RunSpec
from seatrial.supervise.excluded import Excluded

_ANY = ""  # the block of every node where Slurm tells of none


@dataclass(frozen=True)
class Group:
    """The nodes of one gate. ``of``: in the second round, the suspect that the others, which have passed, judge."""

    nodes: tuple[str, ...]
    of: str | None = None


@dataclass(frozen=True)
class Grouping:
    """``left``: nodes that no group could be made for -> why."""

    groups: tuple[Group, ...]
    left: Mapping[str, str]


@dataclass(frozen=True)
class NodeSet:
    """The nodes to judge, in order; those left out of it -> why; node -> block, None where Slurm tells of no blocks.

    ``asked``: the nodes that somebody wants to know of: those that were named, also where they are left out; else
    ``nodes``.
    """

    nodes: tuple[str, ...]
    left: Mapping[str, str]
    blocks: Mapping[str, str] | None
    asked: tuple[str, ...]


def groups_of(nodes: Sequence[str], size: int, blocks: Mapping[str, str] | None) -> Grouping:
    """Return groups of ``size`` nodes, each within one block, that hold every node at least once.

    Nodes that are too few for one more group of their block are joined by some of the group before, which then gets two
    gates. Where the block has too few nodes in all, they are left.
    """
    groups: list[Group] = []
    left: dict[str, str] = {}
    for block, inside in _by_block(nodes, blocks).items():
        if block is None:
            left |= dict.fromkeys(inside, "it is in no block, so no job with a segment gets it")
        elif len(inside) < size:
            where = f"block {block} has" if block else "there are"
            left |= dict.fromkeys(inside, f"a gate takes {size} nodes, and {where} {len(inside)} of those to judge")
        else:
            parts = [inside[at : at + size] for at in range(0, len(inside), size)]
            if len(parts[-1]) < size:
                parts[-1] = [*parts[-2][len(parts[-1]) :], *parts[-1]]
            groups += [Group(tuple(part)) for part in parts]
    return Grouping(tuple(groups), left)


def second_round(
    suspects: Sequence[str], passed: Sequence[str], size: int, blocks: Mapping[str, str] | None
) -> Grouping:
    """Return a group for each suspect: it and nodes of its block that have passed, in turn."""
    groups: list[Group] = []
    left: dict[str, str] = {}
    good = _by_block(passed, blocks)
    at = dict.fromkeys(good, 0)
    for block, inside in _by_block(suspects, blocks).items():
        there = good.get(block, [])
        for node in inside:
            if len(there) < size - 1:
                left[node] = f"a second gate takes {size - 1} nodes that have passed, and its block has {len(there)}"
                continue
            fellows = [there[(at[block] + n) % len(there)] for n in range(size - 1)]
            at[block] = at.get(block, 0) + size - 1
            groups.append(Group((node, *fellows), node))
    return Grouping(tuple(groups), left)


def _by_block(nodes: Iterable[str], blocks: Mapping[str, str] | None) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for node in dict.fromkeys(nodes):
        found.setdefault(_ANY if blocks is None else blocks.get(node), []).append(node)
    return found


def node_set(spec: RunSpec, named: str | None, slurm: Slurm) -> NodeSet:
    """Return which nodes are judged: those ``named`` (in Slurm's form), else all that runs of the profile may get.

    Left out, with the reason, are nodes that are not in service or lack what a job asks of each, and where none are
    named those that runs avoid. Raises SeatrialError for a node that the partition does not have, and where Slurm does
    not answer.
    """
    site = Site(partitions=slurm.partitions(), nodes=slurm.nodes())
    partitions = chosen_partitions(spec, site)
    there = {node.name: node for partition in partitions for node in nodes_of(site, partition)}
    fitting = {node.name for partition in partitions for node in fitting_nodes(spec, site, partition)}
    wanted = expand([named], slurm, key="--nodes") if named is not None else tuple(there)
    for name in wanted:
        if name not in there:
            where = ", ".join(partition.name for partition in partitions)
            raise SeatrialError(
                f"no node {name}", key="--nodes", value=named, rule=f"nodes of partition {where}",
                fix=did_you_mean(name, there, otherwise="sinfo shows them"),
            )  # fmt: skip
    avoided = () if named is not None else Excluded(placed(spec).profile, "").nodes()
    left = {}
    for name in wanted:
        if name in avoided:
            left[name] = "runs of this profile avoid it; --nodes names it all the same"
        elif not there[name].usable:
            left[name] = f"Slurm has it as {there[name].state}"
        elif name not in fitting:
            left[name] = "it lacks GPUs, processors or memory that the job asks of each node"
    nodes = tuple(name for name in wanted if name not in left)
    return NodeSet(nodes, left, _blocks(slurm), nodes if named is None else wanted)


def _blocks(slurm: Slurm) -> dict[str, str] | None:
    """Return node -> its block; None under a topology without blocks. Raises SeatrialError where Slurm is silent."""
    done = slurm.question(["scontrol", "show", "topology"])
    if not done.ok:
        raise SeatrialError(
            f"the nodes cannot be grouped: {done.words}", rule="Slurm must tell its topology", fix="try again later"
        )
    named = parse_block_nodes(done.stdout)
    return {name: block for block, nodes in named.items() for name in expand([nodes], slurm)} or None


def parse_block_nodes(text: str) -> dict[str, str]:
    """Read ``scontrol show topology``: block -> its nodes, in Slurm's form; none where there are no blocks."""
    lines = (pairs(line) for line in text.splitlines())
    return {line["BlockName"]: line["Nodes"] for line in lines if "BlockName" in line and line.get("Nodes")}


def in_service(nodes: Sequence[str], slurm: Slurm) -> dict[str, str]:
    """Return those of ``nodes`` that are out of service now -> how Slurm has them. Raises SeatrialError."""
    return {
        node.name: f"Slurm has it as {node.state}" for node in slurm.nodes() if node.name in nodes and not node.usable
    }
