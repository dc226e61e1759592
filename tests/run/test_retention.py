"""Which checkpoints are deleted, and that nothing half deleted passes for one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.run import checkpoint, retention
from seatrial.run.retention import SET_ASIDE, Pruned, delete_all, discard, prune, set_aside, superseded
from tests.run.test_checkpoint import make, torchs_names  # noqa: F401 - the look-alikes need their names


@pytest.mark.parametrize(
    ("whole", "last", "every", "go"),
    [
        ([], 3, None, []),
        ([200], 3, None, []),
        ([200, 400, 600], 3, None, []),
        ([200, 400, 600, 800], 3, None, [200]),
        ([800, 200, 600, 400, 400], 2, None, [200, 400]),
        ([200, 400, 600, 800, 1000], 1, 400, [200, 600]),
        ([200, 400, 600], 0, None, [200, 400]),  # the newest stays
        ([150, 350, 500], 1, 400, [150, 350]),
        ([0, 100, 200], 1, 400, [100]),
    ],
)
def test_superseded(whole: list[int], last: int, every: int | None, go: list[int]) -> None:
    assert superseded(whole, last, every) == go


@given(whole=st.lists(st.integers(0, 10_000)), last=st.integers(-1, 5), every=st.none() | st.integers(0, 3000))
def test_what_may_go(whole: list[int], last: int, every: int | None) -> None:
    go = set(superseded(whole, last, every))
    stay = set(whole) - go
    assert go <= set(whole)
    assert set(sorted(set(whole))[-max(1, last) :]) <= stay if whole else not go
    assert all(not every or step % every for step in go)
    assert superseded(sorted(stay), last, every) == []


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_prune(tmp_path: Path) -> None:
    for step in (100, 200, 300, 400, 500):
        make(tmp_path, step)
    os.truncate(tmp_path / "iter_0000500" / "__1_0.distcp", 10)  # may be being written
    (tmp_path / "iter_0000100" / ".metadata").unlink()
    (tmp_path / checkpoint.TRACKER).write_text("400\n")
    expected = Pruned((300,), (200, 400))
    assert prune(tmp_path, 1, 200, dry_run=True) == expected
    assert len(names(tmp_path)) == 6
    assert prune(tmp_path, 1, 200) == expected
    assert names(tmp_path) == [
        "iter_0000100", "iter_0000200", "iter_0000400", "iter_0000500", checkpoint.TRACKER,
    ]  # fmt: skip
    assert prune(tmp_path, 1, 200) == Pruned((), (200, 400))
    assert prune(tmp_path / "none", 1) == Pruned((), ())


def test_what_was_set_aside_goes_once_the_run_is_past_it(tmp_path: Path) -> None:
    for step in (200, 400):
        set_aside(make(tmp_path, step), 1)
    (tmp_path / SET_ASIDE / "notes").mkdir()
    make(tmp_path, 300)
    prune(tmp_path, 3)
    assert names(tmp_path / SET_ASIDE) == ["iter_0000400-before-001", "notes"]
    make(tmp_path, 400)
    prune(tmp_path, 3)
    assert names(tmp_path / SET_ASIDE) == ["notes"]
    assert checkpoint.check(tmp_path / "iter_0000400").whole


class _Crash(BaseException):
    """The process is gone at this very call."""


def _crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the ``number``-th change of the file system be the one that does not happen."""
    left = [number]

    def guarded(name: str) -> None:
        real = getattr(os, name)

        def call(*words: object, **more: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise _Crash
            return real(*words, **more)

        monkeypatch.setattr(os, name, call)

    for name in ("unlink", "rmdir", "rename"):
        guarded(name)


def _changes(folder: Path, path: Path) -> int:
    """How many changes deleting ``path`` takes."""
    return sum(1 for _ in path.rglob("*")) + 2  # each entry, the folder, and its renaming


@pytest.mark.parametrize("number", range(8))
def test_a_crash_while_deleting_leaves_nothing_that_looks_like_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for step in (100, 200):
        make(tmp_path, step)
    doomed = tmp_path / "iter_0000100"
    crashes = number < _changes(tmp_path, doomed)
    with monkeypatch.context() as patch:
        _crash_at(patch, number)
        if crashes:
            with pytest.raises(_Crash):
                prune(tmp_path, 1)
        else:
            prune(tmp_path, 1)
    for path in checkpoint.list_checkpoints(tmp_path):
        assert checkpoint.check(path).whole, f"{path.name} is half gone"
    assert checkpoint.check(tmp_path / "iter_0000200").whole
    prune(tmp_path, 1)
    assert names(tmp_path) == ["iter_0000200"]


def test_the_crash_test_sees_every_point(tmp_path: Path) -> None:
    assert _changes(tmp_path, make(tmp_path, 100)) in range(5, 8)


def test_a_name_that_was_left_over_is_no_hindrance(tmp_path: Path) -> None:
    path = make(tmp_path, 100)
    (tmp_path / ".deleting-iter_0000100" / "inside").mkdir(parents=True)
    assert discard(path) is None
    assert names(tmp_path) == []


def test_what_cannot_be_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (100, 200):
        make(tmp_path, step)

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(retention.Path, "rename", refuse)
        assert prune(tmp_path, 1).failed == (f"{tmp_path / 'iter_0000100'}: Permission denied",)
    assert len(checkpoint.list_checkpoints(tmp_path)) == 2


def test_set_aside_never_overwrites(tmp_path: Path) -> None:
    first = set_aside(make(tmp_path, 100), 7)
    second = set_aside(make(tmp_path, 100), 7)
    assert (first.name, second.name) == ("iter_0000100-before-007", "iter_0000100-before-007-1")
    assert checkpoint.check(tmp_path / "iter_0000100").reason == "there is no such folder"


def test_delete_all(tmp_path: Path) -> None:
    for step in (100, 200):
        make(tmp_path, step)
    set_aside(tmp_path / "iter_0000200", 1)
    (tmp_path / "iter_0000300").mkdir()
    (tmp_path / checkpoint.TRACKER).write_text("200")
    shutil.copytree(tmp_path / "iter_0000100", tmp_path / ".deleting-iter_0000050")
    assert delete_all(tmp_path) == []
    assert names(tmp_path) == []
