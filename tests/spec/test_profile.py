"""Profiles: shipped files, the site's own values, the command line; unknown keys and wrong types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.spec import library
from seatrial.spec.profile import load_profile

SITE = """\
account: lab
container:
  image: /images/nemo.sqsh
  mounts: ["/lustre:/lustre"]
env:
  pass: [HF_TOKEN]
profiles:
  gb200-64gpu:
    partition: long
set:
  data.data_path: [/lustre/data/rp2]
"""


def write_site(home: Path, text: str) -> None:
    path = home / ".config" / "seatrial" / "site.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_every_shipped_profile_loads() -> None:
    for name in library.names("cluster_profiles"):
        assert load_profile(name).data["name"] == name


def test_layers_win_in_order(own_home: Path) -> None:
    write_site(own_home, SITE)
    loaded = load_profile("gb200-64gpu", [("account", "mine"), ("container.image", "/other.sqsh")])
    assert loaded.data["account"] == "mine"
    assert loaded.data["partition"] == "long"
    assert loaded.data["container"] == {"image": "/other.sqsh", "mounts": ["/lustre:/lustre"], "python": "python3"}
    assert loaded.data["env"]["pass"] == ["HF_TOKEN"]
    assert loaded.sources["partition"] == "site.yaml:9"
    assert loaded.sources["account"] == "command line"
    assert loaded.site_values == {"data.data_path": (["/lustre/data/rp2"], "site.yaml:11")}


def test_another_profile_does_not_get_its_neighbours_values(own_home: Path) -> None:
    write_site(own_home, SITE)
    assert load_profile("gb200-8gpu").data["partition"] is None


def test_a_local_profile_ignores_the_site(own_home: Path) -> None:
    write_site(own_home, SITE)
    assert load_profile("local-cpu").data["account"] is None
    assert load_profile("local-cpu").site_values == {}


@pytest.mark.parametrize(
    ("overrides", "key", "word"),
    [
        ([("acount", "x")], "profile.acount", "'account'"),
        ([("container.imag", "x")], "profile.container.imag", "'image'"),
        ([("nodes", "two")], "profile.nodes", "integer"),
        ([("nodes", 0)], "profile.nodes", "greater than or equal to 1"),
        ([("nodes", True)], "profile.nodes", "integer"),
        ([("spare_nodes", -1)], "profile.spare_nodes", "greater than or equal to 0"),
        ([("slurm.capabilities", ["segments"])], "profile.slurm.capabilities.0", "segment"),
        ([("account.name", "x")], "profile.account.name", "one value"),
        ([("memory", 0)], "profile.memory", "string"),
    ],
)
def test_mistakes_are_named(overrides: list[tuple[str, Any]], key: str, word: str) -> None:
    with pytest.raises(SeatrialError) as caught:
        load_profile("gb200-8gpu", [("account", "a"), *overrides])
    assert caught.value.key == key
    assert word in str(caught.value)


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(SeatrialError, match="did you mean 'gb200-8gpu'"):
        load_profile("gb200-8gpus")


def test_a_mistake_in_the_site_file_names_it(own_home: Path) -> None:
    write_site(own_home, "account: lab\npartitions: x\n")
    with pytest.raises(SeatrialError) as caught:
        load_profile("gb200-8gpu")
    assert "site.yaml:2" in str(caught.value)


RECOVERY = {
    "failures_without_progress": 3, "slots_without_progress": 2, "preemptions_without_progress": 20,
    "backoff_seconds": 10, "longest_backoff_seconds": 600, "excluded_nodes": 4, "excluded_share": 0.1,
    "exclusion_days": 7, "checkpoints_kept": 3, "checkpoints_kept_every": None, "gate_checkpoints": False,
}  # fmt: skip


def test_recovery_travels_whole(own_home: Path) -> None:
    assert load_profile("gb200-64gpu").data["recovery"] == RECOVERY
    write_site(own_home, "account: lab\nrecovery:\n  checkpoints_kept_every: 10000\n  excluded_nodes: 0\n")
    loaded = load_profile("gb200-64gpu", [("recovery.checkpoints_kept", 5)])
    assert loaded.data["recovery"] == RECOVERY | {
        "checkpoints_kept_every": 10000, "excluded_nodes": 0, "checkpoints_kept": 5,
    }  # fmt: skip
    assert loaded.sources["recovery.checkpoints_kept_every"] == "site.yaml:3"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("checkpoints_kep", 3, "did you mean 'checkpoints_kept'?"),
        ("checkpoints_kept", 0, "greater than or equal to 1"),
        ("checkpoints_kept_every", 0, "greater than or equal to 1"),
        ("failures_without_progress", 2.5, "valid integer"),
        ("excluded_share", 1.5, "less than or equal to 1"),
        ("backoff_seconds", 601, "longest_backoff_seconds must not be less than backoff_seconds"),
        ("gate_checkpoints", "yes", "valid boolean"),
    ],
)
def test_recovery_is_held_to_its_rules(key: str, value: Any, said: str) -> None:
    with pytest.raises(SeatrialError) as caught:
        load_profile("gb200-64gpu", [(f"recovery.{key}", value)])
    assert said in str(caught.value)
    assert "profile.recovery" in str(caught.value)
