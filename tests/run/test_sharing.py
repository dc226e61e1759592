"""Who may do what in a run folder, and that what is written later keeps to it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from seatrial.run import records, retention, sharing
from seatrial.run.layout import RunFolder

D, F = stat.S_IFDIR, stat.S_IFREG


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("before", "opened", "closed"),
    [
        (D | 0o700, 0o2750, 0o700),
        (D | 0o755, 0o2750, 0o700),
        (D | 0o2777, 0o2750, 0o700),
        (D | 0o500, 0o2550, 0o500),
        (F | 0o600, 0o640, 0o600),
        (F | 0o644, 0o640, 0o600),
        (F | 0o666, 0o640, 0o600),
        (F | 0o400, 0o440, 0o400),
        (F | 0o755, 0o750, 0o700),
        (F | 0o6777, 0o750, 0o700),
    ],
)
def test_modes(before: int, opened: int, closed: int) -> None:
    assert sharing.opened(before) == opened
    assert sharing.closed(before) == closed
    kind = stat.S_IFMT(before)
    assert sharing.opened(kind | opened) == opened and sharing.closed(kind | closed) == closed


@pytest.mark.parametrize(
    ("folder", "shared"),
    [(0o700, False), (0o755, False), (0o2700, False), (0o2750, True), (0o2755, True), (0o750, False)],
)
@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_what_is_written_later_is_readable_where_the_folder_is_shared(
    folder: int, shared: bool, umask: int, tmp_path: Path
) -> None:
    run = RunFolder.create(tmp_path / "run")
    for path in (run.path, run.path / "attempts"):
        path.chmod(folder)
    before = os.umask(umask)
    try:
        records.write_json(run.verdict, {})
        records.append_line(run.events, {})
        records.append_line(run.events, {})
        attempt = run.new_attempt()
        records.write_json(attempt.record, {})
        run.checkpoints.mkdir(mode=0o2750 if shared else 0o700)
        run.checkpoints.chmod(folder)
        (run.checkpoints / "iter_0000010").mkdir()
        aside = retention.set_aside(run.checkpoints / "iter_0000010", 1)
    finally:
        os.umask(before)
    assert mode(run.verdict) == mode(run.events) == mode(attempt.record) == (0o640 if shared else 0o600)
    assert mode(attempt.path) & 0o777 == mode(aside.parent) & 0o777 == (0o750 if shared else 0o700)
    assert sharing.is_shared(attempt.path) == sharing.is_shared(aside.parent) == shared


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    file = tmp_path / "events.jsonl"
    file.write_text("{}\n")
    file.chmod(0o600)
    records.append_line(file, {})
    assert mode(file) == 0o600


def test_nothing_is_shared_where_there_is_nothing(tmp_path: Path) -> None:
    assert not sharing.is_shared(tmp_path / "gone") and sharing.file_mode(tmp_path / "gone") == 0o600


def test_entries_are_deep_first_and_no_links(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "attempts" / "000").mkdir(parents=True)
    (folder / "attempts" / "000" / "record.json").touch()
    (folder / "attempts" / "submitit").mkdir()
    (folder / "submitit").mkdir()
    (folder / "submitit" / "1.pkl").touch()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "secret")
    os.mkfifo(folder / "pipe")
    names = [str(path.relative_to(folder)) for path, _ in sharing.entries(folder)]
    assert names == ["attempts/000/record.json", "attempts/000", "attempts/submitit", "attempts", "submitit", "."]
    kept = [path.name for path, _ in sharing.entries(folder) if sharing.is_kept_closed(path, folder)]
    assert kept == ["submitit"]
    assert list(sharing.entries(tmp_path / "gone")) == []


def test_a_link_that_took_the_place_is_not_followed(tmp_path: Path) -> None:
    outside, file = tmp_path / "outside", tmp_path / "file"
    outside.touch(mode=0o600)
    file.touch(mode=0o600)
    status = file.stat()
    file.unlink()
    file.symlink_to(outside)
    with pytest.raises(OSError):
        sharing.set_access(file, status, os.getegid(), 0o640)
    file.unlink()
    file.hardlink_to(outside)  # another file
    assert not sharing.set_access(file, status, os.getegid(), 0o640)
    assert mode(outside) == 0o600


def test_access_is_set_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(mode=0o600)
    assert sharing.set_access(file, file.stat(), os.getegid(), 0o640) and mode(file) == 0o640
    assert not sharing.set_access(file, file.stat(), os.getegid(), 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to any group")
@pytest.mark.parametrize(
    ("group", "bits", "found"),
    [(100, 0o750, None), (100, 0o700, (None, "g+x")), (100, 0o705, (None, "g+x")), (50, 0o755, None),
     (50, 0o751, None), (50, 0o750, (50, "o+x")), (50, 0o700, (None, "o+x")), (50, 0o754, (50, "o+x"))],
)  # fmt: skip
def test_folders_above_that_the_group_cannot_enter(
    group: int, bits: int, found: tuple[int | None, str] | None, tmp_path: Path
) -> None:
    above = tmp_path / "above"
    (above / "run").mkdir(parents=True)
    os.chown(above, -1, group)
    above.chmod(bits)
    told = [one[1:] for one in sharing.closed_to(100, above / "run") if one[0] == above]
    assert told == ([] if found is None else [found])
