"""Ranks and nodes: do the parallel groups divide the ranks, and do they fit the machine?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from seatrial.check.blame import Finding, Severity, argument, environment, profile, set_flag
from seatrial.check.layout import Layout, experts_of, uses_hybridep
from seatrial.spec.runspec import RunSpec

# Given to each rank by the launcher; a fixed value would be the same, and wrong, on every rank.
LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def check_world(spec: RunSpec) -> Iterator[Finding]:
    """World size = nodes x GPUs per node, and TP x PP x CP divides it."""
    at = Layout.of(spec)
    stated = spec.environment.get("WORLD_SIZE")
    if stated is not None and stated != str(at.world):
        yield environment(
            spec, "WORLD_SIZE", f"nodes x GPUs per node = {at.world}", "leave it out: the launcher sets it"
        )
    for name in LAUNCHER_VARIABLES:
        if name in spec.environment:
            yield environment(spec, name, "set by the launcher for each rank", "leave it out")
    if at.dp is None:
        yield profile(
            spec, "nodes",
            f"{at.world} ranks (nodes x GPUs per node) are a multiple of TP x PP x CP = {at.tp} x {at.pp} x {at.cp}",
            f"take nodes so that the ranks are a multiple of {at.model}",
        )  # fmt: skip


def check_expert_groups(spec: RunSpec) -> Iterator[Finding]:
    """ETP x EP x PP divides the ranks; EP divides the experts."""
    at, experts = Layout.of(spec), experts_of(spec)
    if not experts:
        if at.ep > 1:
            yield argument(
                spec, "expert_model_parallel_size", "1 in a dense model: there are no experts to spread",
                set_flag(spec, "expert_model_parallel_size", 1),
            )  # fmt: skip
        return
    if experts % at.ep:
        fits = [n for n in range(1, at.world + 1) if experts % n == 0 and at.world % (n * at.etp * at.pp) == 0]
        yield argument(
            spec, "expert_model_parallel_size", f"divides the {experts} experts (moe.num_experts)",
            f"one of {', '.join(map(str, fits))}" if fits else "",
        )  # fmt: skip
    if at.world % (at.ep_block * at.pp):
        yield argument(
            spec, "expert_model_parallel_size",
            f"EP x ETP x PP = {at.ep} x {at.etp} x {at.pp} divides the {at.world} ranks (nodes x GPUs per node)",
            f"take a smaller one, or ranks that are a multiple of {at.ep_block * at.pp}",
        )  # fmt: skip


def check_nvlink_domain(spec: RunSpec) -> Iterator[Finding]:
    """An EP group lies inside one NVLink domain: HybridEP must, other dispatchers are slow where it does not."""
    at, domain = Layout.of(spec), spec.profile.get("nvlink_domain")
    if at.ep > 1 and domain and at.ep_block > domain:
        yield argument(
            spec, "expert_model_parallel_size",
            f"the {at.ep_block} ranks of an expert-parallel group (EP x ETP) share one NVLink domain, "
            f"{domain} GPUs (profile.nvlink_domain of {spec.profile['name']})",
            f"take {domain} or fewer, or a profile with a larger domain",
            severity=_severity(spec),
        )  # fmt: skip


def check_segment(spec: RunSpec) -> Iterator[Finding]:
    """Nodes that must share NVLink are kept together by a segment that this Slurm can give."""
    segment, per_node = spec.segment, int(spec.profile["gpus_per_node"])
    if spec.profile["executor"] != "slurm":
        return
    allocated = _allocated(spec)
    able = "segment" in ((spec.profile.get("slurm") or {}).get("capabilities") or ())
    at = Layout.of(spec)
    crosses = at.ep > 1 and per_node % at.ep_block != 0
    needed = -(-at.ep_block // per_node)
    if segment is None:
        if crosses and allocated > 1:
            yield profile(
                spec, "segment",
                f"an expert-parallel group spans {needed} nodes, which must share one NVLink domain: a segment keeps "
                "them together", f"--set profile.segment={_segment_for(spec)}"
                + ("" if able else ", on a Slurm that knows --segment (profile.slurm.capabilities)"),
                severity=_severity(spec),
            )  # fmt: skip
        return
    if not able:
        yield profile(
            spec, "segment", "this Slurm does not know --segment (profile.slurm.capabilities lists what it knows)",
            "add 'segment' to the capabilities if `sbatch --help` shows it; else take a profile whose NVLink domain "
            "needs none" if crosses else "--set profile.segment=null: no group here needs it",
        )  # fmt: skip
    domain, spares = spec.profile.get("nvlink_domain"), int(spec.profile.get("spare_nodes") or 0)
    if spares and spec.profile["segment"] not in (allocated - spares, allocated):
        yield profile(
            spec, "segment",
            f"with spare nodes one segment holds all {allocated}: a spare of another one does not share NVLink with "
            "the lost node's neighbours", f"--set profile.segment={allocated - spares}, or --set profile.spare_nodes=0",
        )  # fmt: skip
        return
    if spares and domain and allocated * per_node > domain:
        yield profile(
            spec, "spare_nodes", f"nodes + spare nodes = {allocated} of {per_node} GPUs fit the NVLink domain, "
            f"{domain} GPUs", f"--set profile.spare_nodes={max(0, domain // per_node - allocated + spares)}",
        )  # fmt: skip
        return
    if allocated % segment:
        yield profile(
            spec, "segment", f"divides nodes + spare nodes = {allocated}",
            f"--set profile.segment={_segment_for(spec)}",
        )  # fmt: skip
    if domain and segment * per_node > domain:
        yield profile(
            spec, "segment", f"segment x GPUs per node = {segment * per_node} fits the NVLink domain, {domain} GPUs",
            f"--set profile.segment={_segment_for(spec)}",
        )  # fmt: skip
    elif crosses and segment != allocated and (segment * per_node) % at.ep_block:
        yield profile(
            spec, "segment",
            f"segment x GPUs per node = {segment * per_node} holds whole expert-parallel groups of {at.ep_block}",
            f"--set profile.segment={_segment_for(spec)}", severity=_severity(spec),
        )  # fmt: skip


def _segment_for(spec: RunSpec) -> int:
    """Return the largest segment that divides the allocation, fits the domain and holds whole groups."""
    allocated, per_node = _allocated(spec), int(spec.profile["gpus_per_node"])
    fitting = int(spec.profile.get("nvlink_domain") or 72) // per_node
    block = Layout.of(spec).ep_block
    whole = block // math.gcd(block, per_node)  # nodes that whole groups fill
    good = [n for n in range(1, min(allocated, fitting) + 1) if allocated % n == 0 and n % whole == 0]
    return max(good, default=whole)


def _allocated(spec: RunSpec) -> int:
    return int(spec.profile["nodes"]) + int(spec.profile.get("spare_nodes") or 0)


def _severity(spec: RunSpec) -> Severity:
    return "error" if uses_hybridep(spec) else "warning"
