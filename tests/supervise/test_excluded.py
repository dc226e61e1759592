"""Nodes that are avoided: never many, not for ever, of one profile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge.exclusions import active, path_for
from seatrial.run import records
from seatrial.supervise.excluded import Excluded, cap

NOW = 1_764_000_000.0


def line(node: Any, days: float, **more: Any) -> dict[str, Any]:
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW + days * 86400))
    return {"node": node, "expires": expires, "reason": "gpu_fault: Xid 79", "run": "r", **more}


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        ([], []),
        ([line("n1", 1), line("n2", 2)], ["n1", "n2"]),
        ([line("n1", -1), line("n2", 2)], ["n2"]),
        ([line("n1", -1), line("n1", 2)], ["n1"]),
        ([line("n1", 2), line("n1", -1)], []),  # let go by a newer line
        ([line("n1", 1), line("n2", 1), line("n1", 2)], ["n2", "n1"]),
        ([line("n1", 0)], []),
        ([None, [], "n1", {}, line(7, 1), line("n1", 1, expires="soon"), line("n2", 1, expires=None)], []),
    ],
)
def test_active(lines: list[Any], nodes: list[str]) -> None:
    assert [one.node for one in active(lines, NOW)] == nodes


@pytest.mark.parametrize(
    ("most", "share", "nodes", "found"),
    [
        (4, 0.1, None, 4),
        (4, 0.1, 1000, 4),
        (4, 0.1, 36, 3),
        (4, 0.1, 9, 1),  # one at least: a partition of nine nodes can have a bad one, too
        (4, 0.0, 100, 1),
        (0, 0.1, 100, 0),  # switched off
        (0, 0.1, None, 0),
    ],
)
def test_cap(most: int, share: float, nodes: int | None, found: int) -> None:
    assert cap(most, share, nodes) == found


def profile(runs: Path, **recovery: Any) -> dict[str, Any]:
    return {"name": "rack", "paths": {"runs": str(runs)}, "partition": None, "recovery": recovery}


def test_on_record_for_other_runs_of_the_profile(tmp_path: Path) -> None:
    mine = Excluded(profile(tmp_path, exclusion_days=7), "run-1")
    mine.add(["n3"], "gpu_fault: Xid 79")
    (written,) = records.read_lines(path_for(tmp_path, "rack"))
    assert (written["node"], written["run"], written["reason"]) == ("n3", "run-1", "gpu_fault: Xid 79")
    (found,) = active([written], time.time())
    assert found.expires == pytest.approx(time.time() + 7 * 86400, abs=5)
    assert Excluded(profile(tmp_path), "run-2").nodes() == ["n3"]
    assert Excluded({**profile(tmp_path), "name": "elsewhere"}, "run-3").nodes() == []


@pytest.mark.parametrize(("answer", "most"), [("echo 36", 3), ("echo 9", 1), ("exit 1", 4)])
def test_the_oldest_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, most: int) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f"#!/bin/sh\n{answer}\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    mine = Excluded(profile(tmp_path / "runs"), "run-1")
    (tmp_path / "runs").mkdir()
    names = [f"n{number}" for number in range(6)]
    for name in names:
        mine.add([name], "")
    assert mine.nodes() == names[-most:]
    assert Excluded(profile(tmp_path / "runs", excluded_nodes=0), "run-2").nodes() == []
