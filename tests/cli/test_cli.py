"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
NANO = "nemotron_3_nano_gb200"
OK_LOG = REPO / "tests" / "judge" / "logs" / "ok100.log"


def seatrial(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command; its home is the test's own."""
    return subprocess.run(
        [sys.executable, "-m", "seatrial", *words],
        cwd=cwd or REPO,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("command", [[], ["gate"], ["render"], ["check"], ["verdict"]])
def test_help(command: list[str]) -> None:
    done = seatrial(*command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["render", NANO, "--profile", "gb200-8gpu"],
        ["check", NANO, "--profile", "local-cpu"],
        ["verdict", "--log", str(OK_LOG)],
    ],
)
def test_no_torch_on_the_login_node(words: list[str]) -> None:
    code = (
        "import sys\nfrom seatrial.cli.main import main\nsys.argv = ['seatrial', *" + repr(words) + "]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "assert not {'torch', 'megatron', 'numpy'} & set(sys.modules), 'a heavy import'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_render_forms() -> None:
    data = json.loads(seatrial("render", NANO, "--profile", "gb200-8gpu", "--format", "json").stdout)
    lines = seatrial("render", NANO, "--profile", "gb200-8gpu", "--format", "args").stdout.splitlines()
    assert data["kind"] == "gate"
    assert {"key": "schedule.train_iters", "recipe": 39735, "value": 100}.items() <= next(
        c for c in data["changes"] if c["key"] == "schedule.train_iters"
    ).items()
    assert "--moe-flex-dispatcher-backend hybridep" in lines
    assert "--train-iters 100" in lines
    assert not any(line.startswith("--save ") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gate", "nemotron_3_nano_gb20"], "did you mean 'nemotron_3_nano_gb200'?"),
        (["gate"], "no recipe named"),
        (["gate", NANO, "--profile", "local-gpu"], "did you mean 'local-cpu'?"),
        (["gate", NANO, "--set", "model.hiden_size=4"], "'hidden_size'"),
        (["gate", NANO, "--set", "model.hidden_size=wide"], "whole number"),
        (["gate", NANO, "--set", "model.hidden_size"], "KEY=VALUE"),
        (["gate", NANO, "--set", "profile.gpus_per_node=3"], "error"),
        (["gate", NANO, "--set", "parallel.expert_model_parallel_size=1"], "expert_model_parallel_size"),
        (["gate", NANO, "--set", "data.data_path=[/no/such/data]"], "/no/such/data"),
        (["gate", "none.yaml"], "none.yaml: cannot read the file"),
        (["gate", NANO, "--profile", "none.yaml"], "none.yaml: cannot read the file"),
        (["verdict"], "--log"),
        (["verdict", "no-such-run"], "no-such-run"),
        (["verdict", "/"], "no run '/'"),
        (["verdict", "a/../b*"], "no run"),
        (["verdict", "--log", "no-such.log"], "no-such.log"),
        (["verdict", "--log", "Makefile"], "Makefile"),
        (["render", NANO, "--kind", "gates"], "gates"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_mistake_is_one_message_and_no_run_folder(words: list[str], said: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    if words[0] == "gate":
        words = [*words, "--set", f"profile.paths.runs={runs}"]
    done = seatrial(*words, cwd=tmp_path if words[-1] != "Makefile" else REPO)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not runs.exists()


def test_a_missing_megatron_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "gone = ('torch', 'megatron')\n"
        "importlib.util.find_spec = lambda name, package=None: None if name in gone else found(name, package)\n"
    )
    runs = tmp_path / "runs"
    for words in (["gate", NANO, "--set", f"profile.paths.runs={runs}"], ["check", NANO, "--deep"]):
        done = seatrial(*words, PYTHONPATH=str(tmp_path))
        assert done.returncode == 2
        assert "needs torch, megatron-core" in done.stderr
        assert "seatrial[train]" in done.stderr
        assert "Traceback" not in done.stderr
    assert not runs.exists()


def test_check_as_json() -> None:
    done = seatrial("check", NANO, "--set", "schedule.global_batch_size=7", "--json")
    assert done.returncode == 2
    data = json.loads(done.stdout)
    assert data["ok"] is False
    finding = next(f for f in data["findings"] if f["severity"] == "error")
    assert finding["field"] == "schedule.global_batch_size"


@pytest.mark.parametrize(("log", "code", "verdict"), [("ok100", 0, "PASS"), ("nan", 1, "FAIL"), ("exit60", 1, "FAIL")])
def test_verdict_of_a_log(log: str, code: int, verdict: str) -> None:
    done = seatrial("verdict", "--log", str(OK_LOG.with_stem(log)), "--json")
    assert done.returncode == code
    data = json.loads(done.stdout)
    assert data["verdict"] == verdict
    assert data["rules"]
