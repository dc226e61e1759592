"""The code that a job runs: complete, the same everywhere, and out of reach of later edits."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm import snapshot
from seatrial.slurm.snapshot import Snapshot, python_path, train_hash, verify_code, write_code
from tests.test_rooms import PACKAGE, imports, old_python

PYTHONS = [sys.executable, *filter(None, [old_python()])]


@pytest.fixture
def old() -> str:
    python = old_python()
    if python is None:
        pytest.skip("no Python older than 3.12 on this machine")
    return python


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Snapshot]:
    code = tmp_path_factory.mktemp("a run's folder") / "code"
    return code, write_code(code)


def run(python: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python that sees nothing of ours but what ``environment`` gives it."""
    base = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, "-s", *words], capture_output=True, text=True, env=base | environment, cwd="/")


# --- what it holds


def test_it_holds_the_rooms_that_a_job_needs_and_no_other() -> None:
    rooms, found = {"supervise", "train"}, set()
    while rooms - found:
        room = (rooms - found).pop()
        found.add(room)
        names = {name for path in (PACKAGE / room).rglob("*.py") for name in imports(path)}
        rooms |= {name.split(".")[1] for name in names if name.startswith("seatrial.")} - {"errors"}
    assert found == set(snapshot.ROOMS)


def test_it_holds_every_file_of_those_rooms(written: tuple[Path, Snapshot]) -> None:
    code, _ = written
    ours = {p.relative_to(PACKAGE) for room in snapshot.ROOMS for p in (PACKAGE / room).rglob("*") if p.is_file()}
    ours = {path for path in ours if "__pycache__" not in path.parts} | {Path("__init__.py"), Path("errors.py")}
    assert {p.relative_to(code / "seatrial") for p in (code / "seatrial").rglob("*") if p.is_file()} == ours


def test_it_is_pure_read_only_and_made_the_same_twice(written: tuple[Path, Snapshot], tmp_path: Path) -> None:
    code, first = written
    second = tmp_path / "code"
    assert write_code(second) == first == verify_code(code) == verify_code(second)
    names = sorted(path.relative_to(code) for path in code.rglob("*"))
    assert names == sorted(path.relative_to(second) for path in second.rglob("*"))
    for path in (code / name for name in names if (code / name).is_file()):
        assert path.suffix in {".py", ".json"} or path.name in {"METADATA", "entry_points.txt"}, path
        assert path.stat().st_mode & 0o777 == 0o444, path
        assert path.read_bytes() == (second / path.relative_to(code)).read_bytes()
    assert first.files == len([p for p in code.rglob("*") if p.is_file()]) - 1
    assert first.bytes < 2_000_000


def test_the_record_says_versions_and_hashes(written: tuple[Path, Snapshot]) -> None:
    code, made = written
    document = json.loads((code / snapshot.SNAPSHOT_FILE).read_text())
    assert document["tree_hash"] == made.tree_hash and document["train_hash"] == made.train_hash == train_hash()
    assert set(document["versions"]) == {"seatrial", "submitit", "cloudpickle", "typing_extensions"}
    assert all(version["version"] for version in document["versions"].values())
    # The hash is that of what sha256sum prints, so that anybody can check it.
    names = sorted(document["sha256"])
    done = subprocess.run(["sha256sum", *names], cwd=code, capture_output=True, check=True)
    assert hashlib.sha256(done.stdout).hexdigest() == made.tree_hash


