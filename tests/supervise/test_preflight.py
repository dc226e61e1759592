"""The preflight's tries: who is asked again, who is blamed, and who is not. The nodes' answers are given."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.supervise import preflight as module
from seatrial.supervise.control import Control
from seatrial.supervise.job import Job
from seatrial.supervise.journal import Journal
from seatrial.supervise.preflight import Report, preflight
from seatrial.supervise.preflight_judge import Heard
from seatrial.supervise.preflight_node import encoded
from tests.supervise.harness import events, make_run

NODES = ["n1", "n2", "n3"]
Answer = Callable[[Sequence[str]], Heard]


def heard(nodes: Sequence[str], broken: Sequence[str] = (), more: Sequence[str] = (), **how: Any) -> Heard:
    """What all of ``nodes`` say at once; ``broken`` ones fail a check."""
    now = time.time()
    lines = [encoded(node, {"check": "disk", "state": "failed", "why": "full"}).decode() for node in broken]
    lines += [encoded(node, {"time": now}).decode() for node in nodes]
    return Heard([(now, line) for line in [*lines, *more]], now, **how)


class Nodes:
    """Stands where Slurm and the nodes do: answers in turn, the last again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> None:
        self.asked: list[list[str]] = []
        self.answers = list(answers)
        self.down: set[str] = set()
        self.present = set(NODES)
        monkeypatch.setattr(module._Preflight, "_listen", lambda _, nodes, *__: self.answer(nodes))
        monkeypatch.setattr(module, "nodes_now", lambda _: sorted(self.present))
        monkeypatch.setattr(module, "down", lambda nodes, _: self.down & set(nodes))
        monkeypatch.setattr(module, "_REFUSED_SECONDS", 0.05)

    def answer(self, nodes: Sequence[str]) -> Heard:
        self.asked.append(list(nodes))
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])(nodes)


def make_job(tmp_path: Path, executor: str = "slurm", **block: Any) -> Job:
    folder = make_run(tmp_path, {})
    spec = records.read_json(folder.spec)
    spec["profile"] |= {"executor": executor, "preflight": {"seconds": 1, **block}}
    return Job(folder, spec, Journal(folder), Control())


def refused(_: Sequence[str]) -> Heard:
    return Heard([(time.time(), "srun: error: Unable to create step for job 1: no")], time.time(), reached=False)


def fit(nodes: Sequence[str]) -> Heard:
    return heard(nodes)


def without(*silent: str, more: Sequence[str] = ()) -> Answer:
    return lambda nodes: heard([node for node in nodes if node not in silent], more=more)


