"""The checks and the look into an image on a real Slurm: what it refuses is found, what it takes is let through."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.checks import slurm_findings
from seatrial.slurm.client import Slurm
from seatrial.slurm.image import check_image
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.slurm.conftest import clusters, machine  # noqa: F401
from tests.slurm.jobs import until

pytestmark = pytest.mark.slurm
RUNS = ("profile.paths.runs", "/srv/shared/runs")  # never made


@pytest.fixture(scope="module")
def site(machine: None) -> Iterator[Cluster]:  # noqa: F811
    """A cluster of one block, with an account and a QOS that are not the user's, a child account, a QOS of an hour."""
    with clusters() as make:
        cluster = make()
        for words in (
            "add account guests", "add account crew parent=research", "add user root account=crew",
            "add qos short MaxWall=60", "add qos closed", "modify user root set QOS=normal,urgent,short",
        ):  # fmt: skip
            done = cluster.run("sacctmgr", "--immediate", "--quiet", *words.split())
            assert done.returncode == 0, done.stderr
        yield cluster


@pytest.fixture
def slurm(site: Cluster) -> Iterator[Slurm]:
    """A client of it; whatever a test does, nothing is queued afterwards."""
    yield Slurm(dict(os.environ) | site.environment())
    queue = site.run("squeue", "--noheader", "--states=all", "--format=%j %T")
    left = [line for line in queue.stdout.splitlines() if "PENDING" in line or "RUNNING" in line]
    assert queue.returncode == 0 and not left


@contextlib.contextmanager
def drained(site: Cluster, nodes: str) -> Iterator[None]:
    """Take nodes out of service; afterwards wait until the controller has heard from each again."""
    assert site.run("scontrol", "update", f"NodeName={nodes}", "State=DRAIN", "Reason=test").returncode == 0
    try:
        yield
    finally:
        site.run("scontrol", "update", f"NodeName={nodes}", "State=RESUME")
        until(lambda: set(site.status().nodes.values()) == {"idle"}, "all nodes are back in service")


def spec_of(
    *settings: tuple[str, str], profile: str = "slurm-sandbox", recipe: str = "nemotron_3_nano_gb200"
) -> RunSpec:
    return resolve(recipe, profile, "gate", [RUNS, *((f"profile.{key}", value) for key, value in settings)])


def test_the_sandbox_takes_its_own_profile(slurm: Slurm, site: Cluster) -> None:
    (note,) = slurm_findings(spec_of(), slurm, "run-1")
    assert note.severity == "note" and "Slurm would take the job; it might start at 20" in note.rule
    assert not site.run("squeue", "--noheader", "--states=all", "--name=run-1").stdout.strip()


REFUSED: list[tuple[str, Sequence[tuple[str, str]], str, str, str]] = [
    ("partition", [("partition", "bach")], "partition", "no such partition", "Invalid partition name"),
    ("account", [("account", "guests")], "account", "has no such account", "Invalid account"),
    ("qos", [("qos", "nothing")], "qos", "no such QOS", "Invalid qos"),
    ("qos not the user's", [("qos", "closed")], "qos", "may not use it", "Invalid qos"),
    ("time", [("time_limit_minutes", "300")], "time_limit_minutes", "at most 240", "time limit is invalid"),
    ("nodes", [("nodes", "36"), ("segment", "18")], "nodes", "has 18 in all", "More processors requested"),
    ("GPUs", [("gpus_per_node", "8"), ("cpus_per_task", "18")], "gpus_per_node", "its largest has 4", "not available"),
    ("memory", [("memory", "1T")], "memory", "1048576 MiB", "not available"),
    ("processors", [("cpus_per_task", "40")], "cpus_per_task", "160 processors", "not"),
    (
        "segment",
        [("nodes", "19"), ("segment", "19"), ("gpu_request", "none")],
        "segment",
        "has 18 nodes",
        "More processors requested",
    ),
    ("reservation", [("reservation", "maint")], "reservation", "no such reservation", "reservation is invalid"),
]


