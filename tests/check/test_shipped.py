"""Shipped recipes on shipped profiles: what a site has to add, and nothing else, keeps them from running."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.check.findings import run_checks
from seatrial.data.text import ensure_text
from seatrial.spec.recipe import recipe_names
from seatrial.spec.resolve import resolve

SITE = [("profile.account", "lab"), ("profile.partition", "batch"), ("profile.container.image", "/images/train.sqsh")]
ELSEWHERE = [("profile.paths.runs", "/absent/runs")]  # this machine's disk is not the cluster's


@pytest.fixture(autouse=True)
def no_site_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("profile", ["gb200-8gpu", "gb200-64gpu"])
@pytest.mark.parametrize("recipe", recipe_names())
def test_on_hardware(recipe: str, profile: str) -> None:
    spec = resolve(recipe, profile, "gate", [*SITE, *ELSEWHERE, ("data.mock_data", "true")])
    assert [f for f in run_checks(spec) if f.severity == "error"] == []
    unset = {f.field for f in run_checks(resolve(recipe, profile, "gate", ELSEWHERE)) if f.severity == "error"}
    assert unset == {"profile.account, profile.partition, profile.container.image", "data.data_path"}
    spec = resolve(recipe, profile, "convergence", [*SITE, *ELSEWHERE, ("data.mock_data", "true")])
    refused = [f.field for f in run_checks(spec) if f.severity == "error"]
    assert refused == ["data.mock_data"]


@pytest.mark.parametrize("ranks", ["2", "8"])
@pytest.mark.parametrize("recipe", recipe_names())
def test_rehearsal(recipe: str, ranks: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "text")
    ensure_text(folder)
    more = [("profile.gpus_per_node", ranks), ("profile.paths.data", folder)]
    if "9b" not in recipe:
        more.append(("parallel.expert_model_parallel_size", ranks))
    if ranks == "8":
        more.append(("schedule.global_batch_size", "32"))
    found = run_checks(resolve(recipe, "local-cpu", "gate", more))
    assert [f for f in found if f.severity != "note"] == []
    assert [f.field for f in found][-2:] == ["schedule.train_iters", "profile.device"]
