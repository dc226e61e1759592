"""`seatrial tend` as a user, or cron, meets it: exit codes, short output, and runs on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.local_job import look, supervisor
from tests.cli.test_converge import NANO
from tests.cli.test_converge import pretend as failing
from tests.cli.test_verbs import ACCOUNTING_DOWN, CONTROL_DOWN, QUEUE_DOWN, SPEC, slurm_run
from tests.cli.verbs import REPO, until, verb
from tests.slurm_room.fakes import FakeCommands, Reply, account_row, lines, on_path, queue_row

# Two at once are two processes; those of the tests do not wait until Slurm could have brought a job back.
AT_ONCE = (
    "import sys; from pathlib import Path; from seatrial.run.layout import RunFolder\n"
    "from seatrial.slurm.client import Slurm; from seatrial.slurm.tend import Patience, tend\n"
    "(one,) = tend([RunFolder(Path(sys.argv[1]))], Slurm(), patience=Patience(fresh=5, grace=0, silence=0, still=0))\n"
    "print(one.done, one.needs_person, one.words)"
)


def two_at_once(folder: RunFolder) -> list[str]:
    """Tend a run from two processes at the same time; return what each says of it."""
    both = [
        subprocess.Popen([sys.executable, "-c", AT_ONCE, str(folder.path)], cwd=REPO, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    return [process.communicate(timeout=600)[0].strip() for process in both]


def events(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return [event for event in records.read_lines(folder.events) if event["event"] == name]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    """Fake Slurm commands on PATH."""
    return on_path(tmp_path, monkeypatch, "scancel", "scontrol", "sbatch")


def some_runs(root: Path, count: int) -> Path:
    """Make runs that were submitted as jobs 1, 2 and so on; return their folder."""
    for n in range(1, count + 1):
        folder = slurm_run(root / "runs", f"run-{n}", n)
        records.write_json(folder.spec, {**SPEC, "profile": {"executor": "slurm"}, "fields": {}})
    return root / "runs"


def test_a_folder_of_runs_in_a_few_lines(slurm: FakeCommands, tmp_path: Path) -> None:
    runs = some_runs(tmp_path, 4)
    held = queue_row(2, "run-2", "PENDING", reason="JobHeldAdmin", started="N/A")
    ends = queue_row(1, "run-1", "COMPLETING")
    slurm.script("squeue", Reply(lines(ends, held)))
    slurm.script("sacct", Reply(lines(account_row(3, "run-3", "CANCELLED"), account_row(4, "run-4", "COMPLETED"))))
    records.append_event(RunFolder(runs / "run-4").events, "decision", decision="done", exit_code=0, reason="complete")
    done = verb("tend", "--runs", str(runs))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "! run-2: job 2 waits in vain: an administrator holds it: ask why",
        "4 runs: 1 for a person, 3 with nothing to do",
    ]
    assert len(verb("tend", "--runs", str(runs), "--verbose").stdout.splitlines()) == 5
    one = verb("tend", "--runs", str(runs), "run-3")
    assert (one.returncode, one.stdout.splitlines()[0]) == (
        0, "- run-3: a person cancelled job 3: seatrial requeue RUN brings it back",
    )  # fmt: skip
    answer = json.loads(verb("tend", "--runs", str(runs), "--json", "--dry-run").stdout)
    assert (answer["dry_run"], answer["counts"]) == (True, {"nothing": 3, "person": 1})
    assert {one["run"]: one["needs_person"] for one in answer["runs"]}["run-2"] is True
    assert not slurm.calls("sbatch") and not slurm.calls("scancel")


def test_without_answers_nothing_is_done(slurm: FakeCommands, tmp_path: Path) -> None:
    runs = some_runs(tmp_path, 2)
    for name, reply in (("squeue", QUEUE_DOWN), ("sacct", ACCOUNTING_DOWN), ("scontrol", CONTROL_DOWN)):
        slurm.script(name, reply)
    done = verb("tend", "--runs", str(runs))
    assert done.returncode == 0, "cron need not wake anybody"
    assert "? 2 runs, first run-" in done.stdout and "Unable to contact slurm controller" in done.stdout
    assert not slurm.calls("sbatch")


def test_no_runs_and_no_such_run(tmp_path: Path) -> None:
    assert verb("tend", cwd=tmp_path).stdout == "0 runs\n"
    assert verb("tend", "nemo", cwd=tmp_path).returncode == 2


@pytest.fixture
def killed(tmp_path: Path) -> RunFolder:
    """A run on this machine whose supervisor was killed in its first attempt, with its ranks."""
    rank = failing(tmp_path, code=1)
    (tmp_path / "rank.py").write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    with (tmp_path / "submitted").open("w") as stream:  # no pipe: the run inherits it and holds it to its end
        words = [sys.executable, "-m", "seatrial", "converge", NANO, "--no-gate", "a test", "--detach", *rank]
        assert subprocess.run(words, cwd=REPO, stdout=stream, stderr=stream).returncode == 0
    folder = RunFolder(next((tmp_path / "runs").iterdir()))
    until(lambda: events(folder, "ranks_started"), "its ranks")
    pid = until(lambda: supervisor(folder.path, look()), "its supervisor")
    os.kill(pid, signal.SIGKILL)
    for rank_pid in events(folder, "ranks_started")[0]["pids"]:
        os.kill(rank_pid, signal.SIGKILL)
    until(lambda: supervisor(folder.path, look()) is None, "its end")
    (tmp_path / "rank.py").write_text(f"#!{sys.executable}\nimport sys\nsys.exit(1)\n")  # what starts now fails
    return folder


def test_a_run_on_this_machine_is_started_again_once(killed: RunFolder) -> None:
    until(lambda: not any(str(killed.path) in " ".join(c) for c in look().commands.values()), "no process of it")
    before = killed.events.read_bytes()
    done = verb("tend", str(killed.path))
    assert (done.returncode, "just now: it may come back by itself" in done.stdout) == (0, True), done.stdout
    assert killed.events.read_bytes() == before
    said = two_at_once(killed)
    assert sum("True False started again on this machine" in words for words in said) == 1, said
    first, second = events(killed, "submitted")
    assert (second["executor"], second["by"], second["replaces"]) == ("local", "tend", first["job_id"])
    assert [event["action"] for event in events(killed, "tended")] == ["start"]
    assert not events(killed, "requeue_requested")
    decision = until(lambda: [d for d in events(killed, "decision") if d["decision"] == "stop"], "its end")[0]
    # The attempt that was lost counts: the profile allows one failure without a newer checkpoint, or the same twice.
    assert decision["class"] in ("no_progress", "crash_loop", "unknown"), decision
    assert records.read_json(killed.attempt(0).record)["decision"]["action"] == "restart"
    until(lambda: events(killed, "supervisor_ended"), "its supervisor's end")
    assert verb("tend", str(killed.path)).stdout.startswith("- ")
    assert len(events(killed, "submitted")) == 2
