"""`seatrial gate --resume-check` with real training: a second pass that agrees, and one that resumes wrongly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.cli.test_cli import NANO, seatrial
from tests.cli.test_drill import BROKEN, short, words

pytestmark = pytest.mark.train
SOURCES = Path(__file__).resolve().parents[2] / "launchers"


def gate(tmp_path: Path, **settings: Any) -> tuple[int, dict[str, Any], RunFolder, str]:
    given = short(tmp_path / "runs") | {"checkpoint.save_interval": 8}
    given |= {key.replace("__", "."): value for key, value in settings.items()}
    done = seatrial("gate", NANO, "--resume-check", *words(given))
    folder = RunFolder(next((tmp_path / "runs").glob("*-gate-*")))
    return done.returncode, dict(records.read_json(folder.verdict)), folder, done.stdout + done.stderr


def rule(verdict: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in verdict["rules"] if one["rule"] == "resume check")


def test_the_second_pass_trains_as_the_first_did(tmp_path: Path) -> None:
    code, verdict, folder, said = gate(tmp_path)
    assert (code, rule(verdict)["verdict"]) == (0, "PASS"), said
    assert "8 steps, 8 of them equal as printed" in rule(verdict)["seen"]
    told = verdict["resume_check"]
    assert told["from"] == 8 and [row["step"] for row in told["steps"]] == list(range(9, 17))
    second = folder.second_pass
    assert [attempt.number for attempt in second.attempts()] == [1]
    assert [step["step"] for step in records.read_lines(second.metrics)] == list(range(9, 17))
    assert [step["step"] for step in records.read_lines(folder.metrics)] == list(range(1, 17))
    assert not list(folder.path.glob("**/iter_*")), "a gate that has passed keeps no checkpoint, of either pass"
    again = seatrial("verdict", str(folder.path), "--json")
    assert again.returncode == 0 and json.loads(again.stdout)["rules"] == verdict["rules"]


@pytest.mark.campaign
def test_a_second_pass_that_begins_again_fails_the_gate(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(BROKEN.format(python=sys.executable, sources=str(SOURCES), how="from scratch"))
    program.chmod(0o755)
    code, verdict, folder, said = gate(tmp_path, profile__rank_python=program)
    assert (code, verdict["verdict"], rule(verdict)["verdict"]) == (1, "FAIL", "FAIL"), said
    assert "did not end well" in rule(verdict)["seen"] and folder.checkpoints.is_dir()


def test_it_needs_a_checkpoint_before_the_last_step(tmp_path: Path) -> None:
    done = seatrial("gate", NANO, "--resume-check", *words(short(tmp_path / "runs")))
    assert done.returncode == 2 and "no checkpoint to resume from" in done.stderr
    assert "--set checkpoint.save_interval=8" in done.stderr and not (tmp_path / "runs").exists()