# --- what is wrong with it


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed": (lambda c: (c / "seatrial/errors.py").write_text("1"), "changed: seatrial/errors.py"),
    "missing": (lambda c: (c / "seatrial/run/layout.py").unlink(), "missing: seatrial/run/layout.py"),
    "added": (lambda c: (c / "seatrial/train/torch.py").write_text(""), "added: seatrial/train/torch.py"),
    "a record of something else": (
        lambda c: (c / "SNAPSHOT.json").write_text((c / "SNAPSHOT.json").read_text().replace('hash": "', 'hash": "0')),
        "changed: SNAPSHOT.json",
    ),
    "not finished": (lambda c: (c / "SNAPSHOT.json").unlink(), "no whole code snapshot"),
    "torn": (lambda c: (c / "SNAPSHOT.json").write_text('{"sha'), "no whole code snapshot"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str, written: tuple[Path, Snapshot], tmp_path: Path) -> None:
    damage, message = DAMAGE[name]
    code = tmp_path / "code"
    shutil.copytree(written[0], code)
    for path in code.rglob("*"):
        path.chmod(0o755)
    verify_code(code)
    damage(code)
    with pytest.raises(SeatrialError, match=message):
        verify_code(code)


def test_what_python_compiles_into_it_is_no_damage(written: tuple[Path, Snapshot], tmp_path: Path) -> None:
    code = tmp_path / "code"
    shutil.copytree(written[0], code)
    assert run(sys.executable, "-m", "compileall", "-q", str(code / "seatrial")).returncode == 0
    assert list(code.rglob("*.pyc"))
    assert verify_code(code) == written[1]


