"""The supervisor's side of a drill: whom the fault hits, what is decided after it, and that it comes once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.checkpoint import check
from seatrial.run.layout import Attempt, RunFolder
from seatrial.supervise import classes, drill, policy
from seatrial.supervise.control import Control
from seatrial.supervise.drill import Drill, classified, decide, disturbed, node_of, ranks_part, truncate_newest
from seatrial.supervise.evidence import Classified
from seatrial.supervise.policy import Budgets, Past, Slot
from tests.run.test_checkpoint import make as make_checkpoint
from tests.run.test_checkpoint import torchs_names  # noqa: F401 - the look-alikes need their names
from tests.supervise.harness import PROGRAM, STEPS, events, make_run, record, supervise

KILL = Drill("kill-rank", 30)
STOPPED = {"stop": "SIGUSR2", "outcome": "stopped", "reason": "asked to stop by SIGUSR2"}
FAILED = {"stop": None, "outcome": "failed", "reason": "rank 1 is gone"}


def end(name: str, **more: Any) -> Past:
    return Past(name, how=name, step=30, progress=True, farther=True, **more)


# (drill, class, record, disturbed, more, action, words)
DECISIONS: list[tuple[Drill, Past, dict[str, Any], bool, dict[str, Any], str, str]] = [
    (KILL, end(classes.UNKNOWN), FAILED, True, {}, policy.RESTART, "no new node"),
    (Drill("hang", 30), end(classes.HANG), FAILED, True, {}, policy.RESTART, "no new node"),
    (Drill("kill-node", 30), end(classes.NODE_FAILURE, node="n2"), FAILED, True, {}, policy.RESTART, "no other node"),
    (Drill("kill-node", 30), end(classes.NODE_FAILURE, node="n2"), FAILED, True, {"slot": Slot(spares=1)},
     policy.RESTART_ON_SPARE, "a spare"),
    # a job that could be requeued is not: a gate's job has --no-requeue
    (KILL, end(classes.UNKNOWN), FAILED, True, {"slot": Slot(seconds_left=1, needed=100)}, policy.RESTART, ""),
    (Drill("stop-signal", 30), end(classes.CANCELLED), STOPPED, True, {}, policy.RESTART, "it goes on"),
    (Drill("stop-signal", 30), end(classes.CANCELLED), STOPPED, True, {"by_person": True}, policy.STOP, "a person"),
    (Drill("stop-signal", 30), end(classes.CANCELLED), {**STOPPED, "stop": "SIGTERM"}, True, {}, policy.STOP, ""),
    (Drill("stop-signal", 30), end(classes.CANCELLED), STOPPED, False, {}, policy.STOP, "a gate is not repeated"),
    (KILL, end(classes.CANCELLED), STOPPED, True, {}, policy.STOP, "a person"),
    # what the fault brings to light ends it; so does a failure of its own, before the fault or after it
    (KILL, end(classes.NAN), FAILED, True, {}, policy.STOP, "no number"),
    (KILL, end(classes.UNKNOWN), FAILED, False, {}, policy.STOP, "a gate is not repeated: rank 1 is gone"),
    (KILL, end(classes.RESUME_MISMATCH), FAILED, False, {}, policy.STOP, "a gate is not repeated"),
    (KILL, end(classes.COMPLETE), {"outcome": "completed"}, False, {}, policy.DONE, "proven"),
    (Drill("stop-signal", 30), end(classes.COMPLETE), {"outcome": "completed"}, True, {}, policy.DONE, "proven"),
]  # fmt: skip


@pytest.mark.parametrize(("drilled", "now", "of", "was", "more", "action", "words"), DECISIONS)
def test_what_follows_an_attempt(
    drilled: Drill, now: Past, of: dict[str, Any], was: bool, more: dict[str, Any], action: str, words: str
) -> None:
    given = {"slot": Slot()} | more
    decision = decide(drilled, now, [], Budgets(), given.pop("slot"), of, was_disturbed=was, **given)
    assert decision.action == action
    assert words in decision.reason
    assert not decision.requeues


@pytest.mark.parametrize(
    ("fault", "nodes", "ranks"),
    [
        ("kill-rank", 2, [7]), ("hang", 2, [7]), ("truncate-checkpoint", 2, [7]), ("stop-signal", 2, None),
        ("kill-node", 2, [4, 5, 6, 7]), ("kill-node", 1, list(range(8))), ("kill-node", 4, [6, 7]),
    ],
)  # fmt: skip
def test_whom_the_fault_hits(fault: str, nodes: int, ranks: list[int] | None) -> None:
    spec = {"drill": {"fault": fault, "step": 30}, "world_size": 8, "profile": {"nodes": nodes}}
    wanted = None if ranks is None else {"fault": fault, "step": 30, "ranks": ranks}
    assert ranks_part(spec) == wanted
    assert ranks_part({**spec, "drill": None}) is None


def test_ranks_fill_one_node_after_the_other() -> None:
    assert [node_of(rank, 4, ["a", "b"]) for rank in range(4)] == ["a", "a", "b", "b"]
    assert node_of(0, 4, []) is None


def mark(attempt: Attempt, rank: int, fault: str = "kill-node") -> None:
    attempt.path.mkdir(parents=True, exist_ok=True)
    what = {"fault": fault, "step": 3, "rank": rank, "host": "vm", "signal": "SIGKILL"}
    records.write_json(attempt.drill_mark(rank), what)


@pytest.mark.parametrize(
    ("fault", "marked", "name", "wanted"),
    [
        ("kill-node", True, classes.UNKNOWN, classes.NODE_FAILURE),
        ("kill-node", True, classes.NETWORK, classes.NODE_FAILURE),
        ("kill-node", True, classes.CANCELLED, classes.CANCELLED),
        ("kill-node", True, classes.PREEMPTED, classes.PREEMPTED),
        ("kill-node", False, classes.UNKNOWN, classes.UNKNOWN),
        ("kill-rank", True, classes.UNKNOWN, classes.UNKNOWN),
        (None, True, classes.UNKNOWN, classes.UNKNOWN),
    ],
)
def test_a_node_that_the_drill_took_is_lost(
    tmp_path: Path, fault: str | None, marked: bool, name: str, wanted: str
) -> None:
    attempt = Attempt(tmp_path / "000", 0)
    if marked:
        mark(attempt, 3)
    spec = {"drill": fault and {"fault": fault, "step": 3}, "world_size": 4}
    found = classified(spec, attempt, ["n1", "n2"], Classified(name, "what was seen", 0, "n1"))
    assert found.name == wanted
    if wanted == classes.NODE_FAILURE:
        assert (found.why, found.rank, found.node) == ("the drill took node n2 away", 3, "n2")
    else:
        assert found.why == "what was seen"


def test_the_newest_whole_checkpoint_is_cut_so_that_it_shows(tmp_path: Path) -> None:
    assert truncate_newest(tmp_path) is None
    paths = [make_checkpoint(tmp_path, step) for step in (10, 20, 30)]
    (paths[2] / ".metadata").unlink()
    said = truncate_newest(tmp_path)
    assert said is not None and said.startswith("iter_0000020/")
    assert [check(path).whole for path in paths] == [True, False, False]


def test_a_fault_comes_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {}, kind="gate")
    assert disturbed(folder) is None
    first, second = folder.new_attempt(), folder.new_attempt()
    records.append_event(folder.events, "drill_injected", attempt=1)
    assert disturbed(folder) == 1
    mark(first, 2)
    assert disturbed(folder) == 0, "what a rank left counts although its supervisor never saw it"
    assert second.number == 1


def test_only_the_signal_that_it_sent_itself_is_taken_back() -> None:
    for stop, left in (("SIGUSR2", None), ("SIGTERM", "SIGTERM"), (None, None)):
        control = Control()
        control.stop = stop
        control.go_on()
        assert control.stop == left


# The light rank program, which does to itself what a drill's plan says.
DRILLED = """
import json, os, runpy, sys
from pathlib import Path
plan = json.loads(Path(sys.argv[2]).read_text())
rank, drill = int(os.environ["RANK"]), plan["drill"]
if drill and rank in drill["ranks"]:
    fate = {"steps": drill["step"] - 1, "final": False, "exit": "kill", "pace": 0.2}
    os.environ["FATE"] = json.dumps({str(rank): fate})
    mark = {"rank": rank, "step": drill["step"], "signal": "SIGKILL", "host": "here"}
    (Path(plan["attempt_folder"]) / f"drill-{rank:05d}.json").write_text(json.dumps(mark))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def drilled_run(root: Path, fault: str, fate: dict[str, Any], steps: int = STEPS) -> RunFolder:
    """A run with a fault at step 3, and checkpoints at 1 and 2 on disk, as its ranks write none."""
    folder = make_run(root, fate, kind="gate", failures=3, steps=steps)
    spec = records.read_json(folder.spec)
    records.write_json(folder.spec, {**spec, "drill": {"fault": fault, "step": 3, "reference": None}})
    for step in (1, 2):
        make_checkpoint(folder.checkpoints, step)
    return folder


