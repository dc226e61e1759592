"""A run that a person brings back on another profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm import requeue_profile
from seatrial.slurm.script import batch_script
from seatrial.slurm.submit import prepare
from seatrial.spec.runspec import RunSpec
from tests.run.test_checkpoint import torchs_names
from tests.slurm_room.fakes import FakeCommands, Reply
from tests.slurm_room.test_requeue import (
    REFUSED,
    TIMED_OUT,
    answers,
    ask,
    events,
    only_releases,
    profile_file,
    run,
)

__all__ = ["run", "torchs_names"]  # fixtures


def test_another_profile(fake: FakeCommands, run: RunFolder, tmp_path: Path) -> None:
    prepare(RunSpec.from_json(records.read_json(run.spec)))
    name = profile_file(tmp_path, partition="long", time_limit_minutes="90", nodes="4", gpus_per_node="2", segment="4")
    old = {name: (run.path / name).read_text() for name in ("spec.json", "batch.sh")}
    only_releases(fake)
    assert ask(fake, run, profile=name).job == "8"
    assert (run.path / "spec-000.json").read_text() == old["spec.json"]
    assert (run.path / "batch-000.sh").read_text() == old["batch.sh"]
    spec = records.read_json(run.spec)
    was = json.loads(old["spec.json"])
    assert (spec["world_size"], spec["profile"]["partition"], spec["profile"]["name"]) == (8, "long", "larger")
    kept = ("fields", "arguments", "environment", "same", "run_id", "admission", "failures", "code", "created", "kind")
    assert {key: spec[key] for key in kept} == {key: was[key] for key in kept}
    script = (run.path / "batch.sh").read_text()
    assert script == batch_script(RunSpec.from_json(spec), run.path.name)
    assert "--partition=long" in script and "--nodes=4" in script and "--time=90" in script
    (event,) = events(run, "requeue_requested")
    assert event["profile"] == name
    tested, sent = fake.calls("sbatch")[-2:]
    assert "--test-only" in tested and "--hold" in sent
    assert (run.path / "batch.sh").stat().st_mode == (run.path / "batch-000.sh").stat().st_mode


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpu_type": "h200"}, "its GPU type would differ: h200 for gb200"),
        ({"nvlink_domain": "8"}, "its nvlink_domain is 8"),
        ({"nodes": "3", "segment": "3"}, "schedule.global_batch_size: a multiple of"),
        ({"device": "cuda"}, "device cuda for cpu"),
        ({"nodes": "0"}, "wrong value in the profile"),
    ],
)
def test_a_profile_that_does_not_fit(
    fake: FakeCommands, run: RunFolder, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    before = run.spec.read_bytes()
    with pytest.raises(SeatrialError) as caught:
        ask(fake, run, profile=profile_file(tmp_path, **changes))
    assert said in str(caught.value)
    assert run.spec.read_bytes() == before
    assert not (run.path / "spec-000.json").exists()
    assert events(run, "requeue_requested") == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [(REFUSED, "sbatch --test-only refuses the job"), (TIMED_OUT, "does not say whether it takes the job")],
)
def test_a_profile_that_sbatch_does_not_take_changes_nothing(
    fake: FakeCommands, run: RunFolder, tmp_path: Path, reply: Reply, said: str
) -> None:
    prepare(RunSpec.from_json(records.read_json(run.spec)))
    answers(fake, run, sbatch=[reply])
    only_releases(fake)
    with pytest.raises(SeatrialError, match=said):
        ask(fake, run, profile=profile_file(tmp_path, partition="long"))
    assert not (run.path / "spec-000.json").exists()
    assert events(run, "requeue_requested") == []
    assert not any("--hold" in call for call in fake.calls("sbatch"))


def test_another_image_is_another_run(run: RunFolder) -> None:
    document = records.read_json(run.spec)
    document["same"]["image"] = "sha256:" + "0" * 64
    with pytest.raises(SeatrialError, match="its image would differ"):
        requeue_profile.changed(document, run, "slurm-sandbox")


def test_what_a_profile_set_for_the_ranks_goes_with_it(run: RunFolder) -> None:
    old = RunSpec.from_json(records.read_json(run.spec))
    with_own = {**old.profile, "env": {"pass": [], "set": {"NCCL_IB_HCA": "mlx5"}}}
    before = replace(old, profile=with_own, environment={**old.environment, "NCCL_IB_HCA": "mlx5"})
    after = requeue_profile.on_profile(before, "slurm-sandbox", run.path.parent)
    assert dict(after.environment) == dict(old.environment)
    assert after.fields == old.fields
