"""The verbs as a user meets them: on real local runs, and on Slurm runs with scripted Slurm commands."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.local_job import look, supervisor
from tests.cli.verbs import COMMAND, REPO, start, until, verb
from tests.slurm_room.fakes import FakeCommands, Reply, account_row, lines, on_path, queue_row

SPEC = {"recipe": "nano", "kind": "convergence", "created": "2027-01-15T08:00:00+00:00", "provenance": {"host": "a"}}
ACCOUNTING_DOWN = Reply(err="sacct: error: slurm_persist_conn_open: Connection refused\n", rc=1)
QUEUE_DOWN = Reply(err="squeue: error: Unable to contact slurm controller (connect failure)\n", rc=1)
CONTROL_DOWN = Reply(err="scontrol: error: Unable to contact slurm controller (connect failure)\n", rc=1)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    """Fake Slurm commands on PATH."""
    return on_path(tmp_path, monkeypatch, "scancel", "scontrol")


def slurm_run(runs: Path, name: str, job: int) -> RunFolder:
    runs.mkdir(exist_ok=True)
    folder = RunFolder.create(runs / name)
    records.write_json(folder.spec, SPEC)
    records.append_event(
        folder.events, "submitted", executor="slurm", job_id=str(job), cluster=None, user="ada",
        submit_time="2027-01-15T08:00:00+00:00",
    )  # fmt: skip
    return folder


def rows(*words: str) -> dict[str, dict[str, Any]]:
    done = verb("status", "--json", *words)
    assert done.returncode == 0, done.stderr
    return {row["run"]: row for row in json.loads(done.stdout)["runs"]}


# -- on Slurm, with scripted answers


def test_status_asks_slurm_once_for_all_runs(slurm: FakeCommands, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for n in range(1, 6):
        slurm_run(runs, f"run-{n}", n)
    held = queue_row(2, "run-2", "PENDING", reason="JobHeldAdmin", started="N/A")
    slurm.script("squeue", Reply(lines(queue_row(1, "run-1", "RUNNING"), held)))
    slurm.script("sacct", Reply(lines(*(account_row(n, f"run-{n}", "COMPLETED") for n in (3, 4)))))
    found = rows("--runs", str(runs))
    assert {run: row["state"] for run, row in found.items()} == {
        "run-1": "RUNNING", "run-2": "PENDING", "run-3": "COMPLETED", "run-4": "COMPLETED", "run-5": "UNKNOWN",
    }  # fmt: skip
    assert found["run-2"]["needs_action"] == "an administrator holds it: ask why"
    assert [len(slurm.calls(name)) for name in ("squeue", "sacct", "scancel", "scontrol")] == [1, 1, 0, 0]
    text = verb("status", "--runs", str(runs), "run-2", "run-5").stdout
    assert "an administrator holds it" in text
    assert "run-1" not in text


def test_a_failed_question_is_not_a_failed_run(slurm: FakeCommands, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    slurm_run(runs, "run-1", 1)
    slurm.script("squeue", QUEUE_DOWN)
    slurm.script("sacct", ACCOUNTING_DOWN)
    slurm.script("scontrol", CONTROL_DOWN)
    row = rows("--runs", str(runs))["run-1"]
    assert (row["state"], row["final"]) == ("UNKNOWN", False)
    assert "Connection refused" in row["reason"]
    done = verb("list", "--runs", str(runs))
    assert "FAILED" not in done.stdout
    assert "UNKNOWN" in done.stdout


def test_without_slurm_the_records_speak(tmp_path: Path) -> None:
    folder = slurm_run(tmp_path / "runs", "run-1", 1)
    records.append_line(
        folder.events,
        {"event": "decision", "time": "2027-01-16T00:00:00", "decision": "done", "exit_code": 0, "reason": "all"},
    )
    row = rows("--runs", str(tmp_path / "runs"))["run-1"]
    assert (row["state"], row["source"], row["decision"]) == ("COMPLETED", "run folder", "done")


def test_stop_on_slurm_uses_both_channels(slurm: FakeCommands, tmp_path: Path) -> None:
    folder = slurm_run(tmp_path / "runs", "run-1", 1)
    attempt = folder.new_attempt()
    slurm.script("squeue", Reply(lines(queue_row(1, "run-1", "RUNNING"))))
    slurm.script("sacct", Reply())
    done = verb("stop", "run-1", "--runs", str(tmp_path / "runs"), "--no-wait", "--json")
    assert done.returncode == 0, done.stderr
    asked = "wrote the stop file and sent SIGUSR2 to the supervisor"
    assert json.loads(done.stdout) == {"run": "run-1", "asked": asked, "ended": False, "saved": None}
    assert attempt.stop_file.is_file()
    (call,) = slurm.calls("scancel")
    assert {"--signal=USR2", "--batch", "1"} <= set(call)
    assert [path.name for path in attempt.path.iterdir()] == ["stop"]


def test_stop_cancels_a_job_that_waits(slurm: FakeCommands, tmp_path: Path) -> None:
    slurm_run(tmp_path / "runs", "run-1", 1)
    slurm.script("squeue", Reply(lines(queue_row(1, "run-1", "PENDING", reason="Priority"))))
    slurm.script("sacct", Reply())
    done = verb("stop", "run-1", "--runs", str(tmp_path / "runs"))
    assert done.returncode == 0
    assert "cancelled, there was nothing to save" in done.stdout
    (call,) = slurm.calls("scancel")
    assert call[-1] == "1"
    assert not any("signal" in word for word in call)


@pytest.mark.parametrize(
    ("queue", "code", "said", "cancels"),
    [
        (Reply(lines(queue_row(1, "run-1", "RUNNING"))), 0, "cancelled", 1),
        (Reply(lines(queue_row(1, "run-1", "COMPLETED"))), 0, "ended already", 0),
        # Nobody knows its state: cancelling is still what was asked for.
        (QUEUE_DOWN, 0, "cancelled", 1),
    ],
)
def test_cancel_on_slurm(queue: Reply, code: int, said: str, cancels: int, slurm: FakeCommands, tmp_path: Path) -> None:
    slurm_run(tmp_path / "runs", "run-1", 1)
    slurm.script("squeue", queue)
    slurm.script("sacct", ACCOUNTING_DOWN)
    slurm.script("scontrol", CONTROL_DOWN)
    done = verb("cancel", "run-1", "--runs", str(tmp_path / "runs"))
    assert done.returncode == code, done.stderr
    assert said in done.stdout
    assert len(slurm.calls("scancel")) == cancels


# -- how runs are named


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("run-12", 0, "run-12"),
        ("run-1", 0, "run-1 "),  # an id that is another's prefix is itself
        ("run-", 2, "names 3 runs"),
        ("ruin-12", 2, "did you mean 'run-12'?"),
        ("", 2, "no run ''"),
        ("run-*", 2, "no run"),
        ("[", 2, "no run"),
    ],
)
def test_names(name: str, code: int, said: str, tmp_path: Path) -> None:
    for number in (1, 12, 2):
        slurm_run(tmp_path / "runs", f"run-{number}", number)
    done = verb("status", name, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_is_a_name_and_the_site_file_says_where_runs_lie(own_home: Path, tmp_path: Path) -> None:
    folder = slurm_run(tmp_path / "lustre runs", "run-1", 1)
    assert "run-1" in verb("status", str(folder.path), cwd=tmp_path).stdout
    assert "no run 'run-1'" in verb("status", "run-1", cwd=tmp_path).stderr
    site = own_home / ".config" / "seatrial" / "site.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(f"paths:\n  runs: {tmp_path / 'lustre runs'}\n")
    assert "run-1" in verb("status", "run-1", cwd=tmp_path).stdout
    assert "run-1" in verb("list", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", [["status"], ["list"], ["status", "--json"]])
def test_no_runs(command: list[str], tmp_path: Path) -> None:
    done = verb(*command, cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"runs": []} if "--json" in command else "no runs in runs" in done.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["seatrial", "watch", "run-1"], ["run-1", "run-12"]),
        (["seatrial", "status", "run-2", "run-1"], ["run-1", "run-12"]),
        (["seatrial", "stop", "x"], []),
    ],
)
def test_completion(words: list[str], completed: list[str], tmp_path: Path) -> None:
    for number in (1, 12, 2):
        slurm_run(tmp_path / "runs", f"run-{number}", number)
    asked = {"_SEATRIAL_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    script = Path(sys.executable).with_name("seatrial")  # its name is the variable's
    done = subprocess.run([script], cwd=tmp_path, env=os.environ | asked, capture_output=True, text=True)
    assert sorted(done.stdout.split()) == completed, done.stderr


# -- on real local runs


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunFolder]:
    """A local run of a thousand steps that is at work."""
    folder = start(tmp_path)
    yield folder
    if pid := supervisor(folder.path, look()):
        os.kill(pid, signal.SIGKILL)


def test_stop_saves_and_says_so(running: RunFolder) -> None:
    row = rows(str(running.path))[running.path.name]
    assert (row["state"], row["source"], row["total"]) == ("RUNNING", "process", 10_000)
    assert row["step"] >= 1
    assert row["eta_seconds"] > 0
    done = verb("stop", str(running.path))
    assert done.returncode == 0, done.stdout + done.stderr
    last = list(records.read_lines(running.metrics))[-1]["step"]
    assert f"checkpoint {last} is saved" in done.stdout
    row = rows(str(running.path))[running.path.name]
    assert (row["decision"], row["needs_action"], row["final"]) == ("stop", None, True)
    assert "ended already" in verb("stop", str(running.path)).stdout


def test_stop_tells_that_nothing_was_saved(tmp_path: Path) -> None:
    folder = start(tmp_path, saves=False)
    done = verb("stop", str(folder.path), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["saved"] is False


@pytest.mark.train
def test_stop_saves_what_was_trained(tmp_path: Path) -> None:
    folder = start(tmp_path, trains=True)
    done = verb("stop", str(folder.path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    last = records.read_json(folder.attempt(0).record)["last_step"]
    assert (answer["saved"], answer["checkpoint"]) == (True, last)
    assert (folder.checkpoints / f"iter_{last:07d}").is_dir()


def test_cancel_ends_it_at_once(tmp_path: Path) -> None:
    folder = start(tmp_path, stops=False)
    done = verb("cancel", str(folder.path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == "cancelled"
    assert supervisor(folder.path, look()) is None
    assert records.read_json(folder.attempt(0).record)["exit_code"] == 88
    assert "ended already" in verb("cancel", str(folder.path)).stdout


def test_a_supervisor_that_was_killed_is_not_a_running_one(running: RunFolder) -> None:
    pid = supervisor(running.path, look())
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: rows(str(running.path))[running.path.name]["state"] != "RUNNING", "its end is seen")
    row = rows(str(running.path))[running.path.name]
    assert (row["state"], row["final"]) == ("FAILED", True)
    assert "without a decision" in row["reason"]
    watched = verb("watch", str(running.path))
    assert watched.returncode == 1
    assert "FAIL" in watched.stdout


def test_a_run_of_another_host_is_not_judged_by_this_ones_processes(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    records.write_json(folder.spec, SPEC | {"provenance": {"host": "another"}})
    records.append_event(folder.events, "submitted", executor="local", job_id="1")
    row = rows(str(folder.path))["run-1"]
    assert (row["state"], row["final"]) == ("UNKNOWN", False)
    assert "another" in row["reason"]
    done = verb("cancel", str(folder.path))
    assert done.returncode == 2
    assert "another" in done.stderr


def test_watch_follows_to_the_end_with_the_gates_exit_code(tmp_path: Path) -> None:
    folder = start(tmp_path, steps=30, pace=0.1)
    done = verb("watch", str(folder.path))
    verdict = records.read_json(folder.verdict)["verdict"]
    assert verdict in done.stdout
    assert done.returncode == {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}[verdict]
    for text in ("attempt 0 starts", "step 1/30", "step 20/30", "step 30/30", str(folder.path)):
        assert text in done.stdout
    assert verb("watch", str(folder.path)).returncode == done.returncode


def test_logs(running: RunFolder) -> None:
    name = str(running.path)
    assert "ranks started" in verb("logs", name).stdout
    assert verb("logs", name, "--rank", "last", "-n", "1").stdout.count("] iteration ") == 1
    assert "no log of rank 7" in verb("logs", name, "--rank", "7").stderr
    with subprocess.Popen([*COMMAND, "logs", name, "--rank", "last", "-f"], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        began = time.monotonic()
        seen = [next(line for line in tail.stdout if "] iteration " in line) for _ in range(5)]
        assert len(set(seen)) == 5
        assert verb("stop", name).returncode == 0
        assert "successfully saved checkpoint" in tail.stdout.read()
        assert tail.wait(30) == 0, "it ends with the run"
        assert time.monotonic() - began < 60


# -- on a terminal


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str, columns: int = 100) -> None:
        self.master, inner = pty.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *words], stdin=inner, stdout=inner, stderr=inner, cwd=REPO, start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(inner)
        self.text = ""

    def until(self, text: str, patience: float = 600) -> None:
        end = time.monotonic() + patience
        while text not in self.text:
            assert time.monotonic() < end, f"no {text!r} in {self.text[-2000:]!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                self._read()

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        """Wait for the command's end, reading on; return its exit code."""
        end = time.monotonic() + 600
        while self.process.poll() is None or select.select([self.master], [], [], 0)[0]:
            assert time.monotonic() < end, self.text[-2000:]
            if select.select([self.master], [], [], 0.1)[0] and not self._read():
                break
        os.close(self.master)
        return self.process.wait(600)

    def _read(self) -> bool:
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)


