"""`seatrial nodes`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seatrial.cli.main import app
from seatrial.errors import SeatrialError

P = ["--profile", "gb200-8gpu"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def nodes(runs: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["nodes", "--runs", str(runs), *words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def listed(runs: Path) -> list[dict[str, Any]]:
    profiles = json.loads(nodes(runs, "--json"))["profiles"]
    assert [one["profile"] for one in profiles] in ([], ["gb200-8gpu"])
    return [dict(node) for one in profiles for node in one["nodes"]]


def test_nothing_is_on_record(runs: Path) -> None:
    runs.mkdir()
    assert "no node has failed" in nodes(runs)
    assert not list(runs.iterdir())


def test_a_node_is_left_out_and_let_back(runs: Path) -> None:
    assert "GPU 2" in nodes(runs, *P, "--exclude", "n3", "--reason", "GPU 2 is gone", "--days", "2")
    (node,) = listed(runs)
    assert (node["node"], node["why"], node["failures"]) == ("n3", "GPU 2 is gone", 0)
    assert node["excluded_until"]
    nodes(runs, *P, "--release", "n3")
    (node,) = listed(runs)
    assert node["excluded_until"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--exclude", "n3", "--reason", "x"], "belong to a profile"),
        ([*P, "--exclude", "n3"], "needs a reason"),
        ([*P, "--exclude", "n3,n4", "--reason", "x"], "not the name of a node"),
        ([*P, "--release", ""], "not the name of a node"),
        ([*P, "--exclude", "n3", "--release", "n3", "--reason", "x"], "at once"),
        ([*P, "--release", "n9"], "n9 is not left out"),
        (["--profile", "gb200-8gpus", "--release", "n3"], "gb200-8gpus"),
        (["--reason", "x"], "are those of an exclusion"),
    ],
)
def test_mistakes_change_nothing(runs: Path, words: list[str], said: str) -> None:
    with pytest.raises(SeatrialError, match=said):
        nodes(runs, *words)
    assert not runs.exists()
