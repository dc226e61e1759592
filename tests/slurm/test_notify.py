"""The webhook's variable on the real Slurm: it reaches the supervisor, and neither a rank nor a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.sandbox.cluster import Cluster
from tests.slurm.test_submission import finish, number, on_cluster, seen, start
from tests.supervise.test_notify import SECRET, hook

__all__ = ["on_cluster"]  # a fixture


def test_a_job_tells_and_its_ranks_know_nothing(
    on_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook("200") as server:
        monkeypatch.setenv("TOLD_BY", server.address)
        command = ["sh", "-c", f"cat >> {tmp_path}/news; env >> {tmp_path}/environment"]
        folder = start(tmp_path, notify={"webhook": "TOLD_BY", "command": command}, **{"preflight.enabled": False})
        finish(on_cluster, folder)
        texts = [body["text"] for _, body in server.got]
    assert len(texts) == 2
    assert f"job {number(folder)}; cluster " in texts[0] and "attempt 0 started on 2 nodes" in texts[0]
    assert "verdict FAIL" in texts[1]
    assert len((tmp_path / "news").read_text().splitlines()) == 2
    assert SECRET not in (tmp_path / "environment").read_text()
    ranks = seen(folder)
    assert len(ranks) == 8 and not any("TOLD_BY" in rank["names"] for rank in ranks)
    for path in folder.path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
