"""Which checkpoint an attempt starts from, and why none of the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.checkpoint import TRACKER, CheckpointState
from seatrial.run.layout import RunFolder
from seatrial.supervise.history import read_history
from seatrial.supervise.resume import NothingWhole, Start, choose, choose_start
from tests.run.test_checkpoint import make as make_checkpoint
from tests.run.test_checkpoint import torchs_names  # noqa: F401 - the look-alikes need their names

TORN = "__1_0.distcp has 1999 bytes of at least 2000"
NO_METADATA = ".metadata is missing"


def whole(*steps: int) -> list[CheckpointState]:
    return [CheckpointState(step, True, "every listed file is there and long enough") for step in steps]


def bad(step: int, reason: str = TORN) -> CheckpointState:
    return CheckpointState(step, False, reason)


# (states, tracker, saved, --from-step, checkpoint or None, why, passed over)
CHOICES: list[tuple[Any, ...]] = [
    ([*whole(200), bad(400), bad(600, NO_METADATA)], 400, {200, 400}, None, 200, "the newest whole one",
     [f"iter_0000600: {NO_METADATA}", f"iter_0000400: {TORN}", "the tracker file names 400"]),
    (whole(200, 400), 400, {200, 400}, None, 400, "the newest whole one", []),
    (whole(400, 200), 400, set(), None, 400, "the newest whole one", []),
    ([bad(100), *whole(200)], 200, {200}, None, 200, "the newest whole one", []),
    # The tracker is written last, and not in one piece.
    (whole(200, 400), 200, {200}, None, 400, "the newest whole one", ["the tracker file names 200"]),
    (whole(200, 400), None, {200}, None, 400, "the newest whole one", []),
    (whole(200), 800, {200}, None, 200, "the newest whole one", ["the tracker file names 800, which is not there"]),
    # Nothing to go on from.
    ([], None, set(), None, None, "nothing was saved before", []),
    ([], 400, set(), None, None, "nothing was saved before", []),
    ([bad(200)], None, set(), None, None, "no save was ever finished", [f"iter_0000200: {TORN}"]),
    ([bad(200)], 200, set(), None, None, "no save was ever finished",
     [f"iter_0000200: {TORN}", "the tracker file names 200"]),
    # A person's choice.
    (whole(200, 400), 400, {200, 400}, 200, 200, "a person asked for it",
     ["iter_0000400: a person asked for an earlier one", "the tracker file names 400"]),
    ([*whole(200, 400), bad(600)], 400, {200, 400}, 400, 400, "a person asked for it", [f"iter_0000600: {TORN}"]),
    (whole(200), 200, {200}, 0, None, "a person asked to begin again",
     ["iter_0000200: a person asked for an earlier one", "the tracker file names 200"]),
    ([bad(200)], None, {200}, 0, None, "a person asked to begin again", [f"iter_0000200: {TORN}"]),
    ([], None, {200}, 0, None, "a person asked to begin again", []),
    ([CheckpointState(None, False, "no number"), *whole(200)], 200, {200}, None, 200, "the newest whole one", []),
]  # fmt: skip


@pytest.mark.parametrize(("states", "tracked", "saved", "from_step", "step", "why", "passed_over"), CHOICES)
def test_choices(
    states: list[CheckpointState], tracked: int | None, saved: set[int], from_step: int | None, step: int | None,
    why: str, passed_over: list[str],
) -> None:  # fmt: skip
    assert choose(states, tracked, saved, from_step) == Start(step, why, tuple(passed_over))


@pytest.mark.parametrize(
    ("states", "saved", "words"),
    [
        ([bad(200), bad(400, NO_METADATA)], {200, 400}, f"up to 400.*iter_0000400: {NO_METADATA}; iter_0000200: __1_0"),
        ([], {200}, "up to 200.*there is none"),
    ],
)
def test_nothing_whole_is_refused(states: list[CheckpointState], saved: set[int], words: str) -> None:
    with pytest.raises(NothingWhole, match=f"(?s){words}.*--from-step 0"):
        choose(states, 400, saved)


@pytest.mark.parametrize(("from_step", "words"), [(400, TORN), (300, "there is none"), (401, "there is none")])
def test_a_person_may_not_ask_for_what_cannot_be_loaded(from_step: int, words: str) -> None:
    with pytest.raises(SeatrialError, match=f"(?s)checkpoint {from_step} cannot be loaded: {words}.*one of 200"):
        choose([*whole(200), bad(400)], 400, {200, 400}, from_step)


states_of_any_kind = st.lists(
    st.builds(CheckpointState, st.integers(1, 6), st.booleans(), st.just("torn")), unique_by=lambda state: state.step
)


@given(
    states=states_of_any_kind, tracked=st.none() | st.integers(1, 8), saved=st.sets(st.integers(1, 6)),
    from_step=st.none() | st.integers(0, 7),
)  # fmt: skip
def test_every_choice_is_whole_or_told(
    states: list[CheckpointState], tracked: int | None, saved: set[int], from_step: int | None
) -> None:
    usable = {state.step for state in states if state.whole and state.step is not None}
    try:
        start = choose(states, tracked, saved, from_step)
    except NothingWhole:
        assert saved
        assert not usable
        assert from_step is None
        return
    except SeatrialError:
        assert from_step
        assert from_step not in usable
        return
    told = " ".join(start.passed_over)
    if start.step is None:
        assert from_step == 0 or (not usable and not saved)
    else:
        assert start.step in usable
        assert start.step == (max(usable) if from_step is None else from_step)
    later = {state.step or 0 for state in states if (state.step or 0) > (start.step or 0)}
    assert all(f"iter_{step:07d}: " in told for step in later)
    if start.step is not None and tracked not in (None, start.step):
        assert f"names {tracked}" in told


# On disk.


def run(root: Path, *steps: int, saved: list[int] | None = None) -> RunFolder:
    """A run whose one attempt left checkpoints."""
    folder = RunFolder.create(root / "run")
    records.append_event(folder.events, "attempt_started", attempt=0)
    records.write_json(
        folder.new_attempt().record, {"attempt": 0, "saved_steps": list(steps) if saved is None else saved}
    )
    for step in steps:
        make_checkpoint(folder.checkpoints, step)
    return folder


def start(folder: RunFolder, target: int = 1000, evaluations: tuple[str, ...] = ()) -> Start:
    return choose_start(folder, read_history(folder), target, evaluations)


def lies(folder: RunFolder) -> list[str]:
    """What lies among the checkpoints."""
    paths = folder.checkpoints.rglob("iter_*")
    return sorted(str(path.relative_to(folder.checkpoints)) for path in paths if path.is_dir())


def test_the_first_attempt_begins_at_step_1(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    begin = start(folder)
    assert begin == Start(None, "the first attempt")
    assert begin.first_step == 1


def test_what_is_passed_over_is_out_of_the_way(tmp_path: Path) -> None:
    folder = run(tmp_path, 200, 400, 600)
    (folder.checkpoints / TRACKER).write_text("400\n")
    os.truncate(folder.checkpoints / "iter_0000400" / "__1_0.distcp", 1999)
    (folder.checkpoints / "iter_0000600" / ".metadata").unlink()
    found = start(folder)
    assert (found.step, found.first_step) == (200, 201)
    assert found.passed_over == (
        f"iter_0000600: {NO_METADATA}", f"iter_0000400: {TORN}", "the tracker file names 400",
    )  # fmt: skip
    assert lies(folder) == [
        "iter_0000200", "set_aside/iter_0000400-before-001", "set_aside/iter_0000600-before-001",
    ]  # fmt: skip
    # Chosen again, nothing else is said or done but what the tracker still says.
    assert start(folder) == Start(200, "the newest whole one", ("the tracker file names 400, which is not there",))


def test_nothing_whole_touches_nothing(tmp_path: Path) -> None:
    folder = run(tmp_path, 200)
    (folder.checkpoints / "iter_0000200" / "metadata.json").unlink()
    with pytest.raises(NothingWhole):
        start(folder)
    assert lies(folder) == ["iter_0000200"]


def test_an_unfinished_first_save_makes_way_for_a_fresh_start(tmp_path: Path) -> None:
    folder = run(tmp_path, 200, saved=[])
    (folder.checkpoints / "iter_0000200" / ".metadata").unlink()
    assert start(folder).step is None
    assert lies(folder) == ["set_aside/iter_0000200-before-001"]


@pytest.mark.parametrize(("step", "stays"), [(200, ["iter_0000200"]), (0, [])])
def test_a_person_goes_back(tmp_path: Path, step: int, stays: list[str]) -> None:
    folder = run(tmp_path, 200, 400)
    records.append_event(folder.events, "requeue_requested", from_step=step)
    assert start(folder).step == (step or None)
    assert [name for name in lies(folder) if "/" not in name] == stays
    assert "set_aside/iter_0000400-before-001" in lies(folder)
    # Once taken up it is the newest whole one again.
    records.append_event(folder.events, "attempt_started", attempt=folder.new_attempt().number)
    make_checkpoint(folder.checkpoints, 300)
    assert start(folder).step == 300


def test_set_aside_twice_keeps_both(tmp_path: Path) -> None:
    folder = run(tmp_path, 200, 400)
    for _ in range(2):
        (folder.checkpoints / "iter_0000400" / ".metadata").unlink()
        assert start(folder).step == 200
        make_checkpoint(folder.checkpoints, 400)
    assert lies(folder) == [
        "iter_0000200", "iter_0000400", "set_aside/iter_0000400-before-001", "set_aside/iter_0000400-before-001-1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "seen", "evaluate_only"),
    [(400, [], True), (400, ["validation"], True), (400, ["validation", "test"], False), (401, [], False)],
)
def test_a_missing_final_evaluation_is_made_up(
    tmp_path: Path, target: int, seen: list[str], evaluate_only: bool
) -> None:
    folder = run(tmp_path, 400)
    for which in seen:
        records.append_event(folder.events, "evaluation", attempt=0, step=400, which=which)
    found = start(folder, target, ("validation", "test"))
    assert (found.step, found.evaluate_only) == (400, evaluate_only)
