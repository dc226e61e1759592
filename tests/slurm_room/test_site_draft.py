"""The draft of a site file, for sites of many kinds: it says what it guessed, and it loads."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm.check_facts import Site
from seatrial.slurm.facts import Association, Node, Partition
from seatrial.slurm.site_draft import capabilities, choose_partition, draft, write
from seatrial.spec.profile import load_profile


def partition(name: str, **changes: Any) -> Partition:
    made = Partition(name, "UP", False, None, None, 4, "n[1-4]", None, None, None, None, None, "OFF", 0)
    return dataclasses.replace(made, **changes)


def node(partition: str, gres: str = "gpu:gb200:4", cpus: int = 144) -> Node:
    return Node("n1", partition, "idle", cpus, 900_000, gres, ())


def account(name: str, qos: tuple[str, ...] = ()) -> Association:
    return Association("c", name, None, qos, None, None, None)


GB200 = Site(
    user="ada",
    config={
        "ClusterName": "ship", "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CORE_MEMORY",
        "GresTypes": "gpu", "PreemptMode": "OFF", "AccountingStorageType": "accounting_storage/slurmdbd",
    },
    version=(24, 11, 5), partitions=[partition("batch", default=True), partition("debug", max_minutes=30)],
    nodes=[node("batch"), node("debug")], associations=[account("research")], blocks=(18, 18),
)  # fmt: skip


def site(config: dict[str, str] | None = None, **changes: Any) -> Site:
    return dataclasses.replace(GB200, config={**(GB200.config or {}), **(config or {})}, **changes)


@pytest.mark.parametrize(
    ("one", "says", "values"),
    [
        (GB200, ["your only one"], {"account": "research", "partition": "batch", "cpus_per_task": 36}),
        (
            site(associations=[account("root"), account("a"), account("b")]),
            ["guessed, the first of yours; also yours: b, root"],
            {"account": "a"},
        ),
        (site(associations=[]), ["ask for one"], {"account": None}),
        (site(associations=None, unasked={"accounts": "no answer"}), ["Not known: accounts: no answer"], {}),
        (
            site({"AccountingStorageType": "accounting_storage/none"}, associations=None),
            ["keeps no accounts"],
            {"account": "none"},
        ),
        (site(associations=[account("a", ("normal", "long"))]), ["it may use normal, long"], {"qos": None}),
        (site(associations=[account("12345")]), [], {"account": "12345"}),
        (site(associations=[account('odd "name": #1')]), [], {"account": 'odd "name": #1'}),
        (
            site({"SelectType": "select/cons_res"}),
            ["knows no --gpus-per-node"],
            {"gpu_request": "gres"},
        ),
        (site(nodes=[node("batch", "")]), ["No GPUs"], {"gpu_request": "none"}),
        (site(nodes=[node("batch", "gpu:8", 128)]), ["have 8 GPUs"], {"cpus_per_task": 16}),
        (site(partitions=None), ["none that is up is known"], {"partition": None}),
        (
            site(partitions=[partition("batch", max_minutes=60)]),
            ["what the partition admits"],
            {"time_limit_minutes": 60},
        ),
        (site(partitions=[partition("batch", preempt_mode="REQUEUE")]), [], {"slurm.preempt_mode": "REQUEUE"}),
        (
            site(partitions=[partition("batch", preempt_mode="GANG,SUSPEND")]),
            ["none of OFF, REQUEUE and CANCEL"],
            {"slurm.preempt_mode": "OFF"},
        ),
        (site(partitions=[partition("batch", preempt_mode="GANG,CANCEL")]), [], {"slurm.preempt_mode": "CANCEL"}),
        (site(version=None), ["unknown version"], {}),
    ],
)
def test_a_draft(one: Site, says: list[str], values: dict[str, Any], own_home: Path) -> None:
    text = draft(one)
    for words in says:
        assert words in text
    write(text, own_home / ".config" / "seatrial" / "site.yaml")
    data = load_profile("gb200-8gpu").data
    for key, value in values.items():
        found: Any = data
        for part in key.split("."):
            found = found[part]
        assert found == value, key


@pytest.mark.parametrize(
    ("one", "lacks"),
    [
        (GB200, set()),
        (site(blocks=()), {"segment"}),
        (site(blocks=None), {"segment"}),
        (site({"SelectType": "select/cons_res"}), {"gpus-per-node"}),
        (site({"GresTypes": ""}), {"gres"}),
        (site({"SelectTypeParameters": "CR_CORE"}), {"mem"}),
    ],
)
def test_capabilities(one: Site, lacks: set[str]) -> None:
    assert set(capabilities(GB200)) - set(capabilities(one)) == lacks


@pytest.mark.parametrize(
    ("partitions", "gpu_partitions", "chosen"),
    [
        (["a", "b"], ["b"], "b"),
        ([], [], None),
        (["a"], [], "a"),
    ],
)
def test_the_partition_with_gpus(partitions: list[str], gpu_partitions: list[str], chosen: str | None) -> None:
    one = site(
        partitions=[partition(name, default=name == "a") for name in partitions],
        nodes=[node(name, "gpu:4" if name in gpu_partitions else "") for name in partitions],
    )
    found = choose_partition(one)
    assert (found and found.name) == chosen


def test_a_partition_that_is_down_is_not_chosen() -> None:
    one = site(partitions=[partition("a", state="DOWN", default=True), partition("b")])
    found = choose_partition(one)
    assert found is not None
    assert found.name == "b"


def test_no_slurm_is_one_message() -> None:
    with pytest.raises(SeatrialError, match="does not answer here: no command"):
        draft(Site(unasked={"itself": "no command"}))


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("mine")
    with pytest.raises(SeatrialError, match="there is a site file already"):
        write("draft", path)
    assert path.read_text() == "mine"
