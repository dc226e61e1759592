"""What is said about the source, held against real repositories."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import seatrial
from seatrial.errors import SeatrialError
from seatrial.spec.provenance import DIFF_FILE, Source, provenance, read_source, require_clean

MODULE = "launchers/seatrial/train/rank.py"


@pytest.fixture(autouse=True)
def plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", "-C", str(root), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(path: Path, content: bytes = b"1\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "a check'out"
    for name in ("pyproject.toml", MODULE, "recipes/a.yaml", "docs/a.md"):
        write(root / name, f"{name}\n".encode())
    write(root / ".gitignore", b"__pycache__/\nscratch*\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


Change = Callable[[Path], object]
# What somebody did -> the changed and the untracked files that must be named.
CHANGES: dict[str, tuple[Change, list[str], list[str]]] = {
    "nothing": (lambda r: None, [], []),
    "touched only": (lambda r: os.utime(r / MODULE, (1, 1)), [], []),
    "edited": (lambda r: write(r / MODULE), [MODULE], []),
    "staged": (lambda r: (write(r / MODULE), git(r, "add", ".")), [MODULE], []),
    "edited elsewhere": (lambda r: write(r / "docs/a.md"), ["docs/a.md"], []),
    "binary": (lambda r: write(r / "docs/a.md", bytes(range(256))), ["docs/a.md"], []),
    "deleted": (lambda r: (r / MODULE).unlink(), [MODULE], []),
    "renamed": (
        lambda r: git(r, "mv", "recipes/a.yaml", "recipes/b.yaml"),
        ["recipes/a.yaml"],
        ["recipes/b.yaml"],
    ),
    "edit hidden from git": (
        lambda r: (git(r, "update-index", "--skip-worktree", MODULE), write(r / MODULE)),
        [MODULE],
        [],
    ),
    "new module": (lambda r: write(r / "launchers/seatrial/new.py"), [], ["launchers/seatrial/new.py"]),
    "new module, ignored": (lambda r: write(r / "recipes/scratch.yaml"), [], ["recipes/scratch.yaml"]),
    "new module, staged": (
        lambda r: (write(r / "recipes/new.yaml"), git(r, "add", ".")),
        [],
        ["recipes/new.yaml"],
    ),
    "odd name": (lambda r: write(r / "recipes/:(top) ü\n'.yaml"), [], ["recipes/:(top) ü\n'.yaml"]),
    "binary and empty": (
        lambda r: (write(r / "recipes/b.json", b"\0\xff"), write(r / "recipes/c.json", b"")),
        [],
        ["recipes/b.json", "recipes/c.json"],
    ),
    "nothing a run uses": (
        lambda r: (write(r / "docs/b.md"), write(r / "notes.py"), write(r / "launchers/seatrial/__pycache__/a.py")),
        [],
        [],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_refused_or_recorded(name: str, checkout: Path, tmp_path: Path) -> None:
    change, changed, untracked = CHANGES[name]
    change(checkout)
    commit, index = git(checkout, "rev-parse", "HEAD"), (checkout / ".git/index").read_bytes()
    if changed or untracked:
        with pytest.raises(SeatrialError) as refused:
            require_clean(checkout)
        assert all(file in str(refused.value) for file in changed + untracked)
        assert "--allow-dirty" in str(refused.value)
    else:
        assert require_clean(checkout).record() == {"commit": commit, "dirty": False}

    source = require_clean(checkout, allow_dirty=True)
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    source.write_diff(run_folder)
    assert (checkout / ".git/index").read_bytes() == index, "the user's index is the user's"
    assert (source.commit, list(source.changed), list(source.untracked)) == (commit, changed, untracked)
    if not source.dirty:
        assert not list(run_folder.iterdir())
        return
    diff = run_folder / DIFF_FILE
    assert diff.stat().st_mode & 0o777 == 0o600
    assert source.record()["diff_sha256"] == hashlib.sha256(diff.read_bytes()).hexdigest()

    # The commit and the diff together give back every file.
    again = tmp_path / "again"
    git(tmp_path, "clone", "-q", str(checkout), str(again))
    git(again, "apply", "--binary", str(diff))
    for file in changed + untracked:
        assert (again / file).exists() == (checkout / file).exists()
        assert not (again / file).exists() or (again / file).read_bytes() == (checkout / file).read_bytes()


def test_the_users_settings_do_not_shape_the_diff(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(checkout / MODULE)
    plain = read_source(checkout).diff
    settings = tmp_path / "gitconfig"
    settings.write_text(
        "[diff]\nnoprefix = true\nmnemonicPrefix = true\nexternal = false\ncontext = 0\n"
        "[color]\nui = always\n[core]\nquotePath = false\nfsmonitor = true\npager = false\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert read_source(checkout).diff == plain


def test_a_git_hook_around_us_does_not_lead_to_its_repository(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert require_clean(checkout).dirty is False


def test_many_files_are_not_all_listed(checkout: Path) -> None:
    for number in range(50):
        write(checkout / f"recipes/{number}.yaml")
    with pytest.raises(SeatrialError, match="and 30 more"):
        require_clean(checkout)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (lambda first, second: second, None),
        (lambda first, second: second[:7], None),
        (lambda first, second: second[:6], "7 hexadecimal digits"),
        (lambda first, second: first, "another commit"),
        (lambda first, second: first[:12], "another commit"),
        (lambda first, second: "f" * 40, "another commit"),
        (lambda first, second: "HEAD", "7 hexadecimal digits"),
        (lambda first, second: "", "7 hexadecimal digits"),
        (lambda first, second: "--all=x", "7 hexadecimal digits"),
    ],
)
def test_only_the_required_commit_is_taken(
    wanted: Callable[[str, str], str], problem: str | None, checkout: Path
) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    second = git(checkout, "rev-parse", "HEAD")
    if problem is None:
        assert require_clean(checkout, require_head=wanted(first, second)).commit == second
    else:
        with pytest.raises(SeatrialError, match=problem):
            require_clean(checkout, require_head=wanted(first, second))


def test_a_branch_that_looks_like_the_commit_does_not_pass_for_it(checkout: Path) -> None:
    git(checkout, "branch", "abcdef1")
    with pytest.raises(SeatrialError, match="another commit"):
        require_clean(checkout, require_head="abcdef1")


def test_an_installed_package_has_a_version_and_no_commit(checkout: Path) -> None:
    installed = checkout / "site"  # somebody's repository lies around it
    installed.mkdir()
    source = require_clean(installed)
    assert source == Source(None)
    assert source.record() == {"commit": None, "dirty": None}
    assert provenance(source)["seatrial"] == seatrial.__version__
    with pytest.raises(SeatrialError, match="without a git checkout"):
        require_clean(installed, require_head="abcdef1")


def test_a_checkout_whose_git_fails_is_not_taken_for_an_installed_package(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / ".git/HEAD").write_text("ref: refs/heads/none\n")
    with pytest.raises(SeatrialError, match="cannot tell what differs"):
        require_clean(checkout, allow_dirty=True)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SeatrialError, match="cannot start git"):
        require_clean(checkout, allow_dirty=True)


def test_the_record_of_this_package_names_its_versions() -> None:
    record = provenance()
    assert record["seatrial"] == seatrial.__version__
    assert record["submitit"] and record["python"] and record["host"] and record["machine"]
