"""Messages over real sockets and real commands, and a real supervisor whose hooks are well, broken, or hang."""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.supervise import exit_codes, notify_message
from seatrial.supervise.control import Control
from seatrial.supervise.job import Job
from seatrial.supervise.job_watch import JobWatch
from seatrial.supervise.journal import Journal
from seatrial.supervise.notify import FAILED, Channel, Notifier, take_secret
from seatrial.supervise.notify_ways import Command, Webhook
from seatrial.supervise.requeue import resubmit
from tests.run.test_checkpoint import make as make_checkpoint
from tests.run.test_checkpoint import torchs_names  # noqa: F401 - the look-alikes need their names
from tests.slurm_room.fakes import Reply, on_path
from tests.supervise.harness import PROGRAM, STEPS, events, make_run, supervise
from tests.test_rooms import old_python

SECRET = "T0123-verysecret"
MESSAGE = {"text": "it <runs>", "event": "start"}


class Hook(BaseHTTPRequestHandler):
    """Answers with the codes that its server is given, the last one again and again; keeps what it was sent."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((self.path, json.loads(body)))
        answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        if answer == "hang":
            server.over.wait(30)
            return
        code = int(answer)
        self.send_response(code, f"no {SECRET}")
        if 300 <= code < 400:
            self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere/{SECRET}")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hook(*answers: str) -> Iterator[Any]:
    """Give a server with ``address`` and ``got``."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.answers, server.got, server.over = list(answers), [], threading.Event()
    server.address = f"http://127.0.0.1:{server.server_port}/services/{SECRET}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answers", "problem", "tries"),
    [
        (["200"], None, 1),
        (["503", "200"], None, 2),
        (["429", "204"], None, 2),
        (["500"], "HTTP 500 Internal Server Error", 2),
        (["404"], "HTTP 404 Not Found", 1),
        (["302"], "HTTP 302 Found; a redirect is not followed", 1),
        (["307"], "HTTP 307 Temporary Redirect; a redirect is not followed", 1),
        (["599"], "HTTP 599", 2),
        (["hang"], "no answer within 0.3 s", 2),
        (["hang", "200"], None, 2),
    ],
)  # fmt: skip
def test_webhook(answers: list[str], problem: str | None, tries: int) -> None:
    with hook(*answers) as server:
        assert Webhook("HOOK", f" {server.address}\n", seconds=0.3, wait=0.01).send(MESSAGE) == problem
        assert server.got == [(f"/services/{SECRET}", {"text": "it &lt;runs&gt;"})] * tries


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Garbage(socketserver.BaseRequestHandler):
    """Answers with what is no HTTP."""

    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(f"hello {SECRET}\r\n".encode())


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("", "the environment variable HOOK is not set in the job"),
        (f"file:///etc/{SECRET}", "the environment variable HOOK holds no http or https address"),
        (SECRET, "the environment variable HOOK holds no http or https address"),
        (f"http://[{SECRET}/", "the environment variable HOOK holds no http or https address"),
        (f"http://127.0.0.1:{free_port()}/{SECRET}", "Connection refused"),
        (f"http://{SECRET}.invalid/", "its host's name is not known here"),
        (f"http://me:{SECRET}@127.0.0.1/", "InvalidURL"),
        (f"http://127.0.0.1/a b {SECRET}", "InvalidURL"),
        (f"http://127.0.0.1:{free_port()}/é{SECRET}", "UnicodeEncodeError"),
    ],
)  # fmt: skip
def test_addresses_of_no_use_are_never_shown(address: str, problem: str) -> None:
    found = Webhook("HOOK", address, wait=0.01).send(MESSAGE)
    assert found == problem
    assert SECRET not in str(found)


def test_what_is_no_http_is_never_shown() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Garbage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/{SECRET}"
        assert Webhook("HOOK", address, wait=0.01).send(MESSAGE) == "BadStatusLine"
        tls = Webhook("HOOK", address.replace("http:", "https:"), wait=0.01).send(MESSAGE)
        assert tls is not None and tls.startswith("SSL")
        server.shutdown()


def test_a_variable_of_no_use_is_told_of_once() -> None:
    webhook = Webhook("HOOK", "")
    assert [bool(webhook.send(MESSAGE)) for _ in range(3)] == [True, False, False]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def sh(folder: RunFolder, script: str, seconds: float = 10) -> Command:
    return Command(["sh", "-c", script], folder, {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/code"}, seconds)


def test_command_gets_the_message_and_the_folder(folder: RunFolder) -> None:
    script = 'cat > got; echo "$SEATRIAL_RUN_FOLDER $PYTHONPATH" > told'
    assert sh(folder, script).send(MESSAGE) is None
    assert json.loads((folder.path / "got").read_text()) == MESSAGE
    assert (folder.path / "told").read_text() == f"{folder.path} \n"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 1", "sh ended with exit code 1"),
        ("kill -9 $$", "sh ended with signal 9"),
        ("head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2", None),
        ("exec <&-; sleep 0.1", None),  # reads nothing
        ("sleep 60 & wait", "sh had not ended after 0.5 s"),
    ],
)  # fmt: skip
def test_commands_that_fail(folder: RunFolder, script: str, problem: str | None) -> None:
    seconds = 0.5 if "sleep 60" in script else 10
    assert sh(folder, script, seconds).send({"text": "x" * 200_000}) == problem


