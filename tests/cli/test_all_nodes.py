"""`gate --all-nodes` from the words to the exit code. Slurm and the gates are played: what a gate comes to is set by
its nodes. tests/slurm has the real thing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from seatrial.cli.main import app
from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm import submit as submission
from seatrial.slurm.submit import Submission
from tests.slurm_room.fakes import FakeCommands, Reply, lines, on_path

NODES = [f"gb200-{number:03d}" for number in range(1, 6)]
EP8 = "parallel.expert_model_parallel_size=8"


class Gates:
    """Stands for ``submit``: a gate passes at once unless a node of ``bad`` is in it; ``refused``: sbatch's answer."""

    def __init__(self, runs: Path, fakes: FakeCommands) -> None:
        self.runs, self.fakes, self.groups = runs, fakes, []  # type: ignore[var-annotated]
        self.bad: set[str] = set()
        self.refused: set[str] = set()
        self.endless: set[str] = set()

    def __call__(self, spec: Any, *, options: Sequence[str], **_: Any) -> Submission:
        nodes = options[0].removeprefix("--nodelist=").split(",")
        assert spec.profile["spare_nodes"] == 0
        self.groups.append(nodes)
        if self.refused & set(nodes):
            raise SeatrialError("sbatch: error: Requested node configuration is not available")
        folder = RunFolder.create(self.runs / f"gate-{len(self.groups):02d}")
        records.write_json(folder.spec, spec.to_json() | {"run_id": folder.path.name})
        records.append_event(folder.events, "submitted", executor="slurm", job_id=str(len(self.groups)))
        if self.endless & set(nodes):
            return Submission(folder, lambda: True)
        verdict = "FAIL" if self.bad & set(nodes) else "PASS"
        records.write_json(folder.verdict, {"verdict": verdict})
        records.append_event(folder.events, "supervisor_started")
        records.append_event(folder.events, "verdict", verdict=verdict)
        records.append_event(folder.events, "decision", decision="done" if verdict == "PASS" else "stop",
                             reason=f"{verdict} it is")  # fmt: skip
        return Submission(folder, lambda: False)


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> Gates:
    fakes = on_path(tmp_path, monkeypatch, "squeue", "sacct", "sbatch", "sacctmgr")
    _sinfo(fakes)
    _scontrol(fakes)
    made = Gates(tmp_path / "runs", fakes)
    monkeypatch.setattr(submission, "submit", made)
    return made


def _sinfo(fakes: FakeCommands, **states: str) -> None:
    rows = [[n, "batch", states.get(n[-3:], "idle"), 144, 900_000, "gpu:4", "(null)"] for n in NODES]
    fakes.script("sinfo", Reply(lines(*rows)))


def _scontrol(fakes: FakeCommands) -> None:
    program = fakes.bin / "scontrol"
    program.write_text(f"""#!/bin/bash
case "$*" in
*config*) echo "ClusterName = c"; echo "AccountingStorageType = accounting_storage/none" ;;
*partition*) echo 'PartitionName=batch State=UP Default=YES MaxTime=UNLIMITED TotalNodes=5 Nodes=gb200-[001-005]' ;;
*topology*) echo 'BlockName=nvl72-01 BlockIndex=0 Nodes=gb200-[001-005] BlockSize=18' ;;
*hostnames*) printf '%s\\n' {" ".join(NODES)} ;;
esac
""")
    program.chmod(0o755)


def run(tmp_path: Path, *words: str, profile: str = "slurm-sandbox") -> Result:
    settings = [f"profile.paths.runs={tmp_path / 'runs'}", f"profile.paths.node_local={tmp_path}", EP8]
    more = [word for setting in settings for word in ("--set", setting)]
    return CliRunner().invoke(app, ["gate", "nemotron_3_nano_gb200", "--profile", profile, *more, *words])


def results(said: str) -> list[str]:
    return [line for line in said.splitlines() if line[:1].isdigit() and " gates over " not in line]


def record_of(tmp_path: Path) -> dict[str, Any]:
    (path,) = (tmp_path / "runs" / ".seatrial").glob("all-nodes-*.json")
    return dict(records.read_json(path))


def test_all_pass(gates: Gates, tmp_path: Path) -> None:
    done = run(tmp_path, "--all-nodes")
    assert done.exit_code == 0, done.output
    assert results(done.output) == ["5 qualified"]
    assert gates.groups == [NODES[:2], NODES[2:4], NODES[3:5]]
    assert {node: one["result"] for node, one in record_of(tmp_path)["result"].items()} == dict.fromkeys(
        NODES, "qualified"
    )
    history = list(records.read_lines(tmp_path / "runs" / ".seatrial" / "nodes-slurm-sandbox.jsonl"))
    assert [(line["node"], line["what"]) for line in history] == [(node, "gate_passed") for node in NODES]