@pytest.mark.parametrize(("keys", "code"), [(b"q", 0), (b"\x03", 130)], ids=["q", "Ctrl-C"])
def test_leaving_watch_leaves_the_run_running(keys: bytes, code: int, running: RunFolder) -> None:
    before = supervisor(running.path, look())
    terminal = Terminal("watch", str(running.path))
    terminal.until("/10000")
    terminal.until("RUNNING")
    terminal.type(keys)
    assert terminal.end() == code
    assert "the run goes on" in terminal.text
    step = list(records.read_lines(running.metrics))[-1]["step"]
    until(lambda: list(records.read_lines(running.metrics))[-1]["step"] > step, "a further step")
    assert supervisor(running.path, look()) == before


def test_watch_on_a_terminal_ends_with_the_run(running: RunFolder) -> None:
    terminal = Terminal("watch", str(running.path))
    terminal.until("/10000")
    assert verb("stop", str(running.path)).returncode == 0
    assert terminal.end() in (1, 3)
    assert "asked to stop" in terminal.text


@pytest.mark.parametrize(("answer", "ended"), [(b"n\r", False), (b"y\r", True)])
def test_cancel_asks_on_a_terminal(answer: bytes, ended: bool, running: RunFolder) -> None:
    terminal = Terminal("cancel", str(running.path))
    terminal.until("without saving?")
    terminal.type(answer)
    assert (terminal.end() == 0) is ended
    assert (supervisor(running.path, look()) is None) is ended


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["status"], 2, "no sandbox here"),
        (["down"], 2, "no sandbox here"),
        (["up", "--help"], 0, "--base-port"),
        (["up", "--nodes=0"], 2, "nodes"),
    ],
)
def test_the_sandbox_is_a_command(words: list[str], code: int, said: str) -> None:
    done = verb("sandbox", *words)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
