"""A first site.yaml, drafted from what Slurm says of itself. Every guess says that it is one, and from what."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.slurm.check_facts import Site
from seatrial.slurm.facts import Association, Node, Partition

_SHIPPED_MINUTES = {"gb200-8gpu": 120, "gb200-64gpu": 240}
_SHIPPED_GPUS = 4
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
_ALWAYS = ("exclusive", "requeue", "signal", "no-kill", "comment")


def draft(site: Site) -> str:
    """Return site.yaml's text. Raises SeatrialError where Slurm did not answer at all."""
    if site.config is None:
        raise SeatrialError(
            f"Slurm does not answer here: {site.unasked.get('itself', 'no answer')}",
            rule="init reads sinfo, sacctmgr and scontrol show config",
            fix="run it on a login node of the cluster",
        )
    partition = choose_partition(site)
    nodes = [node for node in site.nodes or () if partition is not None and node.partition == partition.name]
    lines = [
        "# Drafted by `seatrial init` from what this Slurm says. Read every line: a guess is marked as one.",
        f"# Cluster {site.config.get('ClusterName') or 'without a name'}, Slurm "
        + (".".join(map(str, site.version)) if site.version else "of an unknown version"),
        *(f"# Not known: {what}: {words}" for what, words in site.unasked.items()),
        *_account(site),
        *_partition(site, partition),
        *_gpus(site, nodes),
        *_container(),
        "slurm:",
        f"  capabilities: [{', '.join(capabilities(site))}]",
        *_preemption(site, partition),
        *_limits(partition),
    ]
    return "\n".join(lines) + "\n"


def write(text: str, path: Path) -> None:
    """Write the draft where no file is yet. Raises SeatrialError where one is, or where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as stream:
            stream.write(text)
    except FileExistsError:
        raise SeatrialError(
            "there is a site file already", file=path, rule="init never overwrites it",
            fix="seatrial init prints the draft: take from it what you need",
        ) from None  # fmt: skip
    except OSError as error:
        raise SeatrialError(f"cannot write the site file: {error.strerror}", file=path) from error


def choose_partition(site: Site) -> Partition | None:
    """Return the partition for GPU jobs: one that is up; the most GPUs, then the default one, then the most nodes."""
    gpus: Counter[str] = Counter()
    for node in site.nodes or ():
        gpus[node.partition] += node.gpus
    up = [one for one in site.partitions or () if one.state in ("UP", "")]
    return max(up, key=lambda one: (gpus[one.name] > 0, one.default, gpus[one.name], one.total_nodes), default=None)


def capabilities(site: Site) -> list[str]:
    """Return what this Slurm can do, of what a run may need."""
    config = site.config or {}
    found = ["segment"] if site.blocks else []
    if _cons_tres(site):
        found.append("gpus-per-node")
    if "gpu" in config.get("GresTypes", "").split(","):
        found.append("gres")
    # Without memory as a resource --mem counts for nothing, and some sites refuse it.
    if "MEMORY" in config.get("SelectTypeParameters", "").upper():
        found.append("mem")
    return [*found, *_ALWAYS]


def _cons_tres(site: Site) -> bool:
    return (site.config or {}).get("SelectType", "").endswith("cons_tres")


def _account(site: Site) -> Iterator[str]:
    if not site.accounting:
        yield "# account: this Slurm keeps no accounts, but a name is needed for the records"
        yield "account: none"
        return
    accounts: Sequence[Association] = site.associations or ()
    # root is the top of the tree of accounts, and seldom what a run should be charged to.
    names = sorted(dict.fromkeys(one.account for one in accounts), key=lambda name: name == "root")
    if not names:
        yield f"# account: none is known for user {site.user or '?'}; ask for one"
        yield "# account: my-account"
        return
    others = f"; also yours: {', '.join(names[1:])}" if names[1:] else ""
    yield f"account: {_yaml(names[0])}  # {'guessed, the first of yours' if others else 'your only one'}{others}"
    qos = next((one.qos for one in accounts if one.account == names[0]), ())
    if len(qos) > 1:
        yield f"# qos: your account's default; it may use {', '.join(qos)}"


def _partition(site: Site, partition: Partition | None) -> Iterator[str]:
    if partition is None:
        yield "# partition: none that is up is known"
        return
    others = [one.name for one in site.partitions or () if one.name != partition.name]
    more = f"; others: {', '.join(others)}" if others else ""
    default = "the default one" if partition.default else "not the default one"
    yield f"partition: {_yaml(partition.name)}  # guessed: {default}, {partition.total_nodes} nodes{more}"


def _gpus(site: Site, nodes: Sequence[Node]) -> Iterator[str]:
    counts = Counter(node.gpus for node in nodes)
    gpus = counts.most_common(1)[0][0] if counts else 0
    if not gpus:
        yield "# No GPUs are known to Slurm in that partition: no GPU is asked for"
        yield "gpu_request: none"
        return
    if not _cons_tres(site):
        kind = (site.config or {}).get("SelectType", "select/?")
        yield f"gpu_request: gres  # {kind} knows no --gpus-per-node"
    one = next(node for node in nodes if node.gpus == gpus)
    cpus = one.cpus // gpus
    if cpus:
        yield f"cpus_per_task: {cpus}  # a node has {one.cpus} CPUs and {gpus} GPUs"
    if gpus != _SHIPPED_GPUS:
        yield f"# Nodes here have {gpus} GPUs, and the shipped profiles count on {_SHIPPED_GPUS}:"
        yield "# set nodes and gpus_per_node for each profile below `profiles:`"


def _container() -> Iterator[str]:
    yield "# container:                  # not known to Slurm: the image with the training stack, and what it must see"
    yield "#   image: /images/nemo.sqsh"
    yield '#   mounts: ["/lustre:/lustre"]'


def _preemption(site: Site, partition: Partition | None) -> Iterator[str]:
    said = (partition.preempt_mode if partition else "") or (site.config or {}).get("PreemptMode", "")
    known = [word for word in said.upper().split(",") if word in ("OFF", "REQUEUE", "CANCEL")]
    if known:
        yield f"  preempt_mode: {json.dumps(known[0])}"
    else:
        yield f"  # preempt_mode: Slurm says {said or 'nothing'}, which is none of OFF, REQUEUE and CANCEL"


def _limits(partition: Partition | None) -> Iterator[str]:
    """Shorten the shipped profiles' time limits where the partition admits less."""
    limit = partition.max_minutes if partition else None
    short = [name for name, minutes in _SHIPPED_MINUTES.items() if limit is not None and limit < minutes]
    if short:
        yield "profiles:"
    for name in short:
        yield f"  {name}:"
        yield f"    time_limit_minutes: {limit}  # what the partition admits"


def _yaml(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and not text.replace(".", "").isdigit() else json.dumps(text)
