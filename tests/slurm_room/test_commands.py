"""Running one command: outcomes, time-outs, retries, secrets."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm.commands import Retry, run, run_patiently
from tests.slurm_room.fakes import FakeCommands, Reply

PATH = {"PATH": os.environ["PATH"]}
STANDBY = Reply(err="slurm_load_jobs error: Slurm backup controller in standby mode\n", rc=1)
TIMED_OUT = Reply(err="slurm_load_jobs error: Socket timed out on send/recv operation\n", rc=1)


def test_an_outcome_is_code_and_both_outputs() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], environment=PATH, timeout_seconds=10)
    assert (done.code, done.stdout, done.stderr, done.ok, done.words) == (3, "out\n", "err\n", False, "err\nout")


def test_the_environment_is_all_it_gets_and_there_is_no_input() -> None:
    done = run(["sh", "-c", "cat; echo ${HOME:-none}"], environment=PATH, timeout_seconds=10)
    assert done.stdout == "none\n"


def test_output_that_is_no_text_does_no_harm() -> None:
    done = run(["sh", "-c", r"printf '\377\0x'"], environment=PATH, timeout_seconds=10)
    assert done.stdout == "�\0x"


def test_a_missing_command_is_named() -> None:
    with pytest.raises(SeatrialError, match="there is no command 'squeue' here"):
        run(["squeue"], environment={"PATH": "/nonexistent"}, timeout_seconds=1)


def test_a_command_of_that_name_that_cannot_run_is_told(tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("no program")
    with pytest.raises(SeatrialError, match="cannot start 'squeue'"):
        run(["squeue"], environment={"PATH": str(tmp_path)}, timeout_seconds=1)


def test_a_time_out_is_an_outcome_and_leaves_no_child() -> None:
    began = time.monotonic()
    child = f"sleep 61.{os.getpid()}"  # nobody else's
    done = run(["sh", "-c", f"echo begun; {child} & sleep 62"], environment=PATH, timeout_seconds=0.3)
    assert done.timed_out and not done.ok and done.passes and done.stdout == "begun\n"
    assert "no answer within 0 s; it said: begun" in done.words and time.monotonic() - began < 3
    deadline = time.monotonic() + 3
    while _running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _running(child)


def _running(command: str) -> bool:
    wanted = command.replace(" ", "\0").encode() + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False


def test_a_secret_is_no_argument_and_is_not_shown() -> None:
    environment = PATH | {"WANDB_API_KEY": "0123456789abcdef"}
    with pytest.raises(SeatrialError, match="holds the value of WANDB_API_KEY") as caught:
        run(["echo", "--export=K=0123456789abcdef"], environment=environment, timeout_seconds=1)
    assert "0123456789abcdef" not in str(caught.value)
    done = run(["sh", "-c", "echo $WANDB_API_KEY; exit 1"], environment=environment, timeout_seconds=5)
    assert done.stdout == "<WANDB_API_KEY>\n" and "0123" not in done.words


@pytest.mark.parametrize(
    ("replies", "only_once", "code", "calls"),
    [
        ([Reply("x\n")], False, 0, 1),
        ([STANDBY, STANDBY, Reply("x\n")], False, 0, 3),
        ([TIMED_OUT, Reply("x\n")], False, 0, 2),
        ([TIMED_OUT, Reply("x\n")], True, 1, 1),
        ([STANDBY, Reply("x\n")], True, 0, 2),
        ([STANDBY], False, 1, 4),
        ([Reply(err="Invalid user\n", rc=1)], False, 1, 1),
        ([Reply(rc="killed")], False, -9, 1),
    ],
)  # fmt: skip
def test_retries(fake: FakeCommands, replies: list[Reply], only_once: bool, code: int, calls: int) -> None:
    fake.script("squeue", *replies)
    done = run_patiently(
        ["squeue"], environment={"PATH": f"{fake.bin}:{os.environ['PATH']}"}, timeout_seconds=10,
        retry=Retry(attempts=4), only_once=only_once, sleep=lambda _: None,
    )  # fmt: skip
    assert (done.code, len(fake.calls("squeue"))) == (code, calls)


def test_waits_double_up_to_a_bound_and_are_spread() -> None:
    retry = Retry(attempts=6, first=1.0, most=5.0)
    assert list(retry.waits(lambda: 0.0)) == [1, 2, 4, 5, 5]
    assert list(retry.waits(lambda: 0.5))[:2] == [1.25, 2.5]
