"""What a task carries: the run folder as a submission leaves it, made again elsewhere, whole or not at all."""

from __future__ import annotations

import io
import os
import pickle
import stat
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest

from seatrial.interop.nemo_run import begin
from seatrial.interop.nemo_run.parcel import Parcel, make_parcel
from seatrial.interop.nemo_run.portable import portable
from seatrial.run import records
from seatrial.slurm.script import batch_script
from seatrial.slurm.snapshot import verify_code
from seatrial.spec.runspec import RunSpec
from tests.interop.cases import spec
from tests.test_rooms import old_python


def parcel_for(root: Path) -> Parcel:
    return make_parcel(portable(spec("gb200-8gpu", "gate", ("profile.paths.runs", f"{root}/runs"))), allow_dirty=True)


@pytest.fixture(scope="module")
def shared() -> Parcel:
    """One parcel for the tests to which its folder's own path is nothing."""
    return parcel_for(Path("/lustre"))


def opened(parcel: Parcel) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(parcel.archive))


def test_the_folder_is_what_a_submission_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = tmp_path / "tmp"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    parcel = parcel_for(tmp_path)
    assert not list(aside.iterdir()), "something is left on this machine"
    assert not (tmp_path / "runs").exists()
    folder = Path(parcel.folder)
    assert folder == tmp_path / "runs" / parcel.run_id
    with opened(parcel) as archive:
        assert begin.make(archive, folder, "7-0")
    assert [p.name for p in folder.parent.iterdir()] == [parcel.run_id], "something is left of making it"
    document = records.read_json(folder / "spec.json")
    assert document["run_id"] == parcel.run_id
    assert document["profile"]["paths"]["runs"] == str(folder.parent)
    assert document["profile"]["rank_python"] == "python3", "the image's"
    assert document["admission"] is None
    assert verify_code(folder / "code").tree_hash == document["code"]["tree_hash"]
    assert (folder / "batch.sh").read_text() == batch_script(RunSpec.from_json(document), parcel.run_id)
    assert (folder / "attempts").is_dir()
    assert [event["event"] for event in records.read_lines(folder / "events.jsonl")] == ["created"]
    modes = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in ("", "spec.json", "submitit", "attempts")}
    assert modes == {"": 0o700, "spec.json": 0o600, "submitit": 0o700, "attempts": 0o700}
    assert stat.S_IMODE((folder / "code/seatrial/errors.py").stat().st_mode) == 0o444


def test_the_supervisor_could_be_started_by_submitit(shared: Parcel) -> None:
    """That is how the run's own script starts it, should tend or requeue submit that one."""
    with opened(shared) as archive:
        found = pickle.loads(archive.read("run/submitit/0_submitted.pkl"))
    assert (found.function.__module__, found.function.__name__) == ("seatrial.supervise.main", "job")
    assert found.args == (shared.folder,)


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, shared: Parcel) -> None:
    folder = tmp_path / "runs" / shared.run_id
    with opened(shared) as archive:
        assert begin.make(archive, folder, "7-0")
        (folder / "metrics.jsonl").write_text("steps")
        assert not begin.make(archive, folder, "7-1")
    assert (folder / "metrics.jsonl").read_text() == "steps"


def test_a_start_that_was_killed_is_made_up_for(tmp_path: Path, shared: Parcel) -> None:
    folder = tmp_path / "runs" / shared.run_id
    half = folder.parent / f".{folder.name}.7-0"
    (half / "code").mkdir(parents=True)
    (half / "code" / "half").write_text("a")
    with opened(shared) as archive:
        assert begin.make(archive, folder, "7-0")
    assert not (folder / "code" / "half").exists()
    assert not half.exists()


def test_a_parcel_that_is_not_whole_makes_nothing(tmp_path: Path, shared: Parcel) -> None:
    folder = tmp_path / "runs" / shared.run_id
    data = bytearray(shared.archive)
    with opened(shared) as archive:
        at = archive.getinfo("run/spec.json").header_offset + 60
    data[at] ^= 0xFF
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive, pytest.raises((zipfile.BadZipFile, zlib.error)):
        begin.make(archive, folder, "7-0")
    assert not list(folder.parent.iterdir())