@pytest.mark.parametrize("native", ["fast.cpython-312-x86_64-linux-gnu.so", "deep/inside.so", "fast.pyd"])
def test_compiled_modules_are_refused(native: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "half_native"
    (package / native).parent.mkdir(parents=True)
    (package / native).write_bytes(b"\x7fELF")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(snapshot, "_LIBRARIES", ("submitit", "half_native"))
    with pytest.raises(SeatrialError, match=f"{native}: half_native has a compiled module"):
        write_code(tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_LIBRARIES", ("no_such_library",))
    with pytest.raises(SeatrialError, match="no_such_library is not installed"):
        write_code(tmp_path / "code")


def test_it_overwrites_nothing(written: tuple[Path, Snapshot]) -> None:
    with pytest.raises(SeatrialError, match="File exists"):
        write_code(written[0])


def test_a_path_that_pythonpath_would_cut_is_refused() -> None:
    with pytest.raises(SeatrialError, match="colon"):
        python_path(PurePosixPath("/runs/a:b/code"))


# --- what a compute host makes of it


def write_pickle(package_root: Path, job_folder: Path, run_folder: Path) -> None:
    """Write job 7's pickle as the login node does, with the seatrial under ``package_root``."""
    job_folder.mkdir()
    program = (
        "import sys; from submitit.core.utils import DelayedSubmission as D\n"
        "from seatrial.supervise.main import supervise\n"
        "delayed = D(supervise, sys.argv[1]); delayed.set_timeout(60, 3); delayed.dump(sys.argv[2])"
    )
    target = str(job_folder / "7_submitted.pkl")
    done = run(sys.executable, "-c", program, str(run_folder), target, PYTHONPATH=str(package_root))
    assert done.returncode == 0, done.stderr


def submit(python: str, code: Path, job_folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the job as its batch script does."""
    slurm = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "7"}
    return run(python, "-u", "-m", "submitit.core._submit", str(job_folder), PYTHONPATH=python_path(code), **slurm)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_supervisor_starts_on_the_hosts_python(python: str, written: tuple[Path, Snapshot]) -> None:
    code, _ = written
    done = run(python, "-m", "seatrial.supervise", "--help", PYTHONPATH=str(code))
    assert done.returncode == 0, done.stderr
    assert "RUN" in done.stdout.upper()


@pytest.mark.parametrize("python", PYTHONS)
def test_the_jobs_pickle_runs_on_the_hosts_python(python: str, written: tuple[Path, Snapshot], tmp_path: Path) -> None:
    write_pickle(PACKAGE.parent, tmp_path / "job", tmp_path / "no spec here")
    done = submit(python, written[0], tmp_path / "job")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not a run folder" in done.stdout + done.stderr, "the supervisor has looked"
    assert verify_code(written[0]) == written[1]


def test_everything_that_an_old_python_loads_lies_in_the_snapshot(
    old: str, written: tuple[Path, Snapshot], tmp_path: Path
) -> None:
    code, _ = written
    write_pickle(PACKAGE.parent, tmp_path / "job", tmp_path)
    program = (
        "import pickle, sys; delayed = pickle.load(open(sys.argv[1], 'rb'))\n"
        "from submitit.core.plugins import get_job_environments; get_job_environments()\n"
        "names = ('seatrial', 'submitit', 'cloudpickle', 'typing_extensions')\n"
        "print(delayed.function.__module__, *delayed.args)\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] in names), sep='\\n')"
    )
    done = run(old, "-c", program, str(tmp_path / "job/7_submitted.pkl"), PYTHONPATH=python_path(code))
    assert done.returncode == 0, done.stderr
    job, *files = done.stdout.splitlines()
    assert job == f"seatrial.supervise.main {tmp_path}"
    assert len(files) > 20 and all(Path(file).is_relative_to(code) for file in files)


def test_a_rank_finds_no_library_that_could_hide_the_containers(written: tuple[Path, Snapshot]) -> None:
    code, _ = written
    program = "import importlib.util as u; print([u.find_spec(n) for n in ('submitit', 'typing_extensions')])"
    done = run(PYTHONS[-1], "-I", "-c", f"import sys; sys.path.insert(0, {str(code)!r}); {program}")
    assert str(code) not in done.stdout and done.returncode == 0
    done = run(sys.executable, str(code / "seatrial/train/rank.py"))
    assert done.returncode == 2 and "usage: rank.py" in done.stderr


# --- later edits


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A seatrial as a wheel installs it: without git, and ours to edit."""
    root = tmp_path / "site-packages"
    shutil.copytree(PACKAGE, root / "seatrial", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def write_installed(root: Path, code: Path) -> Snapshot:
    program = (
        "import json, sys; from pathlib import Path; from seatrial.slurm.snapshot import write_code\n"
        "print(json.dumps(write_code(Path(sys.argv[1])).record()))"
    )
    done = run(sys.executable, "-c", program, str(code), PYTHONPATH=str(root))
    assert done.returncode == 0, done.stderr
    return Snapshot(**json.loads(done.stdout))


def test_a_waiting_job_runs_the_code_of_its_submission(installed: Path, tmp_path: Path) -> None:
    main = installed / "seatrial/supervise/main.py"
    text = main.read_text()
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    at_submission = write_installed(installed, run_folder / "code")
    write_pickle(installed, tmp_path / "job", run_folder)

    main.write_text(text + "\nprint('edited later')\n")
    (installed / "seatrial/errors.py").unlink()

    done = submit(PYTHONS[-1], run_folder / "code", tmp_path / "job")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not a run folder" in done.stdout + done.stderr and "edited later" not in done.stdout
    assert verify_code(run_folder / "code") == at_submission


def test_an_installed_package_makes_the_same_snapshot_as_its_checkout(
    installed: Path, written: tuple[Path, Snapshot], tmp_path: Path
) -> None:
    assert write_installed(installed, tmp_path / "code") == written[1]


@pytest.mark.parametrize(
    ("file", "same_train", "same_tree"),
    [
        ("seatrial/train/engine.py", False, False),
        ("seatrial/supervise/main.py", True, False),
        ("seatrial/cli/main.py", True, True),
    ],
)
def test_an_edit_changes_the_hashes_it_concerns(
    file: str, same_train: bool, same_tree: bool, installed: Path, tmp_path: Path
) -> None:
    before = write_installed(installed, tmp_path / "before")
    with (installed / file).open("a") as stream:
        stream.write("# edited\n")
    after = write_installed(installed, tmp_path / "after")
    assert (after.train_hash == before.train_hash, after.tree_hash == before.tree_hash) == (same_train, same_tree)