def test_all_are_fit_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, job = Nodes(monkeypatch, fit), make_job(tmp_path)
    report = preflight(job, NODES, 4)
    assert (report.healthy, report.tries, report.asked, nodes.asked) == (NODES, 1, True, [NODES])
    (event,) = events(job.folder, "preflight")
    assert {key: event[key] for key in ("attempt", "tries", "nodes", "failed", "skipped", "asked")} == {
        "attempt": 4, "tries": 1, "nodes": NODES, "failed": {}, "skipped": [], "asked": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "asked", "failed"),
    [
        ([lambda nodes: heard(nodes, ["n2"]), fit], [NODES, ["n2"]], {}),
        ([lambda nodes: heard(nodes, ["n2"])], [NODES, ["n2"], ["n2"]], {"n2": ("disk: full",)}),
        ([without("n3")], [NODES, ["n3"], ["n3"]], {"n3": ("no answer: its task ended without one",)}),
        ([lambda nodes: heard(nodes, set(nodes) & {"n1", "n2"}), lambda nodes: heard(nodes, ["n1"])],
         [NODES, ["n1", "n2"], ["n1"]], {"n1": ("disk: full",)}),
        # Where the controller goes away meanwhile, a node has not been asked as often as it may fail.
        ([lambda nodes: heard(nodes, ["n2"]), lambda _: Heard([], 0, reached=False, in_time=False)],
         [NODES, ["n2"], ["n2"]], {}),
    ],
)  # fmt: skip
def test_who_fails_is_asked_again(
    answers: list[Answer], asked: list[list[str]], failed: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    nodes, job = Nodes(monkeypatch, *answers), make_job(tmp_path)
    report = preflight(job, NODES, 0, backoff=0)
    assert (nodes.asked, report.failed) == (asked, failed)
    assert report.healthy == [node for node in NODES if node not in failed]


def test_the_waits_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Nodes(monkeypatch, lambda nodes: heard(nodes, nodes))
    waits: list[float] = []
    monkeypatch.setattr(module._Preflight, "_wait", lambda _, seconds: waits.append(seconds))
    preflight(make_job(tmp_path, tries=4), NODES, 0)
    assert waits == [2, 4, 8]


def test_who_was_ended_with_another_is_asked_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["srun: error: Task launch for StepId=1.1 failed on node n2: Communication connection failure",
            "srun: error: n3: task 2: Killed"]  # fmt: skip
    nodes = Nodes(monkeypatch, without("n2", "n3", more=said), fit, without("n2", more=said[:1]))
    report = preflight(make_job(tmp_path), NODES, 0, backoff=0)
    assert nodes.asked == [NODES, ["n3"], ["n2"], ["n2"]]
    assert list(report.failed) == ["n2"]


@pytest.mark.parametrize(
    ("down", "present", "why"),
    [({"n2"}, set(NODES), "Slurm calls it down"), (set(), {"n1", "n3"}, "Slurm has taken it from the job")],
)
def test_a_node_that_slurm_has_lost_is_not_asked_again(
    down: set[str], present: set[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(monkeypatch, lambda asked: refused(asked) if "n2" in asked else fit(asked))
    nodes.down, nodes.present = down, present
    report = preflight(make_job(tmp_path), NODES, 0)
    assert nodes.asked == [NODES, ["n1", "n3"]]
    assert (report.failed, report.tries, report.asked) == ({"n2": (f"no answer: {why}",)}, 1, True)


def test_a_step_that_slurm_refuses_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, job = Nodes(monkeypatch, refused), make_job(tmp_path, seconds=0.2, tries=2)
    report = preflight(job, NODES, 0, backoff=0)
    assert (report.failed, report.asked, report.healthy, report.tries) == ({}, False, NODES, 2)
    assert len(nodes.asked) > 4
    assert "could not be made, so nodes count as fit: srun: error: Unable to create step" in capsys.readouterr().out
    assert events(job.folder, "preflight")[0]["asked"] is False


def test_a_controller_that_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch, refused, refused, fit)
    report = preflight(make_job(tmp_path), NODES, 0)
    assert (report.failed, report.asked, report.tries, len(nodes.asked)) == ({}, True, 1, 3)


def test_a_stop_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path)

    def stopped(nodes: Sequence[str]) -> Heard:
        job.control.stop = "SIGUSR2"
        return heard(nodes, nodes)

    nodes = Nodes(monkeypatch, stopped)
    report = preflight(job, NODES, 0)
    assert (report.failed, report.asked, nodes.asked) == ({}, False, [NODES])


@pytest.mark.parametrize("executor", ["slurm", "local"])
def test_without_srun_or_without_a_preflight(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    job = make_job(tmp_path, executor, enabled=False)
    assert preflight(job, NODES, 0) == Report(NODES)
    assert events(job.folder, "preflight") == []
    if executor == "slurm":
        job = make_job(tmp_path / "other", executor, tries=1)
        assert not preflight(job, NODES, 0).asked
        assert "cannot start srun" in capsys.readouterr().out


def test_on_this_host(tmp_path: Path) -> None:
    commands = {"good": ["true"], "bad": ["sh", "-c", "echo $SLURMD_NODENAME is broken; false"]}
    job = make_job(tmp_path, "local", seconds=20, tries=2, commands=commands)
    node = platform.node()
    report = preflight(job, [node], 0, backoff=0.1)
    assert report.failed == {node: (f"bad: {node} is broken",)}
    assert (report.tries, report.healthy) == (2, [])
    assert {"gpus", "ecc", "xid", "nvlink", "imex", "image"} == set(report.skipped)


@pytest.mark.parametrize("script", ["kill -9 $PPID", "kill -STOP $PPID"])
def test_on_this_host_without_an_answer(script: str, tmp_path: Path) -> None:
    job = make_job(tmp_path, "local", seconds=2, tries=1, commands={"kills": ["sh", "-c", f"sleep 0.5; {script}"]})
    began = time.monotonic()
    report = preflight(job, ["here"], 0)
    assert time.monotonic() - began < 10
    words = "no answer within 2 s" if "STOP" in script else "no answer: its task ended without one"
    assert report.failed == {"here": (words,)}