def test_a_folder_that_holds_something_else_is_not_taken(tmp_path: Path, shared: Parcel) -> None:
    folder = tmp_path / "runs" / shared.run_id
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("mine")
    with opened(shared) as archive, pytest.raises(OSError):
        begin.make(archive, folder, "7-0")
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    assert [p.name for p in folder.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("across", [False, True], ids=["one file system", "two"])
def test_the_log_is_the_runs(across: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, folder = tmp_path / "gate", tmp_path / "run"
    (task / "scripts").mkdir(parents=True)
    folder.mkdir()
    log = task / "sbatch_seatrial.gate_7.out"
    log.write_text("first\n")
    (task / "sbatch_seatrial.gate_77.out").write_text("another job's\n")

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    if across:
        monkeypatch.setattr(os, "link", refuse)
    for _ in range(2):
        begin.link_log(folder, "7", task / "scripts" / "gate.sh")
    with log.open("a") as stream:
        stream.write("second\n")
    assert (folder / "batch-7.log").read_text() == "first\nsecond\n"
    assert (folder / "batch-7.log").is_symlink() == across


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("   SubmitTime=2026-12-03T08:38:20 EligibleTime=2026-12-03T08:38:21", True),
        ("   SubmitTime=Unknown", False),
        ("slurm_load_jobs error: Invalid job id specified", False),
        ("", False),
    ],
)
def test_when_the_job_was_submitted(said: str, known: bool) -> None:
    assert (begin.submitted_at(said) is not None) == known


def test_it_begins_on_an_old_python_without_our_packages(tmp_path: Path) -> None:
    """The archive is run as on the batch host, up to the exec; no Slurm is here, so what it asks of that is refused."""
    python = old_python()
    if python is None:
        pytest.skip("no Python older than 3.12 on this machine")
    parcel = parcel_for(tmp_path)
    archive, task = tmp_path / "archive", tmp_path / "gate"
    archive.write_bytes(parcel.archive)
    (task / "scripts").mkdir(parents=True)
    log = task / "sbatch_seatrial.gate_7.out"
    code = "import os, runpy, sys; sys.argv = sys.argv[1:]; os.execve = lambda *words: print(*words[1]); "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    with log.open("wb") as stream:
        done = subprocess.run(
            [python, "-c", code, str(archive), str(task / "scripts" / "gate.sh")], stdout=stream, stderr=stream,
            env={"SLURM_JOB_ID": "7", "PATH": "/nonexistent"},
        )  # fmt: skip
    said, folder = log.read_text(), Path(parcel.folder)
    assert done.returncode == 0, said
    assert said.splitlines()[-1].endswith(f"-u -m seatrial.supervise {folder}"), said
    for setting in (f"JobName={parcel.run_id}", f"Comment={parcel.run_id}", "Requeue=0"):
        assert f"{setting} could not be set" in said, "what Slurm does not do is told"
    assert not archive.exists()
    (event,) = [e for e in records.read_lines(folder / "events.jsonl") if e["event"] == "submitted"]
    assert (event["executor"], event["job_id"], event["by"]) == ("slurm", "7", "nemo-run")
    assert (folder / "batch-7.log").read_text() == said
    assert not list(folder.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("variables", "words"),
    [({"SLURM_STEP_ID": "0"}, "setup_lines"), ({}, "cannot make the run folder")],
    ids=["a job step, as where the executor has lost its setup_lines", "no folder of runs"],
)
def test_what_cannot_begin_says_so(variables: dict[str, str], words: str, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("no folder")
    parcel = parcel_for(tmp_path)
    (tmp_path / "archive").write_bytes(parcel.archive)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "archive"), "gate.sh"], env={"SLURM_JOB_ID": "7", **variables},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
