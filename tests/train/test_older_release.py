"""megatron-core 0.18.2, in an environment of its own: the same training tests, and every recipe's rehearsed gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from seatrial.spec.recipe import recipe_names
from tests.environments import gates
from tests.environments.build import REPO, build

pytestmark = [pytest.mark.campaign, pytest.mark.train]
ENVIRONMENT, RELEASE = "megatron-core-0.18", "0.18.2"


def test_the_training_tests_pass_there() -> None:
    words = [
        "-q", "-p", "no:cacheprovider", "-m", "train and not campaign", "tests/train", "tests/recipes",
        "tests/spec/test_schema.py",
        # What has no argument is Megatron's own default: the tables of that are the newer release's.
        "-k", "not own_default and not only_bridge",
    ]  # fmt: skip
    done = subprocess.run([str(build(ENVIRONMENT)), "-m", "pytest", *words], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipe_passes_its_rehearsed_gate_there(recipe: str, tmp_path: Path) -> None:
    folder, _ = gates.passed(ENVIRONMENT, recipe, tmp_path)
    assert {event["versions"]["megatron_core"] for event in gates.evidence(folder)} == {RELEASE}
