"""The files that a sandbox's Slurm reads: what stands in them for each setting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.sandbox.conf import Machine, render
from seatrial.sandbox.config import Layout, SandboxConfig

MACHINE = Machine("login", Path("/opt/slurm/plugins"))
GOLDEN = Path(__file__).with_name("golden")


def files(**settings: Any) -> dict[str, str]:
    return dict(render(SandboxConfig(**{"folder": Path("/srv/box")} | settings), MACHINE))


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "preempting": {"preempt_mode": "REQUEUE", "send_user_signal": True, "grace_seconds": 20, "nodes": 36},
    "old": {"version": "22.05", "topology": "none", "accounting": False, "pyxis": False, "gpus_per_node": 0},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_files(variant: str) -> None:
    text = "".join(f"## {name}\n{body}" for name, body in sorted(files(**VARIANTS[variant]).items()))
    golden = GOLDEN / f"{variant}.txt"
    if os.environ.get("SEATRIAL_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


# Settings, file, the line that they bring; None: no such file.
LINES: list[tuple[dict[str, Any], str, str | None]] = [
    ({}, "slurm.conf", "AuthInfo=socket=/srv/box/munge/socket,cred_expire=10"),
    ({"requeue_delay_seconds": 120}, "slurm.conf", "AuthInfo=socket=/srv/box/munge/socket"),
    ({"base_port": 30000}, "slurm.conf", "SlurmctldPort=30000"),
    ({"base_port": 30000}, "slurmdbd.conf", "DbdPort=30001"),
    ({"kill_wait_seconds": 3}, "slurm.conf", "KillWait=3"),
    ({"slurmd_timeout_seconds": 7}, "slurm.conf", "SlurmdTimeout=7"),
    ({"preempt_mode": "CANCEL"}, "slurm.conf", "PreemptMode=CANCEL"),
    ({"preempt_mode": "CANCEL"}, "slurm.conf", "PreemptType=preempt/partition_prio"),
    ({}, "slurm.conf", "PreemptMode=OFF"),
    ({}, "slurm.conf", "TopologyPlugin=topology/block"),
    ({"nodes": 36}, "topology.conf", "BlockName=nvl72-02 Nodes=gb200-[019-036]"),
    ({"topology": "none"}, "topology.conf", None),
    ({"accounting": False}, "slurmdbd.conf", None),
    ({"accounting": False}, "slurm.conf", "AccountingStorageType=accounting_storage/none"),
    ({"gpus_per_node": 2}, "gres.conf", "NodeName=gb200-[001-018] Name=gpu Type=gb200 File=/srv/box/dev/nvidia[0-1]"),
    ({"pyxis": True}, "plugstack.conf", "required /srv/box/pyxis.so log=/srv/box/log/pyxis.jsonl"),
]


@pytest.mark.parametrize(("settings", "file", "line"), LINES)
def test_a_setting_brings_its_line(settings: dict[str, Any], file: str, line: str | None) -> None:
    text = files(**settings).get(file)
    assert (text is None) if line is None else line in (text or "").splitlines()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"version": "23.02"}, "version"),
    ({"version": "22.05"}, "topology"),
    ({"nodes": 20}, "nodes"),
    ({"nodes": 0, "topology": "none"}, "nodes"),
    ({"nodes": 90}, "nodes"),
    ({"gpus_per_node": -1}, "gpus_per_node"),
    ({"base_port": 80}, "base_port"),
    ({"base_port": 65500}, "base_port"),
    ({"preempt_mode": "GANG"}, "preempt_mode"),
    ({"grace_seconds": -1}, "grace_seconds"),
    ({"folder": Path("/srv/my box")}, "folder"),
    ({"folder": Path("/srv/box,2")}, "folder"),
    ({"folder": Path("/srv/") / ("b" * 80)}, "folder"),
]


@pytest.mark.parametrize(("settings", "key"), REFUSED)
def test_what_no_cluster_can_have_is_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(SeatrialError) as error:
        SandboxConfig(**{"folder": Path("/srv/box")} | settings)
    assert error.value.key == key


def test_settings_survive_json() -> None:
    config = SandboxConfig(folder=Path("/srv/box"), nodes=36, preempt_mode="CANCEL")
    assert SandboxConfig.from_json(config.to_json()) == config


def test_every_daemon_has_a_port_of_its_own() -> None:
    ports = SandboxConfig(folder=Path("/srv/box"), nodes=36).ports
    assert len(set(ports.values())) == len(ports) == 38
    assert all(27200 <= port < 27300 for port in ports.values())


def test_all_files_lie_in_the_folder() -> None:
    at = Layout(Path("/srv/box"))
    names = [name for name, value in vars(Layout).items() if isinstance(value, property)]
    assert all(getattr(at, name).is_relative_to("/srv/box") for name in names)
