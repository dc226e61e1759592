"""Real Megatron logs, followed while they grow in pieces of any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.judge.collect import read_log
from seatrial.judge.records import StepRecord
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise.follow import STEP, LogFollower
from seatrial.supervise.journal import Journal

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
