"""What a drill may be compared with, told apart by one change at a time; and that a drill admits no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission import Wanted, differences, gates, read_gate
from seatrial.slurm.admission_identity import identity
from seatrial.slurm.drill import find_reference, require_reference, submit_drill
from seatrial.spec.drill import drilled
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.slurm_room.fakes import FakeCommands, Reply

NANO = "nemotron_3_nano_gb200"


def gate(*changes: tuple[str, str], profile: str = "local-cpu") -> RunSpec:
    return resolve(NANO, profile, "gate", changes)


def write(
    runs: Path, name: str, spec: RunSpec, verdict: str | None = "PASS", steps: int = 100, **more: Any
) -> RunFolder:
    """Write the folder of a gate that was judged."""
    runs.mkdir(exist_ok=True)
    folder = RunFolder.create(runs / name)
    records.write_json(folder.spec, spec.to_json() | {"run_id": name, "same": identity(spec)} | more)
    for step in range(1, steps + 1):
        records.append_line(folder.metrics, {"step": step})
    if verdict:
        records.write_json(folder.verdict, {"verdict": verdict, "rehearsal": spec.rehearsal, "kind": "gate"})
    return folder


def kill_rank() -> RunSpec:
    return drilled(gate(), "kill-rank@30")


def test_an_earlier_gate_of_the_same_thing_is_found(tmp_path: Path) -> None:
    assert find_reference(kill_rank(), gates([tmp_path])) is None
    calm = write(tmp_path, "calm", gate())
    found = find_reference(kill_rank(), gates([tmp_path]))
    assert found is not None and found.folder == calm
    assert require_reference(kill_rank(), found) is found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schedule.train_iters", "200"), "train_iters was 200, here it is 100"),
        (("schedule.global_batch_size", "32"), "global_batch_size was 32, here it is 16"),
        (("schedule.lr_warmup_iters", "10"), "lr_warmup_iters was 10, here it is 480"),
        (("evaluation.eval_interval", "50"), "eval_interval was 50, here it is 800"),
        (("optimizer.clip_grad", "0.5"), "arguments differ: clip_grad (0.5 there, 1.0 here)"),
        (("profile.gpus_per_node", "4"), "profile.gpus_per_node was 4, here it is 2"),
        (("profile.nodes", "2"), "profile.nodes was 2, here it is 1"),
        (("checkpoint.save_interval", "20"), None),
        (("profile.spare_nodes", "1"), None),
        (("profile.recovery.gate_checkpoints", "true"), None),
    ],
)
def test_what_makes_another_curve(tmp_path: Path, change: tuple[str, str], said: str | None) -> None:
    write(tmp_path, "calm", gate(change), steps=200)
    found = find_reference(kill_rank(), gates([tmp_path]))
    assert (found is None) is (said is not None)
    if said is not None:
        with pytest.raises(SeatrialError) as caught:
            require_reference(kill_rank(), gates([tmp_path])[0])
        assert caught.value.key == "--reference" and said in str(caught.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"verdict": "FAIL"}, "its verdict is FAIL"),
        ({"verdict": None}, "it has no verdict yet"),
        ({"steps": 99}, "1 of its steps are not on record, the first is 100"),
        ({"drill": {"fault": "hang", "step": 9}}, "it is a drill (hang@9), and no undisturbed gate"),
        ({"same": None}, "it has no record of what it was"),
    ],
)
def test_what_is_no_undisturbed_gate(tmp_path: Path, written: dict[str, Any], said: str) -> None:
    write(tmp_path, "calm", gate(), **written)
    assert find_reference(kill_rank(), gates([tmp_path])) is None
    with pytest.raises(SeatrialError) as caught:
        require_reference(kill_rank(), gates([tmp_path])[0])
    assert said in str(caught.value)


def test_a_drill_that_passed_admits_no_run(tmp_path: Path) -> None:
    run = resolve(NANO, "local-cpu", "convergence")
    calm, drill = write(tmp_path, "calm", gate()), write(tmp_path, "drill", kill_rank())
    wanted = Wanted.of(run)
    assert differences(wanted, read_gate(calm)) == []  # type: ignore[arg-type]
    (why,) = differences(wanted, read_gate(drill))  # type: ignore[arg-type]
    assert why == "it is a drill (kill-rank@30), and no undisturbed gate"


def test_where_none_is_there_both_are_submitted_and_the_drill_waits(fake: FakeCommands, tmp_path: Path) -> None:
    replies = {"sbatch": [Reply("7\n"), Reply("8\n")]}
    for name in ("sbatch", "scontrol", "scancel", "squeue", "sacct"):
        fake.script(name, *replies.get(name, [Reply()]))
    spec = gate(("profile.paths.runs", json.dumps(str(tmp_path / "runs"))), profile="slurm-sandbox")
    pair = submit_drill(spec, drilled(spec, "hang@60"), allow_dirty=True, slurm=fake.slurm())
    calm, drill = (records.read_json(one.folder.spec) for one in (pair.gate, pair.run))
    assert calm["drill"] is None
    assert drill["drill"] == {"fault": "hang", "step": 60, "reference": str(pair.gate.folder.path)}
    assert (drill["kind"], drill["gate"]["save_steps"]) == ("gate", [25, 50, 75, 100])
    script = (pair.run.folder.path / "batch.sh").read_text()
    assert "--dependency=singleton,afterok:7\n" in script and "#SBATCH --no-requeue\n" in script
