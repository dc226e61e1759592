"""Whether this user's job may run: partition, account, QOS, reservation. Pure: what Slurm said was read before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.check.blame import Finding, Severity, profile
from seatrial.errors import did_you_mean
from seatrial.slurm.check_facts import Site
from seatrial.slurm.facts import Association, Partition, Qos
from seatrial.spec.runspec import RunSpec

_REFUSING = ("INACTIVE", "DRAIN")


def chosen_partitions(spec: RunSpec, site: Site) -> list[Partition]:
    """Return the partitions that the job may go to: the profile's that exist, or the cluster's default."""
    names = _names(spec.profile["partition"])
    known = {p.name: p for p in site.partitions or ()}
    return [known[n] for n in names if n in known] if names else [p for p in known.values() if p.default]


def check_names(spec: RunSpec, site: Site) -> Iterator[Finding]:
    """The partition, the account, the QOS and the reservation exist, and the account is this user's."""
    yield from _partition_exists(spec, site)
    if site.accounting:
        yield from _account_exists(spec, site)
        yield from _qos_exists(spec, site)
    elif spec.profile["account"] or spec.profile["qos"]:
        yield profile(
            spec, "account", "accounting is off on this Slurm: it checks no account and no QOS", severity="note"
        )
    yield from _reservation(spec, site)


def check_admission(spec: RunSpec, site: Site, partition: Partition) -> Iterator[Finding]:
    """``partition`` is up, and takes the account and the QOS."""
    if partition.state in _REFUSING:
        rule = f"partition {partition.name} is {partition.state}: Slurm refuses jobs for it"
        yield profile(spec, "partition", rule, "take another, or ask the site")
    elif partition.state not in ("UP", ""):
        rule = f"partition {partition.name} is {partition.state}: the job waits until somebody sets it UP"
        yield profile(spec, "partition", rule, severity="warning")
    if not site.accounting:
        return
    account = spec.profile["account"]
    if account:
        yield from _account_admitted(spec, site, partition, account.lower())
    for name in qos_names(spec, site, partition):
        allowed, denied = partition.allow_qos, partition.deny_qos or ()
        if (allowed is not None and name not in allowed) or (allowed is None and name in denied):
            own = "" if spec.profile["qos"] else ", this user's default,"
            rule = f"partition {partition.name} does not take QOS {name}{own}"
            rule += f"; it takes {_some(allowed)}" if allowed else ""
            yield profile(spec, "qos", rule, "another QOS or partition")


def qos_names(spec: RunSpec, site: Site, partition: Partition | None = None) -> list[str]:
    """Return the QOS of the job: the profile's, or the default of its association."""
    own = _names(spec.profile["qos"])
    default = next((a.default_qos for a in associations_of(spec, site, partition) if a.default_qos), None)
    return own or ([default] if default else [])


def qos_of(spec: RunSpec, site: Site, partition: Partition | None = None) -> Qos | None:
    """Return what Slurm says of the job's QOS; None where it has none, or several."""
    names = qos_names(spec, site, partition)
    return named_qos(site, names[0]) if len(names) == 1 else None


def named_qos(site: Site, name: str | None) -> Qos | None:
    """Return the QOS of that name."""
    return next((q for q in site.qos or () if q.name == name), None)


def associations_of(spec: RunSpec, site: Site, partition: Partition | None = None) -> list[Association]:
    """Return the user's associations with the job's account, those for its partition first."""
    account = (spec.profile["account"] or "").lower()
    cluster = (site.config or {}).get("ClusterName", "").lower()
    found = [
        a for a in site.associations or ()
        if a.account.lower() == account and (not cluster or a.cluster.lower() == cluster)
        and (a.partition is None or partition is None or a.partition == partition.name)
    ]  # fmt: skip
    return sorted(found, key=lambda a: a.partition is None)


def _partition_exists(spec: RunSpec, site: Site) -> Iterator[Finding]:
    if site.partitions is None:
        return
    known = [p.name for p in site.partitions]
    for name in _names(spec.profile["partition"]):
        if name not in known:
            fix = did_you_mean(name, known, otherwise=f"one of {_some(known)}") or ""
            yield profile(spec, "partition", "this Slurm has no such partition", fix, value=name)


