"""Real Megatron logs, followed while they grow in pieces of any size."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.judge.collect import read_log
from seatrial.judge.records import StepRecord
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import srun
from seatrial.supervise.follow import STEP, LogFollower
from seatrial.supervise.journal import Journal
from seatrial.supervise.srun import SrunRanks
from seatrial.supervise.step import Allocation

LOGS = Path(__file__).resolve().parents[1] / "judge" / "logs"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


@pytest.mark.parametrize("name", ["ok100.log", "exit60.log", "nan.log", "nancheck.log"])
@pytest.mark.parametrize("piece", [911, 70_001])
def test_a_growing_log_gives_the_records_of_the_whole(
    folder: RunFolder, tmp_path: Path, name: str, piece: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data, log = (LOGS / name).read_bytes(), tmp_path / "rank-00000.log"
    follower = LogFollower([tmp_path / "not there yet", log], 0, Journal(folder))
    follower.poll()
    with log.open("ab") as stream:
        for at in range(0, len(data), piece):
            stream.write(data[at : at + piece])
            stream.flush()
            follower.poll()
    follower.close()
    whole = [record.to_json() for record in read_log(LOGS / name) if isinstance(record, StepRecord)]
    assert list(records.read_lines(folder.metrics)) == whole
    assert (follower.seen.first_step, follower.seen.last_step) == (whole[0]["step"], whole[-1]["step"])


def test_what_is_not_a_number_is_on_record(folder: RunFolder) -> None:
    LogFollower([LOGS / "nan.log"], 3, Journal(folder)).close()
    steps = list(records.read_lines(folder.metrics))
    assert any("lm loss" not in step["losses"] for step in steps)
    assert {step["attempt"] for step in steps} == {3}


def test_events_have_their_step_and_attempt(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    follower = LogFollower([LOGS / "ok100.log"], 2, Journal(folder))
    follower.close()
    events = list(records.read_lines(folder.events))
    assert {"evaluation", "checkpoint_saved", "loop_started", "loop_ended"} <= {e["event"] for e in events}
    assert all(e["attempt"] == 2 for e in events)
    assert {e["step"] for e in events if e["event"] == "checkpoint_saved"} == set(follower.seen.saved_steps)
    assert {"validation", "test"} <= {which for step, which in follower.seen.evaluations if step == 100}
    assert "checkpoint 100 saved" in capsys.readouterr().out


def test_torn_characters_and_an_unfinished_last_line(folder: RunFolder, tmp_path: Path) -> None:
    line = next(x for x in (LOGS / "ok100.log").read_text().splitlines() if "iteration        3/" in x)
    data = "zwölf €\n".encode() + b"\xff\xfe\n" + line.encode()
    log = tmp_path / "log"
    follower = LogFollower([log], 0, Journal(folder))
    for at in range(len(data)):
        with log.open("ab") as stream:
            stream.write(data[at : at + 1])
        follower.poll()
    assert not folder.metrics.exists()
    follower.close()
    assert [step["step"] for step in records.read_lines(folder.metrics)] == [3]


def test_what_is_on_record_is_not_recorded_again(folder: RunFolder) -> None:
    follower = LogFollower([LOGS / "ok100.log"], 0, Journal(folder), {STEP: 98, "evaluation": 1})
    follower.close()
    assert [step["step"] for step in records.read_lines(folder.metrics)] == [99, 100]
    assert (follower.seen.first_step, follower.seen.last_step) == (1, 100)
    evaluations = sum(e["event"] == "evaluation" for e in records.read_lines(folder.events))
    assert evaluations == len(follower.seen.evaluations) - 1


# Thousands of ranks: little work a look, and nothing missed.

MANY = 4608
TERM = "[seatrial] SIGTERM received: asking the loop to save and exit (SIGUSR2)\n"
_opened: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "os.listdir", "os.scandir"):
        _opened.append(str(arguments[0]))


sys.addaudithook(_audit)


@contextmanager
def opened() -> Iterator[list[str]]:
    """Give every file that is opened, and folder that is listed, in the block."""
    global _opened
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None


def step_line(step: int) -> str:
    line = next(x for x in (LOGS / "ok100.log").read_text().splitlines() if "iteration        3/" in x)
    return line.replace("iteration        3/", f"iteration {step:8d}/") + "\n"


def many_logs(folder: RunFolder) -> list[Path]:
    attempt = folder.new_attempt()
    logs = [attempt.rank_log(rank) for rank in range(MANY)]
    for log in logs:
        log.write_text("a warning\n")
    return logs


def test_a_look_at_thousands_of_logs_opens_few(folder: RunFolder) -> None:
    logs = many_logs(folder)
    follower = LogFollower(logs, 0, Journal(folder))
    seen: set[str] = set()
    for look in range(40):
        with logs[-1].open("a") as stream:
            stream.write(step_line(look + 1))
        with opened() as found:
            follower.poll()
        visits = [name for name in found if name.endswith(".log")]
        assert len(visits) == len(set(visits)) <= 118
        seen.update(visits)
        assert follower.seen.last_step == look + 1, "the last rank is heard at once"
    assert len(seen) == MANY, "within 40 looks, which are 4 s, everyone is"


def test_one_that_speaks_is_heard_at_every_look(folder: RunFolder) -> None:
    logs = many_logs(folder)
    follower = LogFollower(logs, 0, Journal(folder))
    for rank in range(100, 200):  # more than are kept in mind
        logs[rank].write_text(step_line(1))
    for _ in range(40):
        follower.poll()
    logs[1000].write_text("a warning\n" + step_line(7))
    for _ in range(40):
        follower.poll()
    for step in range(8, 20):
        with logs[1000].open("a") as stream:
            stream.write(step_line(step))
        with opened() as found:
            follower.poll()
        assert follower.seen.last_step == step
        assert len(found) <= 140


def test_a_log_that_floods_leaves_time_for_the_others(folder: RunFolder, tmp_path: Path) -> None:
    logs = [tmp_path / f"{rank}.log" for rank in range(4)]
    for log in logs[1:3]:
        with log.open("w") as stream:
            stream.truncate(20 << 20)  # zeros: nothing to read in them
    follower = LogFollower(logs, 0, Journal(folder))
    for step in range(1, 4):
        with logs[3].open("a") as stream:
            stream.write(step_line(step))
        follower.poll()
        assert follower.seen.last_step == step
    with logs[2].open("a") as stream:
        stream.write("\n" + step_line(9))
    follower.close()
    assert follower.seen.last_step == 9


def test_a_quiet_rank_that_is_told_to_end(folder: RunFolder) -> None:
    logs = many_logs(folder)
    follower = LogFollower(logs, 0, Journal(folder))
    with logs[2000].open("a") as stream:
        stream.write(TERM[:20])
    for _ in range(40):
        follower.poll()
    assert not follower.seen.rank_term
    with logs[2000].open("a") as stream:
        stream.write(TERM[20:])
    for _ in range(40):
        follower.poll()
    assert follower.seen.rank_term


WRITES = st.lists(
    st.one_of(st.just("look"), st.tuples(st.integers(0, 59), st.integers(1, 400))), min_size=1, max_size=60
)


@given(moves=WRITES, chatty=st.sets(st.integers(0, 59), max_size=40))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_line_is_lost_whenever_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, moves: Sequence[Any], chatty: set[int]
) -> None:
    """Sixty logs that grow in pieces of any size between looks: every line of every one is found, in its order."""
    root = tmp_path_factory.mktemp("logs")
    folder = RunFolder.create(root / "run")
    logs = [root / f"{rank}.log" for rank in range(60)]
    texts = [
        "".join(f"a warning\n{step_line(100 * rank + n)}" if rank in chatty else "a warning\n" for n in range(1, 4))
        for rank in range(60)
    ]
    written = [0] * 60
    follower = LogFollower(logs, 0, Journal(folder))
    for move in moves:
        if move == "look":
            follower.poll()
            continue
        rank, size = move
        with logs[rank].open("a") as stream:
            stream.write(texts[rank][written[rank] : written[rank] + size])
        written[rank] += size
    for rank, text in enumerate(texts):
        with logs[rank].open("a") as stream:
            stream.write(text[written[rank] :])
    follower.close()
    found = [step["step"] for step in records.read_lines(folder.metrics)]
    assert sorted(found) == sorted(100 * rank + n for rank in chatty for n in range(1, 4))
    for rank in chatty:
        assert [step for step in found if step // 100 == rank] == [100 * rank + n for n in range(1, 4)]


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_each_line_of_the_final_evaluation_counts_once(folder: RunFolder, tmp_path: Path, piece: int) -> None:
    text = "Evaluating on 128 samples\nEvaluating iter 1/2\nnothing of note, and much of it\n" * 2
    log, counts = tmp_path / "log", []
    follower = LogFollower([log], 0, Journal(folder))
    for at in range(0, len(text), piece):
        with log.open("a") as stream:
            stream.write(text[at : at + piece])
        follower.poll()
        follower.poll()
        counts.append(follower.seen.progress)
    assert counts[-1] == (1 if piece > len(text) else 4)
    assert follower.seen.evaluating
    with log.open("a") as stream:
        stream.write("a warning\n" * 3)
    follower.poll()
    assert follower.seen.progress == counts[-1]


def test_what_the_loop_does_is_progress(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    follower = LogFollower([LOGS / "ok100.log"], 0, Journal(folder))
    follower.poll()
    seen = follower.seen
    assert seen.progress >= 100 + 2 * len(seen.saves) + len(seen.evaluated)
    assert seen.saving_step == seen.saved_steps[-1]
    assert (seen.evaluating, seen.leaving) == (True, False)
    asked = LogFollower([LOGS / "exit60.log"], 0, Journal(folder))
    asked.poll()
    assert asked.seen.leaving


def test_a_look_at_thousands_of_ranks_opens_few(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = folder.new_attempt()
    place = Allocation("7", 0, ["n1"], "n1", 1)
    monkeypatch.setattr(srun, "allocation", lambda *_: place)
    monkeypatch.setattr(srun, "srun_words", lambda *_: ["sleep", "60"])
    spec = {"world_size": MANY, "profile": {"paths": {"node_local": "/n"}}, "run_id": "r", "environment": {}}
    ranks = SrunRanks(spec, attempt, [], os.environ)
    ranks.start(lambda _: None)
    try:
        for rank in range(1000):
            records.write_json(attempt.exit_record(rank), {"code": 0})
        ranks.poll()
        records.write_json(attempt.exit_record(2000), {"code": 3})
        with opened() as found:
            assert [end[:2] for end in ranks.poll()] == [(2000, 3)]
        assert len(found) <= 4, found
        said = attempt.path / "srun.log"
        said.write_text("srun: error: n1: tasks 5,7: Killed\nsrun: error: n1: task 9: Exited with")
        assert [end[:2] for end in ranks.poll()] == [(5, -9), (7, -9)]
        with said.open("a") as stream:
            stream.write(" exit code 4\n")
        assert [end[:2] for end in ranks.poll()] == [(9, 4)]
    finally:
        process = ranks._process
        assert isinstance(process, subprocess.Popen)
        process.kill()
        process.wait()
    assert len(ranks.poll()) == MANY - 4
    assert ranks.running == []
