"""As whom an attempt logs to Weights & Biases, and which attempts do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.run import records
from seatrial.run.layout import RunFolder, new_run_id
from seatrial.supervise import trackers
from seatrial.supervise.plan import make_plan
from seatrial.supervise.resume import Start

ON = {"enabled": True, "project": "seatrial", "entity": None, "mode": "online", "key": "TEAM_KEY"}
SPEC: dict[str, Any] = {
    "run_id": "r-1", "megatron_core": "0.19.2", "recipe": "nano", "kind": "gate", "rehearsal": False, "world_size": 2,
    "environment": {}, "arguments": [], "fields": {}, "profile": {"name": "gb200-8gpu", "device": "cuda", "wandb": ON},
}  # fmt: skip


def spec(wandb: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {**SPEC, "profile": {**SPEC["profile"], "wandb": {**ON, **(wandb or {})}}, **changes}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_an_id_is_one_of_wandbs_and_stands_for_one_run(run_id: str) -> None:
    found = trackers.run_of(run_id)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", found)
    assert found == trackers.run_of(run_id) != trackers.run_of(f"{run_id}.")


def test_a_runs_own_id_is_kept() -> None:
    assert trackers.run_of("nano-gate-1") == "nano-gate-1"
    long = new_run_id("a_recipe_with_a_very_long_name_indeed", "convergence")
    assert len(trackers.run_of(long)) == 64 and trackers.run_of(long).startswith(long[:55])


@pytest.mark.parametrize("step", [None, 50])
@pytest.mark.parametrize("evaluate_only", [False, True])
def test_every_attempt_logs_to_one_run(step: int | None, evaluate_only: bool, folder: RunFolder) -> None:
    plan = make_plan(SPEC, folder, folder.attempt(3), Start(step, "", evaluate_only=evaluate_only))
    words = plan["arguments"][-6:]
    assert words == [
        "--wandb-project", "seatrial", "--wandb-exp-name", "r-1", "--wandb-save-dir", str(folder.path),
    ]  # fmt: skip
    assert plan["wandb"] == {
        "key": "TEAM_KEY",
        "environment": {
            "WANDB_RUN_ID": "r-1", "WANDB_RESUME": "allow", "WANDB_MODE": "online",
            "WANDB_TAGS": "nano,gate,gb200-8gpu",
        },
    }  # fmt: skip


@pytest.mark.parametrize(("wandb", "changes", "key", "words", "variables"), [
    ({"entity": "lab", "project": "p"}, {}, "TEAM_KEY", ["--wandb-entity", "lab", "--wandb-project", "p"], {}),
    ({"mode": "offline"}, {}, None, [], {"WANDB_MODE": "offline"}),
    ({}, {"group": "g-1"}, "TEAM_KEY", [], {"WANDB_RUN_GROUP": "g-1"}),
    ({}, {"rehearsal": True, "recipe": "a,b" + "c" * 99}, "TEAM_KEY", [],
     {"WANDB_TAGS": f"a_b{'c' * 61},gate,gb200-8gpu,rehearsal"}),
])  # fmt: skip
def test_wishes(
    wandb: dict[str, Any], changes: dict[str, Any], key: str | None, words: list[str], variables: dict[str, str],
    folder: RunFolder,
) -> None:  # fmt: skip
    wanted = spec(wandb, **changes)
    part = trackers.ranks_part(wanted, folder)
    assert part is not None and part["key"] == key == trackers.key_of(wanted["profile"])
    assert set(words) <= set(trackers.arguments(wanted, folder))
    assert variables.items() <= part["environment"].items()


@pytest.mark.parametrize("case", ["off", "older spec", "drill", "second pass"])
def test_who_logs_nothing(case: str, folder: RunFolder) -> None:
    """Steps that are made again for a check, or under a fault, must not come between those of the run."""
    wanted = {
        "off": spec({"enabled": False}),
        "older spec": {**SPEC, "profile": {"name": "p", "device": "cuda"}},
        "drill": spec(drill={"fault": "hang", "step": 30}),
        "second pass": SPEC,
    }[case]
    root = folder.second_pass if case == "second pass" else folder
    plan = make_plan(wanted, root, root.attempt(0), Start(None, ""))
    assert plan["wandb"] is None and not any("wandb" in word for word in plan["arguments"])
    assert "--tensorboard-dir" in plan["arguments"]
    assert (trackers.key_of(wanted["profile"]) is None) == (case in ("off", "older spec"))


@pytest.mark.parametrize(("kept", "words"), [
    ({"trouble": "no network"}, "no network"), ({"trouble": None}, None), ({}, None), (None, None), ([1], None),
])  # fmt: skip
def test_trouble_that_the_rank_has_left(kept: Any, words: str | None, folder: RunFolder) -> None:
    attempt = folder.new_attempt()
    if kept is not None:
        (attempt.path / "wandb.json").write_text(json.dumps(kept))
    assert trackers.trouble(attempt) == words
    (attempt.path / "wandb.json").write_text("{")
    assert trackers.trouble(attempt) is None
    assert records.read_object(attempt.path / "none") is None
