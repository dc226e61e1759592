"""Whether this Slurm does what the profile says of it: version, segments, preemption, signals. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.check.blame import Finding, profile
from seatrial.slurm.check_access import chosen_partitions, qos_of
from seatrial.slurm.check_facts import Site
from seatrial.slurm.check_size import nodes_needed
from seatrial.slurm.facts import Partition
from seatrial.spec.runspec import RunSpec

SEGMENT_SINCE = (23, 11)


def check_policy(spec: RunSpec, site: Site) -> Iterator[Finding]:
    """Everything here that does not depend on one partition, and preemption for each chosen one."""
    yield from _segment(spec, site)
    yield from _signal(spec)
    told = set()
    for partition in chosen_partitions(spec, site):
        for finding in _preemption(spec, site, partition):
            if finding.rule not in told:
                told.add(finding.rule)
                yield finding


def preempt_mode(spec: RunSpec, site: Site, partition: Partition) -> str | None:
    """Return what preemption does to this job here: OFF, REQUEUE, CANCEL, SUSPEND; None where it is not known.

    Partition priority takes the partition's mode, QOS priority the QOS's ("cluster": the cluster's own).
    """
    if site.config is None:
        return None
    kind = site.config.get("PreemptType", "")
    if kind in ("", "preempt/none", "(null)"):
        return "OFF"
    mode = partition.preempt_mode
    if kind == "preempt/qos":
        qos = qos_of(spec, site, partition)
        if qos is None:
            return None
        own = qos.preempt_mode.lower() in ("", "cluster")
        mode = site.config.get("PreemptMode", "") if own else qos.preempt_mode
    words = [word for word in mode.upper().split(",") if word not in ("GANG", "WITHIN", "PRIORITY", "")]
    return words[0] if words else None


def _segment(spec: RunSpec, site: Site) -> Iterator[Finding]:
    segment = spec.segment
    capabilities = spec.profile["slurm"]["capabilities"]
    if site.version is not None and site.version < SEGMENT_SINCE and "segment" in capabilities:
        here, since = (".".join(f"{part:02d}" for part in v[:2]) for v in (site.version, SEGMENT_SINCE))
        yield profile(
            spec, "slurm.capabilities", f"this is Slurm {here}: it does not know --segment, which came with {since}",
            "take 'segment' out of the capabilities", severity="error" if segment else "warning", value="segment",
        )  # fmt: skip
        return
    if not segment or site.config is None:
        return
    plugin = site.config.get("TopologyPlugin") or "topology/default"
    if not site.blocks:
        if site.blocks is not None or plugin != "topology/block":
            yield profile(
                spec, "segment", f"this Slurm has {plugin} and no blocks: nothing keeps a segment in one NVLink domain",
                "ask the site for topology/block; where the whole partition is one NVLink domain: "
                "--set profile.segment=null",
                severity="warning" if spec.rehearsal else "error",
            )  # fmt: skip
    elif segment > max(site.blocks) and spec.profile["spare_nodes"]:
        most = max(0, max(site.blocks) - int(spec.profile["nodes"]))
        rule = f"nodes + spare nodes = {segment} lie in one block: the largest has {max(site.blocks)} nodes"
        yield profile(spec, "spare_nodes", rule, f"--set profile.spare_nodes={most}")
    elif segment > max(site.blocks):
        fix = f"--set profile.segment={_largest(nodes_needed(spec), max(site.blocks))}"
        yield profile(spec, "segment", f"the largest block has {max(site.blocks)} nodes", fix)


def _largest(nodes: int, most: int) -> int:
    """Return the largest segment that divides the nodes and fits a block."""
    return max(n for n in range(1, max(1, min(nodes, most)) + 1) if nodes % n == 0)


def _signal(spec: RunSpec) -> Iterator[Finding]:
    lead, minutes = int(spec.profile["slurm"]["signal_lead_seconds"]), int(spec.profile["time_limit_minutes"])
    if lead >= minutes * 60:
        rule = f"shorter than the time limit of {minutes} minutes: the run would be asked to save as it starts"
        fix = "--set profile.slurm.signal_lead_seconds=…, or a longer limit"
        yield profile(spec, "slurm.signal_lead_seconds", rule, fix, value=lead)


def _preemption(spec: RunSpec, site: Site, partition: Partition) -> Iterator[Finding]:
    says, does = spec.profile["slurm"]["preempt_mode"], preempt_mode(spec, site, partition)
    if does is None:
        return
    if does == "SUSPEND":
        rule = f"jobs of partition {partition.name} are suspended when they are preempted: ranks that wait time out"
        yield profile(spec, "slurm.preempt_mode", rule, "a partition or QOS without it", severity="warning", value=says)
    elif says != does:
        rule = f"preemption of jobs in partition {partition.name} is {does} here"
        fix = f"--set profile.slurm.preempt_mode={does}"
        yield profile(spec, "slurm.preempt_mode", rule, fix, severity="warning", value=says)
