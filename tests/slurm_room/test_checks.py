"""The checks against a site's Slurm: a table of sites and profiles, and what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from seatrial.check.blame import Finding
from seatrial.slurm.checks import slurm_findings
from seatrial.slurm.client import Slurm
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.slurm_room.fake_site import FakeSite, config, node, nodes, partition
from tests.slurm_room.fakes import Reply

RUNS = "/srv/shared/runs"  # on no node-local file system; never made
SITE = {"account": "lab", "partition": "batch", "container.image": "nemo:26.06", "paths.runs": RUNS}
QUIET = {"data.tokenizer_type": "NullTokenizer", "data.tokenizer_model": "null"}
REFUSED = "allocation failure: Requested node configuration is not available\n"
DBD = "sacctmgr: error: Sending PersistInit msg: Connection refused\nsacctmgr: error: Problem talking to the database"
OFF = "You are not running a supported accounting_storage plugin\n"
LOST = "allocation failure: Socket timed out on send/recv operation\n"
DENIED = "slurm_load_x error: Access denied\n"
ACCOUNTING = ("qos", "associations", "tree")
BUT_SBATCH = ("partition", "nodes", "topology", "reservation", "version", *ACCOUNTING)
PRIORITY = config(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE")


@dataclass(frozen=True)
class Case:
    """``settings``: of the profile; ``site``: changed answers. ``found``: (severity, field, words of the rule)."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    site: Mapping[str, Reply] = field(default_factory=dict)
    found: Sequence[tuple[str, str, str]] = ()
    profile: str = "gb200-8gpu"


def spec_of(profile: str = "gb200-8gpu", settings: Mapping[str, Any] | None = None, **recipe: str) -> RunSpec:
    """Return Nano's gate on ``profile``; ``settings`` are of the profile, ``recipe`` of the recipe's data section."""
    values = {f"profile.{key}": str(value) for key, value in (SITE | dict(settings or {})).items()} | QUIET
    return resolve(
        "nemotron_3_nano_gb200", profile, "gate", [*values.items(), *((f"data.{k}", v) for k, v in recipe.items())]
    )


def reserved(users: str = "(null)", accounts: str = "(null)", state: str = "ACTIVE") -> dict[str, Reply]:
    """Return a site with the reservation ``maint``."""
    line = f"ReservationName=maint Nodes=n[01-04] PartitionName=(null) Users={users} Accounts={accounts} State={state}"
    return {"reservation": Reply(line + "\n")}


def told(findings: Sequence[Finding]) -> list[str]:
    return [f"{f.severity} {f.field}: {f.rule} ({f.file}) {f.fix}" for f in findings]


