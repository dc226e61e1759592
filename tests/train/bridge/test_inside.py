"""Runs ``inside/``, the tests that import Megatron-Bridge, in its environment."""

from __future__ import annotations

import subprocess

import pytest

from tests.environments.build import build
from tests.train.bridge.resolving import ENVIRONMENT, ROOT

pytestmark = pytest.mark.campaign


def test_the_tests_of_its_parts_pass_there() -> None:
    words = ["-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/train/bridge/inside"]
    done = subprocess.run([str(build(ENVIRONMENT)), *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "passed" in done.stdout.splitlines()[-1]
