"""`seatrial report` as a user types it: where the page goes, who may read it, and what is refused."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

import pytest

from seatrial.run.groups import Group, GroupRun, write_group
from seatrial.run.layout import RunFolder
from tests.cli.verbs import verb
from tests.judge.run_builder import three_attempts


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return three_attempts(tmp_path / "runs")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_page_of_a_run_lies_in_its_folder(folder: RunFolder) -> None:
    done = verb("report", "run-1", "--runs", str(folder.path.parent))
    assert (done.returncode, done.stdout) == (0, f"{folder.path / 'report.html'}\n"), done.stderr
    page = folder.path / "report.html"
    assert page.read_text().startswith("<!doctype html>")
    assert mode(page) == 0o600
    assert not [path for path in folder.path.iterdir() if path.name.startswith(".")]


def test_output_group_and_a_page_made_again(folder: RunFolder, tmp_path: Path) -> None:
    own = grp.getgrgid(os.getegid()).gr_name
    first = verb("report", str(folder.path), "--group", own)
    assert first.returncode == 0, first.stderr
    assert f"group {own} may now read {folder.path}" in first.stdout
    assert verb("report", str(folder.path)).returncode == 0
    assert mode(folder.path / "report.html") == 0o640  # in a folder that is shared
    page = tmp_path / "elsewhere.html"
    assert verb("report", str(folder.path), "-o", str(page)).stdout == f"{page}\n"
    assert mode(page) == 0o600


def test_a_run_group_has_a_page_beside_its_runs(folder: RunFolder) -> None:
    runs = folder.path.parent
    second = three_attempts(runs, "run-2")
    members = tuple(GroupRun(one.path.name, one.path, "nano") for one in (folder, second))
    group = Group("pair-20261201-100000-abcdef", "pair", "2026-12-01T10:00:00+00:00", members, same={"seed": 1})
    write_group(runs, group)
    done = verb("report", "pair", "--runs", str(runs))
    page = runs / "pair-20261201-100000-abcdef.html"
    assert (done.returncode, done.stdout) == (0, f"{page}\n"), done.stderr
    text = page.read_text()
    assert "run-1" in text
    assert "run-2" in text
    assert mode(page) == 0o600


def test_markdown_is_printed_and_nothing_is_written(folder: RunFolder) -> None:
    before = sorted(folder.path.iterdir())
    done = verb("report", str(folder.path), "--markdown")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## Validation\n")
    assert sorted(folder.path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--markdown", "--open"], "--markdown prints"),
        (["--output", "/nowhere/at/all.html"], "cannot write the page: No such file or directory"),
        (["--group", "no-such-group-here"], "no such group"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(folder: RunFolder, words: list[str], said: str) -> None:
    done = verb("report", str(folder.path), *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_run(tmp_path: Path) -> None:
    done = verb("report", "nothing", "--runs", str(tmp_path))
    assert done.returncode == 2
    assert "no run 'nothing'" in done.stderr
