"""Megatron's own parser, validation and configuration take the full-size recipes, and say what they do not take."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.train.harness import MEGATRON_CORE, ROOT, changed

pytestmark = pytest.mark.train
pytest.importorskip("megatron.training")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "launchers")}


def full_size(recipe: str, profile: str) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "seatrial.cli.main",
        "render",
        recipe,
        "--kind",
        "gate",
        "--profile",
        profile,
    ]
    command += [
        "--set",
        "data.data_path=[/data/text]",
        "--set",
        f"profile.megatron_core={MEGATRON_CORE}",
        "--format",
        "args",
    ]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True, cwd=ROOT)
    return shlex.split(done.stdout)


def check(tmp_path: Path, arguments: list[str], world_size: int) -> tuple[int, dict[str, Any]]:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"arguments": arguments, "world_size": world_size}))
    command = [sys.executable, "-W", "ignore", "-m", "seatrial.train.deep_check", str(spec)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout.strip(), done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return done.returncode, report


@pytest.mark.parametrize(
    ("recipe", "profile", "world", "batch", "mtp"),
    [
        ("nemotron_3_nano_gb200", "gb200-8gpu", 8, 2, None),
        ("nemotron_3_nano_gb200", "gb200-64gpu", 64, 2, None),
        ("qwen35_35b_a3b_gb200", "gb200-64gpu", 64, 1, 1),
        ("qwen35_9b_gb200", "gb200-64gpu", 64, 2, 1),
    ],
)
def test_megatron_takes_the_recipes(
    tmp_path: Path, recipe: str, profile: str, world: int, batch: int, mtp: int | None
) -> None:
    code, report = check(tmp_path, full_size(recipe, profile), world)
    assert (code, report["ok"]) == (0, True), report
    assert not [finding for finding in report["findings"] if finding["severity"] == "error"]
    assert any("compute capability 10.0" in stood for stood in report["stand_in"])
    seen = report["resolved"]
    assert (seen["arguments.data_parallel_size"], seen["arguments.micro_batch_size"]) == (world, batch)
    assert (seen["arguments.lr_decay_iters"], seen["arguments.start_weight_decay"]) == (48000, 0.033)
    assert seen["model.mtp_num_layers"] == mtp


@pytest.mark.parametrize(
    ("change", "world", "message"),
    [
        ({"no_such_argument": 1}, 8, "unrecognized arguments: --no-such-argument 1"),
        ({"tensor_model_parallel_size": 3}, 8, "world size (8) is not divisible"),
        ({"moe_token_dispatcher_type": "carrier-pigeon"}, 8, "invalid choice"),
    ],
)
def test_what_megatron_refuses_is_a_finding(tmp_path: Path, change: dict[str, Any], world: int, message: str) -> None:
    arguments = changed(full_size("nemotron_3_nano_gb200", "gb200-8gpu"), **change)
    code, report = check(tmp_path, arguments, world)
    assert (code, report["ok"]) == (1, False)
    (finding,) = report["findings"]
    assert finding["severity"] == "error" and message in finding["message"]


@pytest.mark.parametrize("content", ["", "[]", '{"arguments": []}'])
def test_what_is_no_spec_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "spec.json").write_text(content)
    command = [sys.executable, "-m", "seatrial.train.deep_check", str(tmp_path / "spec.json")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("seatrial: ") and "Traceback" not in done.stderr