@pytest.mark.parametrize(("settings", "key", "words", "slurms"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_slurm_refuses_is_found(
    settings: Sequence[tuple[str, str]], key: str, words: str, slurms: str, slurm: Slurm
) -> None:
    errors = [f for f in slurm_findings(spec_of(*settings), slurm, "run-1") if f.severity == "error"]
    assert [f for f in errors if f.field == f"profile.{key}" and words in f.rule], errors
    assert [f for f in errors if f.field == "profile.executor" and slurms in f.rule], errors


def test_what_slurm_would_let_wait_for_ever_is_found(slurm: Slurm) -> None:
    found = slurm_findings(spec_of(("qos", "short"), ("time_limit_minutes", "90")), slurm, "run-1")
    assert [(f.severity, f.field) for f in found] == [
        ("error", "profile.time_limit_minutes"), ("note", "profile.executor"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "account", "severity"),
    [
        ("AllowAccounts=research", "crew", None), ("AllowAccounts=guests", "crew", "error"),
        ("DenyAccounts=research", "crew", "error"), ("AllowQos=urgent", "research", "error"),
        ("MaxNodes=1", "research", "error"), ("State=DRAIN", "research", "error"),
        ("State=INACTIVE", "research", "error"),
    ],
)  # fmt: skip
def test_a_partition_that_keeps_jobs_out(
    changes: str, account: str, severity: str | None, slurm: Slurm, site: Cluster
) -> None:
    key = changes.split("=")[0]
    undo = {"State": "UP", "MaxNodes": "UNLIMITED", "AllowAccounts": "ALL", "AllowQos": "ALL", "DenyAccounts": ""}[key]
    assert site.run("scontrol", "update", "PartitionName=batch", changes).returncode == 0
    try:
        found = slurm_findings(spec_of(("account", account)), slurm, "run-1")
    finally:
        site.run("scontrol", "update", "PartitionName=batch", f"{key}={undo}")
    ours = {f.severity for f in found if f.field != "profile.executor"}
    slurms = {f.severity for f in found if f.field == "profile.executor"}
    assert (ours, slurms) == (({"error"}, {"error"}) if severity else (set(), {"note"})), found


def test_drained_nodes_are_a_matter_of_waiting(slurm: Slurm, site: Cluster) -> None:
    with drained(site, "gb200-[002-018]"):
        found = slurm_findings(spec_of(), slurm, "run-1")
    assert [f.severity for f in found] == ["warning", "warning"]
    assert "1 fitting nodes of partition batch are in service now" in found[0].rule


def test_accounting_that_is_away_is_no_error(slurm: Slurm, site: Cluster) -> None:
    site.stop_dbd()
    try:
        found = slurm_findings(spec_of(), slurm, "run-1")
    finally:
        site.start_dbd()
    assert {f.severity for f in found} == {"note"}, found
    assert any("could not ask Slurm about QOSs, accounts, the tree of accounts" in f.rule for f in found)
    assert any("Slurm would take the job" in f.rule for f in found)


def test_a_rehearsals_python_is_looked_at_on_a_node(slurm: Slurm) -> None:
    spec = spec_of()
    (note,) = check_image(spec, slurm)
    assert note.severity == "note" and note.value == sys.executable
    assert f"megatron.core {spec.megatron_core}" in note.rule


def test_an_image_is_looked_at_through_pyxis(slurm: Slurm, site: Cluster, tmp_path: Path) -> None:
    settings = [
        ("account", "research"), ("partition", "batch"), ("container.image", "/images/nemo.sqsh"),
        ("container.python", "python3"), ("container.mounts", "['/lustre:/lustre']"),
    ]  # fmt: skip
    found = check_image(spec_of(*settings, profile="gb200-8gpu"), slurm)
    assert {"torch", "deep_ep", "megatron.core"} <= {f.value for f in found if f.severity == "error"}
    step = json.loads(site.at.steps.read_text().splitlines()[-1])
    assert step["tasks"] == 1 and step["options"] == {
        "container-image": "/images/nemo.sqsh", "container-mounts": "/lustre:/lustre", "container-workdir": "/",
        "no-container-mount-home": True,
    }  # fmt: skip


def test_an_image_that_cannot_be_imported(slurm: Slurm) -> None:
    settings = [("account", "research"), ("partition", "batch"), ("container.image", "/images/does-not-exist.sqsh")]
    (finding,) = check_image(spec_of(*settings, profile="gb200-8gpu"), slurm)
    assert finding.severity == "error" and "failed to import docker image" in finding.rule


def test_nobody_waits_long_for_a_node(slurm: Slurm, site: Cluster) -> None:
    with drained(site, "gb200-[001-018]"):
        (finding,) = check_image(spec_of(), slurm, wait_seconds=2)
    assert finding.severity == "warning" and "not looked at" in finding.rule