def _account_exists(spec: RunSpec, site: Site) -> Iterator[Finding]:
    account = spec.profile["account"]
    if not account or site.associations is None or associations_of(spec, site):
        return
    own = sorted({a.account for a in site.associations})
    rule = f"user {site.user} has no such account on this cluster"
    fix = did_you_mean(account, own, otherwise=f"one of {_some(own)}" if own else "ask the site for one") or ""
    severity: Severity = "error" if site.enforces("associations") else "warning"
    yield profile(spec, "account", rule, fix, severity=severity)


def _account_admitted(spec: RunSpec, site: Site, partition: Partition, account: str) -> Iterator[Finding]:
    lineage = {name.lower() for name in site.ancestors(account)}
    allowed, denied = partition.allow_accounts, partition.deny_accounts or ()
    if allowed is not None and not lineage & set(map(str.lower, allowed)):
        # Without the tree of accounts nobody knows whether one above it is listed.
        severity: Severity = "error" if site.parents is not None else "warning"
        rule = f"partition {partition.name} does not take account {account}; it takes {_some(allowed)}"
        yield profile(spec, "account", rule, "another account or partition", severity=severity)
    elif allowed is None and lineage & set(map(str.lower, denied)):
        rule = f"partition {partition.name} does not take account {account}"
        yield profile(spec, "account", rule, "another account or partition")
    elif site.associations is not None and associations_of(spec, site) and not associations_of(spec, site, partition):
        rule = f"user {site.user} may not use account {account} in partition {partition.name}"
        own = {a.partition for a in associations_of(spec, site) if a.partition}
        yield profile(spec, "account", rule, f"one of its partitions: {_some(sorted(own))}")


def _qos_exists(spec: RunSpec, site: Site) -> Iterator[Finding]:
    for name in _names(spec.profile["qos"]):
        if site.qos is not None and named_qos(site, name) is None:
            known = [q.name for q in site.qos]
            fix = did_you_mean(name, known, otherwise=f"one of {_some(known)}") or ""
            yield profile(spec, "qos", "this Slurm has no such QOS", fix, value=name)
            continue
        lists = [set(a.qos) for a in associations_of(spec, site)]
        # An association without a list, or one with changes to an inherited list, says nothing.
        if lists and all(lists) and not any(q[0] in "+-" for qos in lists for q in qos):
            own = set().union(*lists)
            if name not in own:
                severity: Severity = "error" if site.enforces("qos") else "warning"
                rule = f"user {site.user} may not use it with account {spec.profile['account']}"
                yield profile(spec, "qos", rule, f"one of {_some(sorted(own))}", value=name, severity=severity)


def _reservation(spec: RunSpec, site: Site) -> Iterator[Finding]:
    name = spec.profile["reservation"]
    if not name or site.reservations is None:
        return
    found = next((r for r in site.reservations if r.name == name), None)
    if found is None:
        known = [r.name for r in site.reservations]
        fix = did_you_mean(name, known, otherwise=f"one of {_some(known)}" if known else "leave it out") or ""
        yield profile(spec, "reservation", "this Slurm has no such reservation", fix)
        return
    lineage = site.ancestors((spec.profile["account"] or "").lower())
    inside = [_listed_in(found.users, [site.user]), _listed_in(found.accounts, lineage)]
    if False in inside:
        rule = f"the reservation is for users {_some(found.users)} and accounts {_some(found.accounts)}"
        yield profile(spec, "reservation", rule, "another account, or ask the site")
    if found.state not in ("ACTIVE", ""):
        yield profile(spec, "reservation", f"the reservation is {found.state} now", severity="warning")


def _listed_in(names: Sequence[str] | None, own: Sequence[str]) -> bool | None:
    """Whether one of ``own`` is let in; None where the list says nothing."""
    if not names:
        return None
    if names[0].startswith("-"):
        return not {f"-{name}" for name in own} & set(names)
    return bool(set(own) & set(names))


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]


def _some(names: Sequence[str] | None) -> str:
    """Return a list for people: cut where it is long."""
    if not names:
        return "any"
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
