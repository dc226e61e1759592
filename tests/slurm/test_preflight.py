"""The preflight on the real Slurm: all fit; one node that says why it is not; one that cannot; one that hangs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from seatrial.run import records
from seatrial.sandbox.cluster import Cluster
from tests.slurm import jobs
from tests.supervise.harness import SOURCES, events, make_run

PROGRAM = f"""
import sys
sys.path.insert(0, {str(SOURCES)!r})
from pathlib import Path
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise.control import Control
from seatrial.supervise.job import Job
from seatrial.supervise.journal import Journal
from seatrial.supervise.preflight import preflight

folder, nodes = RunFolder(Path(sys.argv[1])), sys.argv[2:]
spec = records.read_json(folder.spec)
for number, block in enumerate(spec["blocks"]):
    spec["profile"]["preflight"] = block
    preflight(Job(folder, spec, Journal(folder), Control()), nodes, number, backoff=0.1)
"""


def at(folder: Path, position: int, script: str) -> list[str]:
    """A site's command that runs a script on one of the job's nodes, and is content with the others."""
    return ["sh", "-c", f'[ "$SLURMD_NODENAME" != "$(cat {folder}/node-{position})" ] || {{ {script}; }}']


def test_unfit_nodes_are_found(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_run(tmp_path, {})
    blocks: list[dict[str, Any]] = [
        {},
        {
            "tries": 2,
            "commands": {
                "fan": at(tmp_path, 1, "echo checking; echo fan 3 is broken; exit 7"),
                "silent": at(tmp_path, 2, "kill -9 $PPID"),
            },
        },
        {"tries": 1, "seconds": 4, "commands": {"frozen": at(tmp_path, 2, "kill -STOP $PPID")}},
    ]
    profile = {"executor": "slurm", "nodes": 3, "gpus_per_node": 4, "paths": {"node_local": str(tmp_path)}}
    spec = records.read_json(folder.spec)
    spec["profile"] |= profile
    records.write_json(folder.spec, spec | {"blocks": blocks})
    (tmp_path / "program.py").write_text(PROGRAM)
    job = jobs.submit(
        cluster, tmp_path,
        "nodes=($(scontrol show hostnames)); for i in 0 1 2; do echo ${nodes[$i]} > node-$i; done\n"
        f"{sys.executable} program.py {folder.path} ${{nodes[@]}}; echo over",
        "--nodes=3", "--no-kill", "--exclusive", "--gpus-per-node=4", "--mem=0",
    )  # fmt: skip
    jobs.until(lambda: "over" in jobs.output(tmp_path, job), "the preflights")
    output = jobs.output(tmp_path, job)
    nodes = [(tmp_path / f"node-{position}").read_text().strip() for position in range(3)]
    first, second, third = events(folder, "preflight")

    assert first["nodes"] == nodes, output
    assert (first["failed"], first["tries"], first["asked"]) == ({}, 1, True)
    assert first["skipped"] == ["gpus", "ecc", "xid", "nvlink", "imex", "image"]
    assert first["seconds"] < 10

    assert second["failed"].keys() == {nodes[1], nodes[2]}
    assert second["failed"][nodes[1]] == ["fan: fan 3 is broken"]
    assert second["failed"][nodes[2]][0].startswith("no answer: task ")
    assert second["tries"] == 2
    assert f"preflight: {nodes[1]} is not fit: fan: fan 3 is broken" in output

    assert third["failed"] == {nodes[2]: ["no answer within 4 s"]}
    assert 4 <= third["seconds"] < 14
    # Nothing of the steps is left.
    jobs.wait_for(cluster, job, ["COMPLETED"])
    assert not [path for path in folder.path.iterdir() if path.name.startswith(".preflight")]