def test_a_program_that_is_not_there(folder: RunFolder) -> None:
    command = Command(["/nowhere/tell"], folder, {})
    assert command.send(MESSAGE) == "cannot start /nowhere/tell: No such file or directory"


def test_what_a_command_started_is_ended_with_it(folder: RunFolder) -> None:
    sh(folder, "sleep 60 & echo $! > child; wait", 0.5).send(MESSAGE)
    child = int((folder.path / "child").read_text())
    wait_until(lambda: not Path(f"/proc/{child}").exists() or "State:\tZ" in Path(f"/proc/{child}/status").read_text())


def wait_until(condition: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def notifier(folder: RunFolder, *channels: Channel, told: tuple[str, ...] = notify_message.EVENTS) -> Notifier:
    journal = Journal(folder)
    run = notify_message.run_of({"run_id": "r", "kind": "gate", "profile": {}}, str(folder.path), 4, {}, "here")
    made = Notifier(run, folder, journal, told, channels)
    journal.listener = made.hear
    return made


def decisions(count: int) -> list[dict[str, Any]]:
    return [{"event": "decision", "decision": "restart", "action": "restart", "class": str(n)} for n in range(count)]


def in_time(seconds: float) -> Callable[[], float]:
    until = time.monotonic() + seconds
    return lambda: until


def test_messages_arrive_in_order_and_by_every_way(folder: RunFolder) -> None:
    first: list[Any] = []
    second: list[Any] = []
    made = notifier(folder, Channel("a", lambda m: first.append(m["class"])),
                    Channel("b", lambda m: second.append(m["class"])))  # fmt: skip
    for event in decisions(20):
        made.hear(event)
    made.finish(in_time(10))
    assert first == second == [str(n) for n in range(20)]
    assert records.read_objects(folder.events) == []


def test_only_what_is_asked_for_is_told(folder: RunFolder) -> None:
    got: list[Any] = []
    made = notifier(folder, Channel("a", lambda m: got.append(m["event"])), told=("stop",))
    for event in [*decisions(2), {"event": "decision", "decision": "stop", "action": "stop"}]:
        made.hear(event)
    made.finish(in_time(10))
    assert got == ["stop"]


def test_a_way_that_hangs_holds_up_nothing(folder: RunFolder) -> None:
    over, got = threading.Event(), []

    def hang(_: Any) -> None:
        over.wait(30)

    made = notifier(folder, Channel("slow", hang, over.set), Channel("quick", lambda m: got.append(m["class"])))
    began = time.monotonic()
    for event in decisions(40):
        made.hear(event)
    assert time.monotonic() - began < 1
    wait_until(lambda: len(got) >= 30)  # the queue is bounded for the quick one, too
    made.finish(in_time(0.3))
    assert time.monotonic() - began < 5
    failed = [(event["how"], event["reason"]) for event in records.read_objects(folder.events)]
    assert failed.count(("slow", "32 messages wait already")) >= 6
    assert failed[-1] == ("slow", "it was not done when the supervisor had to end")
    assert not any(how == "quick" and "not done" in reason for how, reason in failed)


def test_what_breaks_in_between_is_on_record_and_goes_no_further(folder: RunFolder) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError(SECRET)

    made = notifier(folder, Channel("a", broken))
    made.hear({"event": "decision", "decision": "stop", "exclude": 7, "action": "restart"})
    made.hear({"event": "decision", "decision": "restart", "action": "restart", "exclude": 7})
    made.finish(in_time(10))
    failed = [(event["how"], event["reason"]) for event in records.read_objects(folder.events)]
    assert sorted(failed) == [("a", "RuntimeError"), ("message", "TypeError")]


def told_run(tmp_path: Path, fate: dict[str, Any], kind: str = "gate", **notify: Any) -> RunFolder:
    folder = make_run(tmp_path, fate, kind=kind)
    spec = records.read_json(folder.spec)
    spec["profile"]["notify"] = notify
    records.write_json(folder.spec, spec)
    make_checkpoint(folder.checkpoints, STEPS)
    return folder


def assert_no_secret(folder: RunFolder, log: str) -> None:
    assert SECRET not in log
    for path in folder.path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def program(tmp_path: Path) -> list[str]:
    """A rank command that leaves its environment behind, then is the test rank."""
    script = tmp_path / "rank.sh"
    script.write_text(f'env > "{tmp_path}/environment-$RANK"\nexec "{sys.executable}" "{PROGRAM}" "$@"\n')
    return ["sh", str(script)]


def test_a_run_tells_of_its_start_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook("200") as server:
        monkeypatch.setenv("HOOK", server.address)
        command = ["sh", "-c", f"cat >> {tmp_path}/news; env > {tmp_path}/environment-hook"]
        folder = told_run(tmp_path, {}, "convergence", webhook="HOOK", command=command)
        code, log = supervise(folder, program=program(tmp_path), python=old_python() or sys.executable)
        assert code == exit_codes.DONE
        texts = [body["text"] for _, body in server.got]
    assert len(texts) == 2
    assert "test-convergence-run (a rehearsal): attempt 0 started on 1 node" in texts[0]
    assert "done, verdict INCONCLUSIVE, at step 4 of 4, goodput " in texts[1]
    news = [json.loads(line) for line in (tmp_path / "news").read_text().splitlines()]
    assert [(one["event"], one["step"]) for one in news] == [("start", None), ("done", STEPS)]
    assert 0 < news[1]["goodput"] <= 1
    assert_no_secret(folder, log)
    for path in tmp_path.glob("environment-*"):
        assert "HOOK" not in path.read_text(), path
    assert len(list(tmp_path.glob("environment-*"))) == 4
    assert records.read_objects(folder.events)[-1]["event"] == "supervisor_ended"
    # Slurm may start the job of a run that has ended: there is no news then.
    with hook("200") as server:
        monkeypatch.setenv("HOOK", server.address)
        assert supervise(folder)[0] == exit_codes.DONE
        assert server.got == []


def test_a_gate_tells_its_verdict_and_a_stop_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = told_run(tmp_path, {"all": {"steps": 2, "exit": 3, "message": f"token {'x' * 9}"}},
                      command=["sh", "-c", f"cat >> {tmp_path}/news"])  # fmt: skip
    supervise(folder)
    news = [json.loads(line) for line in (tmp_path / "news").read_text().splitlines()]
    assert [one["event"] for one in news] == ["start", "stop"]
    assert (news[1]["verdict"], news[1]["exit_code"], news[1]["step"]) == ("FAIL", 3, 2)
    assert "a gate is not repeated" in news[1]["reason"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [(["500"], "HTTP 500 Internal Server Error"), (["302"], "HTTP 302 Found; a redirect is not followed"),
     (["hang"], "it was not done when the supervisor had to end")],
    ids=["500", "302", "hang"],
)  # fmt: skip
def test_a_broken_webhook_hurts_no_run(
    answers: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook(*answers) as server:
        monkeypatch.setenv("HOOK", server.address)
        folder = told_run(tmp_path, {}, "convergence", webhook="HOOK", events=["done"])
        quick = "import seatrial.supervise.main as m; m._TELL_SECONDS = 1.0"
        began = time.monotonic()
        code, log = supervise(folder, before=quick.replace("1.0", "4.0") if "500" in answers else quick)
    assert code == exit_codes.DONE
    assert time.monotonic() - began < 15
    assert [(event["how"], event["reason"]) for event in events(folder, FAILED)] == [("webhook", reason)]
    assert f"nobody was told by the webhook: {reason}" in log
    assert_no_secret(folder, log)


def test_a_missing_variable_is_told_of_once(tmp_path: Path) -> None:
    folder = told_run(tmp_path, {}, "convergence", webhook="HOOK_UNSET")
    assert supervise(folder)[0] == exit_codes.DONE
    (failed,) = events(folder, FAILED)
    assert failed["reason"] == "the environment variable HOOK_UNSET is not set in the job"


def test_a_hanging_command_is_ended_with_the_supervisor(tmp_path: Path) -> None:
    folder = told_run(tmp_path, {}, "convergence", command=["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"],
                      events=["done"])  # fmt: skip
    code, _ = supervise(folder, before="import seatrial.supervise.main as m; m._TELL_SECONDS = 1.0")
    assert code == exit_codes.DONE
    (failed,) = events(folder, FAILED)
    assert failed["reason"] == "it was not done when the supervisor had to end"
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_the_secret_is_taken_out_of_the_environment() -> None:
    environment = {"HOOK": "x", "A": "b"}
    assert take_secret({}, environment) == {}  # an old run's profile names nobody
    assert take_secret({"notify": {"webhook": "HOOK"}}, environment) == {"HOOK": "x"}
    assert environment == {"A": "b"}


def test_a_new_job_of_the_run_gets_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = on_path(tmp_path, monkeypatch)
    fakes.script("sbatch", Reply("99\n"))
    folder = told_run(tmp_path, {}, webhook="HOOK")
    (folder.path / "submitit").mkdir()
    (folder.path / "submitit" / "1_submitted.pkl").touch()
    job = Job(folder, records.read_json(folder.spec), Journal(folder), Control(),
              watch=JobWatch({"SLURM_JOB_ID": "1"}), withheld={"HOOK": SECRET})  # fmt: skip
    assert SECRET not in repr(job)
    assert resubmit(job).done
    assert fakes.environment("sbatch")["HOOK"] == SECRET
    assert_no_secret(folder, "")
