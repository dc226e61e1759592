"""`seatrial converge` as a user meets it: what is refused before anything runs, what is said, how it ends."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli import converge
from seatrial.run import records
from seatrial.run.layout import RunFolder
from tests.cli.test_cli import NANO, seatrial
from tests.cli.verbs import _RANK
from tests.slurm_room import test_admission
from tests.slurm_room.fakes import FakeCommands, Reply, lines, on_path, queue_row


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no gate of this recipe is there"),
        (["--no-gate", " "], "--no-gate needs a reason"),
        (["--no-gate", "x", "--after-gate"], "exclude each other"),
        (["--gate", "g", "--after-gate"], "exclude each other"),
        (["--gate", "none"], "no run 'none'"),
        (["--after-gate", "--detach"], "runs the gate in the foreground"),
        (["--no-gate", "x", "--set", "data.data_path=null"], "data is named"),
        (["--no-gate", "x", "--set", "data.mock_data=true", "--set", "data.data_path=null"], "shows nothing"),
        (["--no-gate", "x", "--set", "model.padded_vocab_size=256"], "at least the 257 ids"),
        (["--no-gate", "x", "--set", "checkpoint.save_retain_interval=2000"], "is set by the run itself"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_mistake_is_one_message_and_no_run_folder(words: list[str], said: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = seatrial("converge", NANO, *words, "--set", f"profile.paths.runs={runs}", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not runs.exists()


def pretend(root: Path, code: int = 0) -> list[str]:
    """Return settings for a run of four steps whose ranks only pretend to train, and end with ``code``."""
    rank = root / "rank.py"
    text = _RANK.format(python=sys.executable, pace=0, saves=False, stops=True)
    rank.write_text(text.replace('"code": 0', f'"code": {code}') + f"sys.exit({code})\n")
    rank.chmod(0o755)
    settings = {
        "profile.paths.runs": str(root / "runs"), "profile.rank_python": str(rank),
        "profile.recovery.failures_without_progress": "1", "profile.recovery.backoff_seconds": "1",
        "schedule.train_iters": "4", "checkpoint.save_interval": "2",
    }  # fmt: skip
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def test_a_run_that_is_not_done_ends_with_1_and_its_reason(tmp_path: Path) -> None:
    done = seatrial("converge", NANO, "--no-gate", "a test of the ending", *pretend(tmp_path, code=1))
    assert done.returncode == 1, done.stdout + done.stderr
    (folder,) = map(RunFolder, (tmp_path / "runs").iterdir())
    decision = [e for e in records.read_lines(folder.events) if e["event"] == "decision"][-1]
    assert decision["decision"] == "stop"
    assert decision["reason"] in done.stdout
    assert "step time    unknown" in done.stdout
    assert records.read_json(folder.spec)["admission"]["reason"] == "a test of the ending"
    assert any(e["event"] == "admission" and e["how"] == "none" for e in records.read_lines(folder.events))


def test_a_gate_that_fails_keeps_the_run_from_being_submitted(tmp_path: Path) -> None:
    done = seatrial("converge", NANO, "--after-gate", *pretend(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the run was not submitted: the verdict of its gate is FAIL" in done.stdout
    (folder,) = map(RunFolder, (tmp_path / "runs").iterdir())
    # The run's own steps and saves are not the gate's.
    assert records.read_json(folder.spec)["gate"] == {
        "steps": 100, "save_steps": [50, 100], "learning_ratio": 0.85, "resume_check": False,
    }  # fmt: skip


@pytest.mark.parametrize("keep", [True, False])
def test_a_gate_keeps_its_checkpoints_where_it_is_told_to(keep: bool, tmp_path: Path) -> None:
    done = seatrial("gate", NANO, *pretend(tmp_path), *(["--keep"] if keep else []))
    assert done.returncode == 1, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert records.read_json(folder / "spec.json")["profile"]["recovery"]["gate_checkpoints"] is keep


def test_what_the_gate_measured_is_what_the_run_is_told(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    gate = test_admission.make_gate(runs, "gate-1", "local-cpu")
    records.append_event(gate.events, "verdict", verdict="PASS")  # now
    for step in range(1, 101):
        records.append_line(gate.metrics, {"step": step, "of": 100, "step_time_ms": 12_000.0})
    words = [NANO, "--set", f"profile.paths.runs={runs}"]
    done = seatrial("check", *words, "--kind", "convergence", "--json", "--set", "checkpoint.save_interval=2000")
    found = {(f["severity"], f["field"]): f["rule"] for f in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert found["note", "profile.time_limit_minutes"] == "160 slots of 1.0 h at 12.0 s a step"
    assert "6.7 h (12.0 s a step), and the slot ends after 1.0 h" in found["warning", "checkpoint.save_interval"]
    done = seatrial("converge", *pretend(tmp_path), NANO, "--gate", "gate-1", "--gate-max-age-days", "1")
    assert "12.00 s, measured by gate-1" in done.stdout
    run = next(path for path in runs.iterdir() if "convergence" in path.name)
    admission = records.read_json(run / "spec.json")["admission"]
    assert (admission["how"], admission["gate"], admission["folder"]) == ("gate", "gate-1", str(gate.path))
    assert datetime.fromisoformat(admission["verdict_time"]) <= datetime.now(timezone.utc)


@pytest.mark.train
def test_a_rehearsed_run_reaches_its_target(tmp_path: Path) -> None:
    settings = (f"profile.paths.runs={tmp_path}", "schedule.train_iters=6", "checkpoint.save_interval=4")
    words = [word for setting in settings for word in ("--set", setting)]
    done = seatrial("converge", NANO, "--no-gate", "the path is rehearsed", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 steps x 16 sequences x 64 tokens = 6,144 tokens" in done.stdout
    assert "step 6/6" in done.stdout


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    """Fake Slurm commands on PATH."""
    return on_path(tmp_path, monkeypatch, "scancel", "scontrol", "sacct")


def test_a_run_that_waits_in_vain_is_cancelled(slurm: FakeCommands, tmp_path: Path, capsys: Any) -> None:
    folder = RunFolder.create(tmp_path / "nano-convergence-1")
    records.write_json(folder.spec, {"recipe": "nano", "kind": "convergence", "created": "2027-01-15T08:00:00+00:00"})
    records.append_event(
        folder.events, "submitted", executor="slurm", job_id="8", user="ada", submit_time="2027-01-15T08:00:00+00:00",
    )  # fmt: skip
    slurm.script("squeue", Reply(lines(queue_row(8, folder.path.name, "PENDING", reason="DependencyNeverSatisfied"))))
    assert converge.follow_run(folder, 10) == 1
    assert slurm.calls("scancel")[0][-1] == "8"
    assert "dependency_failed: the gate it waited for did not pass; the run is cancelled" in capsys.readouterr().out
    (decision,) = [e for e in records.read_lines(folder.events) if e["event"] == "decision"]
    assert (decision["decision"], decision["class"]) == ("stop", "dependency_failed")
