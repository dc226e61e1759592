"""The synthetic run that others build on: the program reads back of it what was put in."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from seatrial.judge.collect import read_log, read_steps
from seatrial.judge.history import read_events, read_history
from seatrial.judge.merge import merge_logs, merge_steps
from seatrial.judge.records import StepRecord
from seatrial.judge.run_goodput import run_goodput
from seatrial.report.explain import explanation
from seatrial.report.explain_words import lines
from seatrial.report.facts import read_facts
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.run.retention import superseded
from tests.synthetic_run import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("runs") / "run-1", steps=600, attempts=12, logs=True)


def test_the_curve_has_every_step_and_falls(run: RunFolder) -> None:
    curve = merge_steps(read_steps(run.metrics))
    assert [step.step for step in curve.steps] == list(range(1, 601))
    assert curve.disagreements == ()  # steps made again print the same
    losses = [step.losses["lm loss"] for step in curve.steps]
    assert losses[0] > 8 and losses[-1] < 2.5
    spikes = [step for step in range(50, 600) if losses[step] > losses[step - 1] + 1]
    assert len(spikes) == 2
    assert all(5000 < (step.step_time_ms or 0) < 40_000 for step in curve.steps)
    assert len({step.time for step in curve.steps}) == 600


def test_attempts_end_as_real_ones_do(run: RunFolder) -> None:
    history = read_history(run)
    assert [one.data["class"] for one in history] == [
        "time_limit", "network", "time_limit", "gpu_fault", "time_limit", "preempted", "hang", "time_limit",
        "node_failure", "time_limit", "time_limit", "complete",
    ]  # fmt: skip
    for before, after in zip(history, history[1:]):
        assert after.data["resume_step"] == before.data["newest_checkpoint"]
        assert after.data["first_step"] == after.data["resume_step"] + 1
    assert sum(one.steps.productive for one in history) == 600
    assert sum(one.steps.replayed for one in history) == len(list(read_steps(run.metrics))) - 600 > 0
    restarts = [one.data["job"]["restart"] for one in history]
    assert restarts == sorted(restarts) and restarts[1] == restarts[2] < restarts[3]
    left_out = history[3].data["decision"]["exclude"]
    assert len(left_out) == 1 and left_out[0] not in history[4].data["nodes"]
    assert all(len(one.data["nodes"]) == 16 for one in history)


def test_time_shares_add_up(run: RunFolder) -> None:
    events = read_events(run)
    history = read_history(run, events)
    for one in history:
        assert one.shares is not None and one.started is not None and one.ended is not None
        assert math.isclose(one.shares.total, one.ended - one.started, abs_tol=1e-3)
    goodput = run_goodput(history, events)
    assert math.isclose(math.fsum(goodput.shares.values()), goodput.wall, abs_tol=1e-3)
    assert 0.2 < (goodput.without_queue or 0) < 1 and goodput.queue > 0


def test_times_of_events_and_steps_say_what_the_records_say(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(Path(shutil.copytree(run.path, tmp_path / "copy")))
    for attempt in copy.attempts():
        records.write_json(attempt.record, records.read_json(attempt.record) | {"seconds": None, "steps": None})
    for one, again in zip(read_history(run), read_history(copy)):
        assert one.shares is not None and again.shares is not None
        assert again.steps == one.steps
        told, made_up = (
            # Nobody wrote down when a save began, so an evaluation before it counts as saving.
            {**shares.to_json(), "saving": shares.saving + shares.evaluating, "evaluating": 0}
            for shares in (one.shares, again.shares)
        )
        assert made_up == pytest.approx(told, abs=5), one.number


def test_logs_say_what_the_records_say(run: RunFolder) -> None:
    logs = [
        [record for record in read_log(path, attempt.number) if isinstance(record, StepRecord)]
        for attempt in run.attempts()
        for path in sorted(attempt.path.glob("rank-*.log"))
    ]
    assert list(merge_logs(logs)) == list(read_steps(run.metrics))


def test_checkpoints_that_were_saved_last_are_left(run: RunFolder) -> None:
    saved = {step for one in read_history(run) for step in one.data["saved_steps"]}
    deleted = {step for event in read_events(run) if event["event"] == "checkpoints_deleted" for step in event["steps"]}
    left = {int(path.name[5:]) for path in run.checkpoints.iterdir()}
    assert deleted == set(superseded(sorted(saved), 3)) and left == saved - deleted and 600 in left


def test_it_is_over_and_explained(run: RunFolder) -> None:
    facts = read_facts(run)
    assert facts.ended and facts.total == 600 and facts.kind == "convergence" and facts.profile == "gb200-64gpu"
    assert records.read_json(run.verdict)["verdict"] == facts.verdict == "PASS"
    words = "\n".join(lines(explanation(run, None)))
    assert "steps: 600 for the first time" in words and "not recorded" not in words


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=100, attempts=3, over=False)
    *before, last = read_history(run, now=float(2**31))
    assert last.live and "class" not in last.data and all(not one.live for one in before)
    assert not read_facts(run).ended and before[-1].data["last_step"] < read_facts(run).step < 100


def test_a_gate_passes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "gate", kind="gate")
    verdict = records.read_json(run.verdict)
    assert verdict["verdict"] == "PASS", [rule for rule in verdict["rules"] if rule["verdict"] != "PASS"]
    assert verdict["speed"]["windows"][0]["tflops_per_gpu"] > 100 and verdict["resume_check"]["from"] == 50
    assert read_facts(run).verdict == "PASS" and read_facts(run).ended


def test_the_seed_decides(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(n), steps=40, attempts=2, seed=seed) for n, seed in enumerate((1, 1, 2))]
    curves = [run.metrics.read_text() for run in runs]
    assert curves[0] == curves[1] != curves[2]


def test_too_few_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few"):
        write_run(tmp_path / "run", steps=20, attempts=3)