def program(root: Path) -> list[str]:
    path = root / "drilled.py"
    path.write_text(DRILLED)
    return [sys.executable, str(path), str(PROGRAM)]


@pytest.mark.parametrize(("fault", "resumed"), [("kill-rank", 2), ("kill-node", 2), ("truncate-checkpoint", 1)])
def test_the_run_goes_on_from_what_the_fault_left(tmp_path: Path, fault: str, resumed: int) -> None:
    folder = drilled_run(tmp_path, fault, {})
    supervise(folder, program=program(tmp_path))
    (event,) = events(folder, drill.INJECTED)
    assert (event["attempt"], event["fault"], event["step"]) == (0, fault, 3)
    assert event["rank"] == (0 if fault == "kill-node" else 2)
    name = classes.NODE_FAILURE if fault == "kill-node" else classes.UNKNOWN
    assert (record(folder, 0)["class"], record(folder, 0)["decision"]["action"]) == (name, policy.RESTART)
    then = record(folder, 1)
    assert (then["resume_step"], then["first_step"], then["last_step"]) == (resumed, resumed + 1, 4)
    assert json.loads(folder.attempt(1).plan.read_text())["drill"] is None
    assert records.read_json(folder.verdict)["drill"] == f"{fault}@3"


def test_a_failure_of_another_kind_ends_a_drill(tmp_path: Path) -> None:
    folder = drilled_run(tmp_path, "kill-rank", {"1": {"pace": 2, "exit": 5}, "all": {"final": False}})
    supervise(folder, program=program(tmp_path))
    assert [a.number for a in folder.attempts()] == [0, 1]
    assert (record(folder, 1)["exit_code"], record(folder, 1)["decision"]["action"]) == (5, policy.STOP)
    assert records.read_json(folder.verdict)["verdict"] == "FAIL"


def test_a_signal_that_the_drill_sends_ends_an_attempt_and_not_the_run(tmp_path: Path) -> None:
    folder = drilled_run(tmp_path, "stop-signal", {"all": {"pace": 0.5, "final": False}}, steps=8)
    supervise(folder, program=program(tmp_path))
    first = record(folder, 0)
    assert (first["stop"], first["outcome"], first["decision"]["action"]) == ("SIGUSR2", "stopped", policy.RESTART)
    then = record(folder, 1)
    assert (then["resume_step"], then["last_step"], then["stop"]) == (2, 8, None)


def test_a_gate_without_a_drill_is_not_repeated(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {"1": {"steps": 2, "exit": 5}, "all": {}}, kind="gate", failures=3)
    supervise(folder)
    assert len(folder.attempts()) == 1