CASES = [
    Case("all is well"),
    Case("the default partition", {"partition": "null"}, {"partition": Reply(partition(Default="YES"))}),
    Case("unknown partition", {"partition": "bacth"}, found=[("error", "partition", "no such partition")]),
    Case("inactive partition", site={"partition": Reply(partition(State="INACTIVE"))},
         found=[("error", "partition", "is INACTIVE: Slurm refuses")]),
    Case("draining partition", site={"partition": Reply(partition(State="DRAIN"))},
         found=[("error", "partition", "is DRAIN: Slurm refuses")]),
    Case("partition that is down", site={"partition": Reply(partition(State="DOWN"))},
         found=[("warning", "partition", "the job waits until")]),
    Case("one of two partitions takes it", {"partition": "'small,batch'"},
         {"partition": Reply(partition("small", MaxTime="01:00:00") + partition()),
          "nodes": Reply(nodes() + nodes(at="small"))},
         [("warning", "time_limit_minutes", "at most 60 minutes in partition small")]),
    Case("account missing", {"account": "lap"}, found=[("error", "account", "has no such account")]),
    Case("an account of another cluster", {"account": "far"}, found=[("error", "account", "has no such account")]),
    Case("accounts are not enforced", {"account": "x"}, {"config": Reply(config(AccountingStorageEnforce="none"))},
         [("warning", "account", "has no such account")]),
    Case("names of accounts know no case", {"account": "LAB"}),
    Case("account not allowed", site={"partition": Reply(partition(AllowAccounts="other,more"))},
         found=[("error", "account", "does not take account lab; it takes other, more")]),
    Case("account denied", site={"partition": Reply(partition(DenyAccounts="lab"))},
         found=[("error", "account", "does not take account lab")]),
    Case("an account above it is allowed", site={"partition": Reply(partition(AllowAccounts="science"))}),
    Case("an account above it is denied", site={"partition": Reply(partition(DenyAccounts="science"))},
         found=[("error", "account", "does not take account lab")]),
    Case("perhaps one above it is allowed",
         site={"partition": Reply(partition(AllowAccounts="science")), "tree": Reply(err="Access denied", rc=1)},
         found=[("warning", "account", "does not take account lab"), ("note", "executor", "tree of accounts")]),
    Case("association for another partition", site={"associations": Reply("red|lab|debug|normal|normal||\n")},
         found=[("error", "account", "may not use account lab in partition batch")]),
    Case("unknown qos", {"qos": "urgnt"}, found=[("error", "qos", "no such QOS")]),
    Case("qos not the user's", {"qos": "urgent"}, {"associations": Reply("red|lab||normal|normal||\n")},
         [("error", "qos", "may not use it with account lab")]),
    Case("qos by changes to an inherited list", {"qos": "urgent"},
         {"associations": Reply("red|lab||+urgent|normal||\n")}),
    Case("qos not the partition's", {"qos": "urgent"}, {"partition": Reply(partition(AllowQos="normal,long"))},
         [("error", "qos", "does not take QOS urgent; it takes normal, long")]),
    Case("default qos not the partition's", site={"partition": Reply(partition(AllowQos="urgent"))},
         found=[("error", "qos", "does not take QOS normal, this user's default,")]),
    Case("qos denied", {"qos": "urgent"}, {"partition": Reply(partition(DenyQos="urgent"))},
         [("error", "qos", "does not take QOS urgent")]),
    Case("time above the partition's", {"time_limit_minutes": 300},
         found=[("error", "time_limit_minutes", "at most 240 minutes in partition batch")]),
    Case("qos lifts the partition's time", {"time_limit_minutes": 300, "qos": "long"},
         {"qos": Reply("long|1-00:00:00||||cluster|00:00:00|PartitionTimeLimit\n"),
          "associations": Reply("red|lab||long|long||\n")}),
    Case("time above the qos's", site={"qos": Reply("normal|01:00:00||||cluster|00:00:00|\n")},
         found=[("error", "time_limit_minutes", "at most 60 minutes in QOS normal")]),
    Case("the partition's qos comes first", site={
        "qos": Reply("normal|01:00:00||||cluster|00:00:00|\npart|03:00:00||||cluster|00:00:00|\n"),
        "partition": Reply(partition(QoS="part"))}),
    Case("time above the association's", site={"associations": Reply("red|lab||normal|normal|01:30:00|\n")},
         found=[("error", "time_limit_minutes", "at most 90 minutes in account lab")]),
    Case("limits are not enforced", site={"config": Reply(config(AccountingStorageEnforce="associations")),
                                          "qos": Reply("normal|01:00:00||||cluster|00:00:00|\n")}),
    Case("more nodes than a job may have", {"spare_nodes": 1, "segment": 3},
         {"partition": Reply(partition(MaxNodes="2"))}, [("error", "nodes", "at most 2 a job in partition batch")]),
    Case("more nodes than there are", {"nodes": 36, "segment": 18}, found=[("error", "nodes", "has 18 in all")]),
    Case("more GPUs than a user may have", site={"qos": Reply("normal||gres/gpu=4,node=9||||00:00:00|\n")},
         found=[("error", "qos", "at most 4 GPUs, the job asks for 8")]),
    Case("no such gres", site={"nodes": Reply(nodes(gres="(null)"))},
         found=[("error", "gpus_per_node", "2 nodes with 4 GPUs each: partition batch has 0, its largest has 0")]),
    Case("GPUs that this Slurm does not count", {"gpu_request": "none"}, {"nodes": Reply(nodes(gres="(null)"))}),
    Case("too few nodes with four", site={"nodes": Reply(node(1) + nodes(gres="gpu:gb200:2"))},
         found=[("error", "gpus_per_node", "partition batch has 1, its largest has 4")]),
    Case("another type", site={"nodes": Reply(nodes(gres="gpu:h100:4"))},
         found=[("warning", "gpu_type", "calls h100, and the job asks for no type")]),
    Case("a longer name of the type", site={"nodes": Reply(nodes(gres="gpu:nvidia_gb200:4"))}),
    Case("no type in gres", site={"nodes": Reply(nodes(gres="gpu:4(S:0-1)"))}),
    Case("too few processors", site={"nodes": Reply(nodes(cpus=72))},
         found=[("error", "cpus_per_task", "144 processors each: partition batch has 0, its largest has 72")]),
    Case("too little memory", {"memory": "1T"}, found=[("error", "memory", "1048576 MiB of memory each")]),
    Case("enough memory", {"memory": "800G"}),
    Case("no node has all", {"memory": "800G"},
         {"nodes": Reply("".join(node(n, gres="gpu:2") for n in (1, 2)) + "".join(node(n, memory=9) for n in (3, 4)))},
         [("error", "nodes", "0 nodes of partition batch have all")]),
    Case("nodes out of service", site={"nodes": Reply(node(1) + nodes(state="drained"))},
         found=[("warning", "nodes", "1 fitting nodes of partition batch are in service now")]),
    Case("refused while nodes are out of service",
         site={"nodes": Reply(node(1) + nodes(state="down*")), "test_only": Reply(err=REFUSED, rc=1)},
         found=[("warning", "nodes", "in service now"), ("warning", "executor", "with the nodes in service now")]),
    Case("segment on topology/tree", site={"config": Reply(config(TopologyPlugin="topology/tree")),
                                           "topology": Reply("SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[01-18]\n")},
         found=[("error", "segment", "topology/tree and no blocks")]),
    Case("a rehearsal on topology/tree", {"container.image": "null"},
         {"config": Reply(config(TopologyPlugin="topology/tree")), "topology": Reply()},
         [("warning", "segment", "topology/tree and no blocks")], "slurm-sandbox"),
    Case("segment larger than a block", {"nodes": 16, "segment": 16},
         {"topology": Reply("BlockName=a BlockIndex=0 Nodes=n[01-09] BlockSize=9\n")},
         [("error", "segment", "the largest block has 9 nodes")]),
    Case("old version with segment", {},
         {"version": Reply("slurm-wlm 22.05.8\n"),
          "test_only": Reply(err="sbatch: unrecognized option '--segment=2'\n", rc=255)},
         [("error", "slurm.capabilities", "this is Slurm 22.05: it does not know --segment"),
                ("error", "executor", "unrecognized option '--segment=2'")]),
    Case("old version without one", {"segment": "null"}, {"version": Reply("slurm 22.05.8\n")},
         [("warning", "slurm.capabilities", "does not know --segment")]),
    Case("a flag that the profile does not list", {"slurm.capabilities": "[segment]"},
         found=[("error", "slurm.capabilities", "never dropped in silence")]),
    Case("no such reservation", {"reservation": "main"}, reserved(),
         [("error", "reservation", "no such reservation")]),
    Case("somebody's reservation", {"reservation": "maint"}, reserved("ada"),
         [("error", "reservation", "for users ada and accounts any")]),
    Case("an account's reservation that is over", {"reservation": "maint"},
         reserved(accounts="science", state="INACTIVE"), [("warning", "reservation", "INACTIVE now")]),
    Case("a reservation that keeps an account out", {"reservation": "maint"},
         reserved(accounts="-lab"), [("error", "reservation", "accounts -lab")]),
    Case("the cluster preempts", {},
         {"config": Reply(PRIORITY), "partition": Reply(partition(PreemptMode="CANCEL"))},
         [("warning", "slurm.preempt_mode", "partition batch is CANCEL here")]),
    Case("the qos preempts", {"slurm.preempt_mode": "CANCEL"},
         {"config": Reply(config(PreemptType="preempt/qos", PreemptMode="GANG,REQUEUE"))},
         [("warning", "slurm.preempt_mode", "is REQUEUE here")]),
    Case("the profile knows that the qos preempts", {"slurm.preempt_mode": "CANCEL"},
         {"config": Reply(config(PreemptType="preempt/qos", PreemptMode="REQUEUE")),
          "qos": Reply("normal|||||cancel|00:00:00|\n")}),
    Case("jobs are suspended", site={"config": Reply(PRIORITY),
                                     "partition": Reply(partition(PreemptMode="GANG,SUSPEND"))},
         found=[("warning", "slurm.preempt_mode", "are suspended when")]),
    Case("the cluster does not preempt", {"slurm.preempt_mode": "REQUEUE"},
         found=[("warning", "slurm.preempt_mode", "is OFF here")]),
    Case("a signal before the start", {"time_limit_minutes": 5},
         found=[("error", "slurm.signal_lead_seconds", "shorter than the time limit of 5 minutes")]),
    Case("sbatch refuses", site={"test_only": Reply(err=REFUSED, rc=1)},
         found=[("error", "executor", "sbatch --test-only refuses the job: allocation failure: Requested node")]),
    Case("sbatch gives no answer", site={"test_only": Reply(err=LOST, rc=1)},
         found=[("note", "executor", "could not ask sbatch --test-only")]),
    Case("sacctmgr down", site={name: Reply(err=DBD, rc=1) for name in ACCOUNTING},
         found=[("note", "executor", "could not ask Slurm about QOSs, accounts, the tree of accounts: sacc")]),
    Case("accounting off, says the configuration",
         site={"config": Reply(config(AccountingStorageType="accounting_storage/none"))},
         found=[("note", "account", "accounting is off")]),
    Case("accounting off, says sacctmgr", site={name: Reply(err=OFF, rc=1) for name in ACCOUNTING},
         found=[("note", "account", "accounting is off")]),
    Case("nothing but sbatch answers", site={name: Reply(err=DENIED, rc=1) for name in BUT_SBATCH},
         found=[("note", "executor", "could not ask Slurm about the version, partitions, nodes, the topology")]),
]  # fmt: skip
ALWAYS = {"Slurm would take the job; it might start at 2026-12-01T05:27:26 on n[01-02]", "a reference to a registry"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_site(case: Case, tmp_path: Path) -> None:
    site = FakeSite(tmp_path, **case.site)
    findings = slurm_findings(spec_of(case.profile, case.settings), site.slurm(), "run-1")
    rest = list(findings)
    for severity, key, words in case.found:
        match = next(
            (f for f in rest if (f.severity, f.field) == (severity, f"profile.{key}") and words in f.rule), None
        )
        assert match, (severity, key, words, told(findings))
        assert match.file
        rest.remove(match)
    assert not [f for f in rest if not f.rule.startswith(tuple(ALWAYS))], told(rest)
    assert not any("srun" in call or "scancel" in call for call in site.calls())
    assert sum(call.startswith("sbatch") for call in site.calls()) == sum(
        call.startswith("sbatch --test-only") for call in site.calls()
    )


def test_a_fix_can_be_typed(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, topology=Reply("BlockName=a BlockIndex=0 Nodes=n[01-09] BlockSize=9\n"))
    spec = spec_of(settings={"nodes": 16, "segment": 16, "partition": "batsh", "time_limit_minutes": 500})
    fixes = {f.field: f.fix for f in slurm_findings(spec, site.slurm(), "run-1")}
    assert fixes["profile.segment"] == "--set profile.segment=8"
    assert fixes["profile.partition"] == "did you mean 'batch'?"


def test_a_local_profile_asks_nothing(tmp_path: Path) -> None:
    assert (
        slurm_findings(resolve("nemotron_3_nano_gb200", "local-cpu", "gate"), Slurm({"PATH": "/nonexistent"}), "r")
        == []
    )


def test_without_slurm_one_note_says_so(tmp_path: Path) -> None:
    findings = slurm_findings(spec_of(settings={"container.image": "null"}), Slurm({"PATH": "/nonexistent"}), "run-1")
    assert [(f.severity, f.rule) for f in findings] == [
        ("note", "could not ask Slurm: there is no command 'scontrol' here")
    ]


def test_a_controller_that_hangs_costs_two_waits(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, config=Reply(rc="hang"))
    slurm = site.slurm()
    slurm.timeout_seconds = 0.3
    findings = slurm_findings(spec_of(settings={"container.image": "null"}), slurm, "run-1")
    assert [f.severity for f in findings] == ["note"] and "no answer within" in findings[0].rule
    assert len(site.calls()) == 2
