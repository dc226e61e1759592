"""A run on the real Slurm, with a light payload in the ranks' place: placement, signals, exit codes, code, logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.client import Slurm
from seatrial.slurm.runs import job_reference
from seatrial.slurm.script import batch_script
from seatrial.slurm.snapshot import verify_code
from seatrial.slurm.state import states
from seatrial.slurm.submit import prepare, submit
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec
from tests.slurm import jobs
from tests.slurm.conftest import Factory

REPO = Path(__file__).resolve().parents[2]
PAYLOAD = Path(__file__).with_name("payload.py")
NANO = "nemotron_3_nano_gb200"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


@pytest.fixture
def on_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Let this process's own Slurm commands reach the cluster."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    yield cluster


def start(root: Path, fate: dict[str, Any] | None = None, kind: str = "gate", **profile: Any) -> RunFolder:
    """Submit a run of the payload; ``fate`` says how its ranks end."""
    settings = {
        "paths.runs": str(root / "runs"), "paths.node_local": str(root / "node"),
        "rank_python": str(PAYLOAD), "nodes": 2, "segment": 2,
        "env": {"set": {"FATE": json.dumps(fate or {})}}, **profile,
    }  # fmt: skip
    pairs = [(f"profile.{key}", json.dumps(value)) for key, value in settings.items()]
    pairs += [("schedule.train_iters", "4"), ("checkpoint.save_interval", "4")]
    spec = resolve(NANO, "slurm-sandbox", kind, pairs)
    prepare(spec)
    return submit(spec, allow_dirty=True).folder


def number(folder: RunFolder) -> str:
    return str(job_reference(folder).job_id)


def finish(cluster: Cluster, folder: RunFolder) -> list[str]:
    """Wait for the job's end; return sacct's state and exit code."""
    jobs.wait_for(cluster, number(folder), ENDED)
    found = jobs.until(
        lambda: [r for r in jobs.records(cluster, number(folder), "State,ExitCode") if r[0].split()[0] in ENDED],
        "the accounting record",
    )
    return list(found[-1])


def seen(folder: RunFolder, attempt: int = 0) -> list[dict[str, Any]]:
    paths = folder.attempt(attempt).path.glob("seen-*.json")
    return sorted((json.loads(p.read_text()) for p in paths), key=lambda s: int(s["SLURM_PROCID"]))


def test_the_job_runs_what_render_prints(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = start(tmp_path)
    rendered = (folder.path / "batch.sh").read_text()
    spec = RunSpec.from_json(records.read_json(folder.spec))
    assert batch_script(spec, folder.path.name) == rendered
    sent = tmp_path / "sent.sh"
    assert on_cluster.run("scontrol", "write", "batch_script", number(folder), str(sent)).returncode == 0
    assert sent.read_text() == rendered, "sbatch got other bytes than render prints"
    finish(on_cluster, folder)
    assert on_cluster.run("sacct", "--batch-script", "-j", number(folder)).returncode == 0
    ranks = seen(folder)
    assert [int(r["SLURM_PROCID"]) for r in ranks] == list(range(8))
    assert [int(r["SLURM_LOCALID"]) for r in ranks] == [0, 1, 2, 3] * 2
    assert {r["SLURM_NTASKS"] for r in ranks} == {"8"}
    assert {r["CUDA_VISIBLE_DEVICES"] for r in ranks} == {"0,1,2,3"}
    assert {r["SLURM_CPUS_PER_TASK"] for r in ranks} == {"36"}
    assert len({r["MASTER_PORT"] for r in ranks}) == 1
    assert {r["HYBRID_EP_CACHE_DIR"] for r in ranks} == {f"{tmp_path}/node/seatrial-{folder.path.name}/hybrid_ep"}
    assert {r["parent"] for r in ranks} == {"slurmstepd"}, "Python is not the step daemon's own child"
    assert ranks[0]["argv"][0] == f"{folder.path}/code/seatrial/train/rank.py"
    assert not any("SUBMITIT" in name or name == "PYTHONPATH" for name in ranks[0]["names"])
    assert f"#SBATCH --job-name={folder.path.name}" in rendered
    assert records.read_json(folder.attempt(0).record)["nodes"] == sorted({r["SLURMD_NODENAME"] for r in ranks})


@pytest.mark.parametrize(
    ("fate", "code"),
    [
        ({"5": {"steps": 2, "exit": 42}, "all": {"steps": 1, "exit": "hang"}}, 42),
        ({"2": {"steps": 2, "exit": "kill"}, "all": {"steps": 1, "exit": "hang"}}, 137),
    ],
    ids=["exit 42", "SIGKILL"],
)
def test_the_job_ends_with_the_first_failing_ranks_code(
    on_cluster: Cluster, tmp_path: Path, fate: dict[str, Any], code: int
) -> None:
    folder = start(tmp_path, fate)
    began = time.monotonic()
    state, exit_code = finish(on_cluster, folder)
    assert time.monotonic() - began < 60, "somebody waited for the ranks that hang"
    # Slurm writes 128 + N as N.
    assert (state, exit_code) == ("FAILED", f"{code % 128}:0")
    record = records.read_json(folder.attempt(0).record)
    assert record["exit_code"] == code
    assert record["first_failed_rank"] == int(next(iter(fate)))
    assert records.read_json(folder.verdict)["verdict"] == "FAIL"


def test_the_batch_process_is_the_supervisor(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = start(tmp_path, {"all": {"pace": 1}})
    jobs.until(lambda: list(records.read_lines(folder.metrics)), "the first step")
    assert on_cluster.run("scancel", "--batch", "--signal=USR2", number(folder)).returncode == 0
    jobs.until(folder.attempt(0).stop_file.exists, "the stop file")
    finish(on_cluster, folder)
    record = records.read_json(folder.attempt(0).record)
    assert record["outcome"] in ("stopped", "failed")
    assert all(rank["record"] for rank in record["ranks"]), "the ranks ended by themselves"


def test_a_requeued_job_keeps_every_attempt(on_cluster: Cluster, tmp_path: Path) -> None:
    folder = start(tmp_path, {"all": {"steps": 4, "pace": 2}}, kind="convergence")
    for attempt in range(2):
        jobs.until(lambda n=attempt: seen(folder, n), f"attempt {attempt}")
        jobs.until(lambda n=attempt: list(folder.attempt(n).path.glob("rank-*.log")), "its logs")
        assert on_cluster.run("scontrol", "requeue", number(folder)).returncode == 0
        jobs.until(lambda: jobs.state(on_cluster, number(folder)) != "RUNNING", "it leaves its nodes")
    jobs.until(lambda: seen(folder, 2), "the third attempt")
    finish(on_cluster, folder)
    # The payload saves nothing, so what follows is a failure of its own.
    assert [a.number for a in folder.attempts()][:3] == [0, 1, 2]
    for attempt in folder.attempts()[:3]:
        assert len(list(attempt.path.glob("rank-*.log"))) == 8
        assert records.read_json(attempt.record) is not None
    batch = (folder.path / f"batch-{number(folder)}.log").read_text()
    assert batch.count("Starting with JobEnvironment") == 3
    state = states([job_reference(folder)], Slurm())[folder.path.name]
    assert state.restarts == 2
    assert state.final


def test_what_runs_is_what_stood_there_at_submission(on_cluster: Cluster, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(REPO), str(clone)], check=True)
    code = (
        "import sys, json; from tests.slurm.test_submission import *\n"
        "folder = start(Path(sys.argv[1]), {})\nprint(folder.path)"
    )
    on_cluster.run("scontrol", "update", "PartitionName=batch", "State=DOWN")
    try:
        environment = os.environ | {"PYTHONPATH": f"{clone}/launchers:{clone}"}
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], cwd=clone, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        folder = RunFolder(Path(done.stdout.split()[-1]))
        with (clone / "launchers/seatrial/supervise/journal.py").open("a") as stream:
            stream.write("\nraise SystemExit('edited after submission')\n")
    finally:
        on_cluster.run("scontrol", "update", "PartitionName=batch", "State=UP")
    finish(on_cluster, folder)
    assert len(seen(folder)) == 8
    spec = records.read_json(folder.spec)
    assert verify_code(folder.path / "code").tree_hash == spec["code"]["tree_hash"]


def test_submitting_from_inside_a_job_works(on_cluster: Cluster, tmp_path: Path) -> None:
    code = f"from tests.slurm.test_submission import *; print(start(Path('{tmp_path}'), {{}}).path)"
    setting = f"export PYTHONPATH={REPO}/launchers:{REPO} SLURM_CPU_BIND=none"
    script = f'{setting}\ncd {REPO}\n{sys.executable} -c "{code}"'
    outer = jobs.submit(on_cluster, tmp_path, script, "--nodes=1", "--export=ALL")
    jobs.wait_for(on_cluster, outer, ENDED)
    folder = RunFolder(Path(jobs.output(tmp_path, outer).split()[-1]))
    finish(on_cluster, folder)
    assert len(seen(folder)) == 8


def test_a_secret_reaches_the_ranks_and_nothing_on_disk(
    on_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_" + "s3cr3t" * 4
    monkeypatch.setenv("HF_TOKEN", secret)
    monkeypatch.setenv("WANDB_API_KEY", secret[::-1])
    settings = {"pass": ["HF_TOKEN"], "set": {"FATE": "{}"}}
    folder = start(tmp_path, env=settings)
    finish(on_cluster, folder)
    assert all("HF_TOKEN" in rank["names"] for rank in seen(folder))
    assert all("WANDB_API_KEY" not in rank["names"] for rank in seen(folder))
    for path in folder.path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert secret.encode() not in data and secret[::-1].encode() not in data, path
    assert "HF_TOKEN" in (folder.path / "batch.sh").read_text()


def test_container_options_reach_every_node(on_cluster: Cluster, tmp_path: Path) -> None:
    image = tmp_path / "nemo image.sqsh"
    image.write_text("an image")
    in_image = {"FATE": "{}", "PYXIS_STAND_IN_IMAGE_ENV": "USE_MNNVL=image;ONLY_IN_IMAGE=1"}
    container = {"image": str(image), "mounts": ["/usr:/usr:ro"], "python": str(PAYLOAD)}
    folder = start(tmp_path, container=container, rank_python=None, env={"set": in_image})
    finish(on_cluster, folder)
    steps = [s for s in jobs.steps(on_cluster, number(folder)) if str(image) in json.dumps(s)]
    assert len(steps) == 2
    text = json.dumps(steps[0])
    for word in (
        f"seatrial-{number(folder)}-0",
        f"{folder.path}:{folder.path}",
        "/usr:/usr:ro",
        "NUM_OF_HYBRID_EP_RANKS",
    ):
        assert word in text
    ranks = seen(folder)
    assert len(ranks) == 8
    assert {r["USE_MNNVL"] for r in ranks} == {"1"}, "the image won over the recipe"
    assert all("ONLY_IN_IMAGE" in r["names"] for r in ranks)


@pytest.mark.parametrize("name", ["a b", "it's", 'say "hi"', "100%", "ünïcode-日本", "x" * 200])
def test_odd_folders_work(on_cluster: Cluster, tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    folder = start(root, {"all": {"steps": 1}})
    finish(on_cluster, folder)
    assert len(seen(folder)) == 8
    assert list(folder.path.glob("batch-*.log"))


def test_sixty_four_ranks_lie_in_one_block(make_cluster: Factory, tmp_path: Path, monkeypatch: Any) -> None:
    racks = make_cluster(nodes=36)
    for key, value in racks.environment().items():
        monkeypatch.setenv(key, value)
    tools = tmp_path / "tools"
    tools.mkdir()
    numactl = tools / "numactl"
    numactl.write_text('#!/bin/sh\nexport NUMACTL="$1 $2"\nshift 2\nexec "$@"\n')
    numactl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    busy = jobs.submit(racks, tmp_path, "sleep 600", "--nodes=4", "--exclusive", "--nodelist=gb200-[001-004]")
    jobs.wait_for(racks, busy, ["RUNNING"])
    image = tmp_path / "nemo.sqsh"
    image.write_text("an image")
    container = {"image": str(image), "mounts": ["/usr:/usr:ro"], "python": str(PAYLOAD)}
    folder = start(tmp_path, {}, nodes=16, segment=16, numa_bind=True, container=container, rank_python=None)
    finish(racks, folder)
    ranks = seen(folder)
    assert {r["CUDA_VISIBLE_DEVICES"] for r in ranks} == {"0,1,2,3"}
    assert {r["SLURM_CPUS_PER_TASK"] for r in ranks} == {"36"}
    contained = [step for step in jobs.steps(racks, number(folder)) if str(image) in json.dumps(step)]
    assert len(contained) == 16, "the stand-in for pyxis was asked on every node"
    assert all(f"seatrial-{number(folder)}-0" in json.dumps(step) for step in contained)
    assert [int(r["SLURM_PROCID"]) for r in ranks] == list(range(64))
    for rank, entry in enumerate(ranks):
        assert (int(entry["SLURM_NODEID"]), int(entry["SLURM_LOCALID"])) == (rank // 4, rank % 4)
        assert entry["NUMACTL"] == f"--cpunodebind={rank % 4 // 2} --membind={rank % 4 // 2}"
        assert entry["parent"] == "slurmstepd"
    assert len({r["SLURMD_NODENAME"] for r in ranks}) == 16
    assert {r["SLURMD_NODENAME"] for r in ranks} <= {f"gb200-{n:03d}" for n in range(19, 37)}, "the free rack"