def test_the_bad_node_is_named_by_the_second_round(gates: Gates, tmp_path: Path) -> None:
    gates.bad = {NODES[1]}
    done = run(tmp_path, "--all-nodes")
    assert done.exit_code == 1, done.output
    assert gates.groups[3:] == [[NODES[0], NODES[2]], [NODES[1], NODES[3]]]
    assert results(done.output) == ["4 qualified", f"1 failed: {NODES[1]}"]
    found = record_of(tmp_path)
    assert found["result"][NODES[1]]["runs"] == ["gate-01", "gate-05"]
    assert [gate["round"] for gate in found["gates"]] == [1, 1, 1, 2, 2]


def test_without_a_second_round_both_are_suspects(gates: Gates, tmp_path: Path) -> None:
    gates.bad = {NODES[1]}
    done = run(tmp_path, "--all-nodes", "--no-second-round")
    assert done.exit_code == 3, done.output
    assert results(done.output) == ["3 qualified", f"2 suspect: {NODES[0]}, {NODES[1]}"]


def test_nothing_passes(gates: Gates, tmp_path: Path) -> None:
    gates.bad = set(NODES)
    done = run(tmp_path, "--all-nodes")
    assert done.exit_code == 3
    assert len(gates.groups) == 3
    assert "look at the recipe and the image first" in done.output


def test_a_group_that_slurm_refuses_leaves_the_others(gates: Gates, tmp_path: Path) -> None:
    gates.refused = {NODES[0]}
    done = run(tmp_path, "--all-nodes")
    assert done.exit_code == 3
    assert results(done.output) == ["3 qualified", f"2 not judged: {NODES[0]}, {NODES[1]}"]
    assert "Requested node configuration is not available" in done.output


def test_named_nodes_in_one_gate(gates: Gates, tmp_path: Path) -> None:
    done = run(tmp_path, "--all-nodes", "--nodes", f"{NODES[4]},{NODES[0]}")
    assert done.exit_code == 0
    assert gates.groups == [[NODES[4], NODES[0]]]
    done = run(tmp_path, "--all-nodes", "--nodes", NODES[0])
    assert isinstance(done.exception, SeatrialError)
    assert f"not judged: {NODES[0]}: a gate takes 2 nodes" in done.output


def test_a_node_out_of_service_counts_where_it_is_named(gates: Gates, tmp_path: Path) -> None:
    _sinfo(gates.fakes, **{"005": "drained"})
    done = run(tmp_path, "--all-nodes")
    assert done.exit_code == 0, done.output
    assert gates.groups == [NODES[:2], NODES[2:4]]
    assert results(done.output) == ["4 qualified", f"1 not judged: {NODES[4]}"]
    done = run(tmp_path, "--all-nodes", "--nodes", "gb200-[001-005]")
    assert done.exit_code == 3, done.output


def test_detached_and_followed_again(gates: Gates, tmp_path: Path) -> None:
    gates.bad = {NODES[1]}
    done = run(tmp_path, "--all-nodes", "--detach")
    assert done.exit_code == 0
    assert len(gates.groups) == 3 and record_of(tmp_path)["result"] is None
    (words,) = [line for line in done.output.splitlines() if line.startswith("results, with the same --set: ")]
    name = words.rpartition(" ")[2]
    assert "seatrial status gate-01 gate-02 gate-03" in done.output
    for _ in range(2):  # once more shows the same, and submits nothing
        done = run(tmp_path, "--all-nodes", "--resume", name)
        assert done.exit_code == 1, done.output
        assert f"1 failed: {NODES[1]}" in done.output
    assert len(gates.groups) == 5
    history = list(records.read_lines(tmp_path / "runs" / ".seatrial" / "nodes-slurm-sandbox.jsonl"))
    assert [line["what"] for line in history].count("gate_failed") == 1


def test_ctrl_c_leaves_the_gates_and_says_how_to_look(
    gates: Gates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates.endless = {NODES[0]}

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seatrial.report.all_nodes.time", SimpleNamespace(sleep=interrupted))
    done = run(tmp_path, "--all-nodes")
    assert done.exit_code == 130
    assert "the gates go on" in done.output and "--all-nodes --resume " in done.output
    assert record_of(tmp_path)["result"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--all-nodes", "--here"], "--here is for one gate"),
        (["--all-nodes", "--drill", "kill-rank@3"], "--drill is for one gate"),
        (["--all-nodes", "--resume", "x", "--nodes", "n1"], "--resume follows gates"),
        (["--all-nodes", "--resume", "x"], "no gates over nodes 'x' are on record"),
        (["--all-nodes", "--nodes", "gb200-999"], "no node gb200-999"),
        (["--nodes", "n1"], "--nodes is one of --all-nodes"),
        (["--at-most", "2"], "--at-most is one of --all-nodes"),
        (["--resume", "x"], "--resume is one of --all-nodes"),
    ],
)  # fmt: skip
def test_refused(words: list[str], said: str, gates: Gates, tmp_path: Path) -> None:
    done = run(tmp_path, *words)
    assert done.exception is not None
    assert said in done.output + str(done.exception)
    assert gates.groups == []


def test_refused_on_this_machine(gates: Gates, tmp_path: Path) -> None:
    done = run(tmp_path, "--all-nodes", profile="local-cpu")
    assert "this profile runs on this machine" in done.output + str(done.exception)
