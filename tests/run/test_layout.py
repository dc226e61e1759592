"""Run folders: ids, modes, attempts, and how a run is found again."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.run.layout import RunFolder, new_run_id


@pytest.mark.parametrize("recipe", ["nano", "a b", "x/../y", "ünï", "'", "\n", "", "-" * 300, "a" * 300])
def test_run_ids_are_safe_names(recipe: str, tmp_path: Path) -> None:
    run_id = new_run_id(recipe, "gate")
    assert run_id.isascii()
    assert not set(run_id) & set("/ \n'\"")
    assert len(run_id) < 128
    assert RunFolder.create(tmp_path / run_id).path.is_dir()


def test_a_folder_is_private_and_made_once(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs" / "one")
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    with pytest.raises(SeatrialError, match="cannot make"):
        RunFolder.create(folder.path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SeatrialError, match="cannot make"):
        RunFolder.create(tmp_path / "file" / "one")


def test_attempts_are_numbered(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "one")
    assert folder.attempts() == []
    assert [folder.new_attempt().number for _ in range(3)] == [0, 1, 2]
    (folder.path / "attempts" / "1000").mkdir()
    assert [a.number for a in folder.attempts()] == [0, 1, 2, 1000]
    assert folder.new_attempt().path.name == "1001"
    assert folder.attempt(0).rank_log(7).name == "rank-00007.log"


def test_runs_are_found_by_folder_or_unique_prefix(tmp_path: Path) -> None:
    for name in ("nano-gate-1", "nano-gate-2", "nano-gate-22", "qwen[1]-gate"):
        RunFolder.create(tmp_path / name).spec.write_text("{}")
    assert RunFolder.open(str(tmp_path / "nano-gate-1")).path.name == "nano-gate-1"
    assert RunFolder.open("qwen[1]", tmp_path).path.name == "qwen[1]-gate"
    assert RunFolder.open("nano-gate-2", tmp_path).path.name == "nano-gate-2"
    with pytest.raises(SeatrialError, match="names 3 runs") as caught:
        RunFolder.open("nano", tmp_path)
    assert "nano-gate-1, nano-gate-2" in str(caught.value)
    with pytest.raises(SeatrialError, match="no run"):
        RunFolder.open("none", tmp_path)
