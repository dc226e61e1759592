"""Exit records: one per rank, for every kind of end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import SeatrialError
from seatrial.train import exits
from seatrial.train.exits import ExitRecord


def written(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "exit-00003.json").read_text())
    return record


@pytest.mark.parametrize(
    ("error", "code", "how", "exception", "message"),
    [
        (SystemExit(0), 0, "exit", None, None),
        (SystemExit(), 0, "exit", None, None),
        (SystemExit(17), 17, "exit", None, None),
        (SystemExit("no more samples"), 1, "exit", None, "no more samples"),
        (ValueError("nan"), 1, "exception", "ValueError", "nan"),
        (KeyboardInterrupt(), 1, "exception", "KeyboardInterrupt", ""),
        (SeatrialError("no GPU"), 2, "exception", "SeatrialError", "no GPU"),
    ],
)
def test_every_end_has_its_record(
    tmp_path: Path, error: BaseException, code: int, how: str, exception: str | None, message: str | None
) -> None:
    record = ExitRecord(tmp_path, 3, 1)
    record.signals.append("SIGTERM")
    assert record.ended(type(error), error, error.__traceback__) == code
    seen = written(tmp_path)
    assert (seen["code"], seen["how"], seen["exception"], seen["message"]) == (code, how, exception, message)
    assert (seen["rank"], seen["local_rank"], seen["signals"]) == (3, 1, ["SIGTERM"])
    assert (seen["traceback"] is not None) == (exception is not None)


def test_the_first_record_stays(tmp_path: Path) -> None:
    record = ExitRecord(tmp_path, 3, 1)
    record.completed()
    record.leftover()
    assert written(tmp_path)["how"] == "completed"


def test_a_folder_that_is_gone_hides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = ExitRecord(tmp_path / "gone", 3, 1)
    assert record.ended(ValueError, ValueError("first cause"), None) == 1
    assert "cannot write" in capsys.readouterr().out


def test_what_a_killed_rank_left_goes_with_the_next_one(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal\n"
        f"sys.path.insert(0, {str(Path(exits.__file__).parents[2])!r})\n"
        "from seatrial.train import exits\n"
        "exits.own_temporary_folder('run-1', int(sys.argv[1]))\n"
        "if sys.argv[2] == 'killed': os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    def run(rank: int, how: str) -> list[str]:
        subprocess.run([sys.executable, "-c", code, str(rank), how], env={"TMPDIR": str(tmp_path)})
        return [path.name for path in tmp_path.iterdir()]

    assert len(run(0, "killed")) == 1
    assert len(run(1, "killed")) == 2
    assert len(run(0, "ended")) == 1, "its own is gone, and what was left of it; not what is another rank's"
