"""megatron-core 0.18.2, in an environment of its own: the same training tests, and every recipe's rehearsed gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.spec.recipe import recipe_names
from tests.environments.build import build
from tests.train.harness import ROOT

pytestmark = [pytest.mark.campaign, pytest.mark.train]
RELEASE = "0.18.2"


@pytest.fixture(scope="module")
def python() -> str:
    return str(build("megatron-core-0.18"))


def run(python: str, *words: str) -> str:
    done = subprocess.run([python, "-m", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def test_the_training_tests_pass_there(python: str) -> None:
    said = run(
        python, "pytest", "-q", "-p", "no:cacheprovider", "-m", "train and not campaign", "tests/train",
        "tests/recipes", "tests/spec/test_schema.py",
        # What has no argument is Megatron's own default: the tables of that are the newer release's.
        "-k", "not own_default and not only_bridge",
    )  # fmt: skip
    assert "passed" in said.splitlines()[-1]


@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipe_passes_its_rehearsed_gate_there(recipe: str, python: str, tmp_path: Path) -> None:
    settings = (f"profile.megatron_core={RELEASE}", f"profile.paths.runs={tmp_path}")
    words = [word for setting in settings for word in ("--set", setting)]
    run(python, "seatrial", "gate", recipe, "--profile", "local-cpu", "--resume-check", *words)
    folder = RunFolder(next(tmp_path.iterdir()))
    verdict = records.read_json(folder.verdict)
    assert verdict["verdict"] == "PASS"
    assert {rule["verdict"] for rule in verdict["rules"] if rule["rule"] == "resume check"} == {"PASS"}
    seen = [event for event in records.read_lines(folder.events) if event["event"] == "evidence"]
    assert {event["versions"]["megatron_core"] for event in seen} == {RELEASE}
