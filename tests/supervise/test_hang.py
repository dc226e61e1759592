"""When a run counts as hung, by a simulated clock; and a real supervisor over ranks that stand still."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.judge.records import EvaluationRecord, SaveRecord, StepRecord
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import exit_codes
from seatrial.supervise.follow import Seen
from seatrial.supervise.hang import Hang, Limits, Watchdog
from seatrial.supervise.outcome import Target
from seatrial.supervise.slot import Longest
from tests.supervise.harness import events, make_run, pids_of, record, running, supervise

MINUTE = 60.0
LIMITS = Limits(Target(1000), evaluation_interval=100)
NEW = Longest()
KNOWN = Longest(step=3.0, evaluation=200.0, save=100.0, startup=400.0)


class Sail:
    """A run in the words of its log, against a clock that only ``wait`` moves; looked at every second."""

    def __init__(self, limits: Limits = LIMITS, longest: Longest = NEW) -> None:
        self.now, self.seen = 0.0, Seen()
        self.dog, self.limits = Watchdog(limits, longest, 0.0), limits

    def wait(self, seconds: float, every: float = 1.0) -> Hang | None:
        """Let time go by; return the hang that is found, ``now`` is then when."""
        until = self.now + seconds
        while self.now < until:
            self.now += every
            found = self.dog.look(self.seen, self.now)
            if found is not None:
                return found
        return None

    def step(self, step: int, seconds: float = 2.0) -> Sail:
        self.seen.step(StepRecord(step, 1000, step_time_ms=1000 * seconds), self.now)
        return self

    def steps(self, numbers: Iterable[int], seconds: float = 2.0) -> Sail:
        for n in numbers:
            assert self.wait(seconds) is None
            self.step(n, seconds)
        return self

    def save(self, step: int, seconds: float | None) -> Sail:
        """Save for so long; None: it goes on."""
        self.seen.save(SaveRecord(step, "there", "started"), self.now)
        if seconds is not None:
            assert self.wait(seconds) is None
            self.seen.save(SaveRecord(step, "there", "finished"), self.now)
        return self

    def evaluation(self, step: int, seconds: float, which: str = "interval") -> Sail:
        assert self.wait(seconds) is None
        self.seen.evaluation(EvaluationRecord(step, which, {}), self.now)
        return self


def at_the_end() -> Sail:
    return Sail().steps(range(990, 1001)).evaluation(1000, 60)


NOT_HUNG = {
    "a cold start of ten minutes": lambda: Sail().wait(10 * MINUTE),
    "a cold start of just the limit": lambda: Sail().wait(30 * MINUTE),
    "graphs are captured in the second step": lambda: Sail(longest=KNOWN).step(1).wait(25 * MINUTE),
    "a save of twelve minutes": lambda: Sail().steps(range(1, 9)).save(8, None).wait(12 * MINUTE),
    "a save as long as the ones before":
        lambda: Sail().steps(range(1, 9)).save(8, 840).step(9).save(9, None).wait(4199),
    "as those of earlier attempts": lambda: Sail(longest=Longest(save=840.0)).step(1).save(1, None).wait(4199),
    "an evaluation of 25 minutes, not announced": lambda: Sail().steps(range(90, 101)).wait(25 * MINUTE),
    "an evaluation as long as the ones before":
        lambda: Sail().steps(range(90, 101)).evaluation(100, 1500).steps(range(101, 201)).wait(7499),
    "a step ten times the median": lambda: Sail().steps(range(1, 20), 60).wait(599),
    "a short step, three minutes": lambda: Sail().steps(range(1, 20), 2).wait(179),
    "the save after the last step": lambda: at_the_end().wait(14 * MINUTE),
    "the final evaluation": lambda: at_the_end().save(1000, 60).wait(29 * MINUTE),
    "it ends": lambda: at_the_end().save(1000, 60).evaluation(1000, 60, "validation").evaluation(1000, 60, "test").wait(
        14 * MINUTE
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_HUNG)
def test_no_hang(name: str) -> None:
    result = NOT_HUNG[name]()
    assert result is None


def final(which: str) -> Sail:
    sail = at_the_end().save(1000, 60)
    return sail.evaluation(1000, 60, "validation") if which == "test" else sail


def leaving() -> Sail:
    sail = Sail().steps(range(1, 9)).save(8, 60)
    sail.seen.leaving = True
    return sail


def asynchronous() -> Sail:
    """A save that goes on while steps are made."""
    return Sail().steps(range(1, 9)).save(8, None).steps(range(9, 12))


def made_up_for() -> Sail:
    sail = Sail(Limits(Target(1000), trains=False))
    sail.seen.evaluating = True
    return sail


STALLS = {
    "no first step": (Sail, "startup", 1800, None),
    "no first step, though it once took long": (lambda: Sail(longest=KNOWN), "startup", 1800, None),
    "nothing known of its steps": (lambda: Sail().steps(range(1, 5)), "step", 1800, 5),
    "five steps known after the first two": (lambda: Sail().steps(range(1, 8)), "step", 180, 8),
    "known from an earlier attempt": (lambda: Sail(longest=Longest(step=30.0)).steps([1, 2]), "step", 300, 3),
    "ten times the median": (lambda: Sail().steps([1, 2], 300).steps(range(3, 20), 25), "step", 250, 20),
    "with a line every ten steps":
        (lambda: Sail(Limits(Target(1000), log_interval=10)).steps(range(10, 200, 10), 20), "step", 2000, 191),
    "a save": (lambda: Sail().steps(range(1, 9)).save(8, None), "save", 900, 9),
    "a save after long ones": (lambda: Sail().steps(range(1, 9)).save(8, 840).step(9).save(9, None), "save", 4200, 10),
    "a step after a save": (lambda: Sail().steps(range(1, 9)).save(8, 60), "step", 180, 9),
    "a step while a save goes on": (asynchronous, "step", 180, 12),
    "an evaluation that is not announced": (lambda: Sail().steps(range(90, 101)), "evaluation", 1800, 101),
    "a step after it": (lambda: Sail().steps(range(90, 101)).evaluation(100, 60), "step", 180, 101),
    "a save after it": (lambda: Sail().steps(range(90, 101)).save(100, 60), "step", 180, 101),
    "an evaluation between two lines":
        (lambda: Sail(Limits(Target(1000), evaluation_interval=15, log_interval=10)).steps([1, 10]), "evaluation", 1800,
         11),
    "the last save": (at_the_end, "save", 900, 1001),
    "the final evaluation": (lambda: final("validation"), "evaluation", 1800, 1001),
    "the last one": (lambda: final("test"), "evaluation", 1800, 1001),
    "its end": (lambda: final("test").evaluation(1000, 60, "test"), "end", 900, 1001),
    "its end when asked for": (leaving, "end", 900, 9),
    "a final evaluation alone, before it": (lambda: Sail(Limits(Target(1000), trains=False)), "startup", 1800, None),
    "a final evaluation alone": (made_up_for, "evaluation", 1800, None),
}  # fmt: skip


@pytest.mark.parametrize("name", STALLS)
def test_a_stall_is_found_at_its_limit(name: str) -> None:
    make, phase, limit, step = STALLS[name]
    sail = make()
    last = sail.now
    assert sail.wait(limit) is None, "not before"
    found = sail.wait(2)
    assert found is not None
    assert (found.phase, found.limit, found.step) == (phase, limit, step)
    assert limit < sail.now - last <= limit + 2
    assert found.silent == pytest.approx(sail.now - last, abs=1.01)
    assert found.what.startswith("no ")


def test_what_else_a_rank_does_is_no_progress() -> None:
    sail = Sail().steps(range(1, 9))
    sail.seen.rank_term = True
    assert sail.wait(182) is not None


def test_a_supervisor_that_stood_still_begins_to_count_anew() -> None:
    sail = Sail().steps(range(1, 9))
    assert sail.wait(100) is None
    assert sail.wait(3600, every=3600) is None, "the machine was paused"
    assert sail.wait(180) is None
    assert sail.wait(1) is not None


def test_slow_looks_are_no_pause() -> None:
    assert Sail().steps(range(1, 9)).wait(250, every=25) is not None


@given(st.lists(st.floats(0.1, 5000, allow_nan=False), min_size=1, max_size=60))
def test_no_run_that_goes_on_is_hung(times: list[float]) -> None:
    """Whatever its steps take: none is accused within the least limit, and the limit follows the median."""
    sail = Sail(Limits(Target(10**6)))
    for n, seconds in enumerate(times, 1):
        sail.step(n, seconds)
        assert sail.wait(170, every=10) is None
    limit = sail.dog.limit("step", sail.seen)
    counted = sorted(times[2:])
    if len(counted) >= 5:
        middle = (counted[len(counted) // 2] + counted[(len(counted) - 1) // 2]) / 2
        assert limit == pytest.approx(max(180, 10 * middle))
    else:
        assert limit == 1800


def test_limits_of_a_spec() -> None:
    fields = {"evaluation.eval_interval": 800, "evaluation.eval_iters": 32, "logging.log_interval": 1}
    spec: dict[str, Any] = {"profile": {}, "fields": {key: {"value": value} for key, value in fields.items()}}
    defaults = Limits.of(spec, Target(7), True)
    assert defaults == Limits(Target(7), evaluation_interval=800)
    said = {"startup_minutes": 1, "step_factor": 2.0, "step_minimum_seconds": 3, "save_minutes": 4,
            "evaluation_minutes": 5}  # fmt: skip
    spec["profile"]["hang"] = said
    assert Limits.of(spec, Target(7), False) == Limits(Target(7), 60, 2, 3, 240, 300, 800, trains=False)
    spec["fields"]["evaluation.eval_iters"]["value"] = 0
    assert getattr(Limits.of(spec, Target(7), True), "evaluation_interval", None) == 0
    spec["profile"]["hang"]["enabled"] = False
    assert Limits.of(spec, Target(7), True) is None


# The rest is the real supervisor, over the test rank program.

IMPATIENT = "from seatrial.supervise.dumps import Dumps\nDumps.__init__.__defaults__ = (0.5, 5.0)"
SOON = {"startup_minutes": 30, "step_minimum_seconds": 1, "step_factor": 2}


def hang_soon(folder: RunFolder, **settings: Any) -> RunFolder:
    spec = records.read_json(folder.spec)
    spec["profile"]["hang"] = SOON | settings
    records.write_json(folder.spec, spec)
    return folder


def fates(**of_rank_1: Any) -> dict[str, Any]:
    """Three ranks make steps; after step 9 of 12 rank 1 does what it is told, and the others wait for it."""
    waits = {"steps": 9, "pace": 0.05, "final": False, "exit": "hang", "dumps": True}
    return {"all": waits, "1": {**waits, **of_rank_1}}


@pytest.mark.parametrize(
    ("of_rank_1", "stacks", "silent", "rank"),
    [
        ({"exit": "loop"}, ["0", "1", "2"], [], None),
        ({"exit": "stop"}, ["0", "1", "2"], [1], 1),
        # Its signal kills the rank that has not got so far: no end of its own.
        ({"dumps": False}, ["0", "2"], [1], 1),
    ],
    ids=["loop", "stop", "killed by the question"],
)
def test_a_rank_stands_still(
    tmp_path: Path, of_rank_1: dict[str, Any], stacks: list[str], silent: list[int], rank: int | None
) -> None:
    folder = hang_soon(make_run(tmp_path, fates(**of_rank_1), steps=12))
    began = time.monotonic()
    code, log = supervise(folder, before=IMPATIENT)
    assert (code, time.monotonic() - began < 30) == (exit_codes.HUNG, True), log
    (found,) = events(folder, "hang_detected")
    assert (found["phase"], found["step"], found["limit_seconds"], found["attempt"]) == ("step", 10, 1, 0)
    assert 1 <= found["silent_seconds"] < 6
    made = record(folder)
    assert (made["class"], made["exit_code"], made["how"]) == ("hang", exit_codes.HUNG, "hang")
    assert made["class_why"].startswith("no step for ")
    assert (sorted(made["hang"]["stacks"]), made["hang"]["without_stack"]) == (stacks, silent)
    assert (made["first_failed_rank"], made["failed_step"]) == (rank, 10)
    assert all(end["killed_by_supervisor"] for end in made["ranks"])
    assert not any(running(pid) for pid in pids_of(folder))


def test_it_goes_on_after_a_hang(tmp_path: Path) -> None:
    folder = hang_soon(make_run(tmp_path, fates(exit="stop"), steps=12, failures=1))
    supervise(folder, before=IMPATIENT)
    decisions = events(folder, "decision")
    assert [one["action"] for one in decisions] == ["restart", "stop"], "twice the same hang is a loop"
    assert decisions[-1]["class"] == "crash_loop"


@pytest.mark.parametrize(("enabled", "code"), [(True, exit_codes.HUNG), (False, exit_codes.NOT_DONE)])
def test_a_watch_that_is_off(tmp_path: Path, enabled: bool, code: int) -> None:
    fate = {"steps": 9, "pace": 0.05, "final": False, "pause": 2.5}
    folder = hang_soon(make_run(tmp_path, {"all": fate}, steps=12), enabled=enabled)
    assert supervise(folder, before=IMPATIENT)[0] == code
    assert len(events(folder, "hang_detected")) == enabled


def test_py_spy_is_asked_where_it_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "asked: $*"\nexit 3\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    folder = hang_soon(make_run(tmp_path, fates(exit="loop"), steps=12), py_spy=True)
    program = tmp_path / "rank.py"
    program.write_text((Path(__file__).parent / "programs.py").read_text())
    supervise(folder, program=("python3", str(program)))
    (log,) = folder.attempt(0).path.glob("py-spy-*.log")
    for pid in pids_of(folder):
        assert f"asked: dump --nonblocking --pid {pid}\n" in log.read_text()
