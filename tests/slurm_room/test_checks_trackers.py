"""What Weights & Biases needs of the submitting shell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from seatrial.cli.resolving import checked
from seatrial.slurm import check_trackers
from seatrial.spec.resolve import resolve

ONLINE = {"profile.wandb.enabled": "true"}
KEY = "profile.wandb.key"


@pytest.mark.parametrize(
    ("profile", "values", "shell", "found"),
    [
        ("gb200-8gpu", {}, {}, []),
        ("gb200-8gpu", ONLINE, {"WANDB_API_KEY": "verysecret"}, []),
        ("gb200-8gpu", ONLINE, {}, [("warning", KEY, "unset in this shell, so the run would log offline")]),
        (
            "gb200-8gpu",
            ONLINE | {KEY: "TEAM_KEY"},
            {"WANDB_API_KEY": "verysecret"},
            [("warning", KEY, "unset in this")],
        ),
        ("gb200-8gpu", ONLINE | {KEY: "SLURM_KEY"}, {"SLURM_KEY": "verysecret"}, [("warning", KEY, "are kept from")]),
        ("gb200-8gpu", ONLINE | {KEY: "TEAM"}, {"TEAM": "verysecret"}, [("error", KEY, "tells of a secret")]),
        ("gb200-8gpu", ONLINE | {"profile.wandb.mode": "offline"}, {}, []),
        (
            "local-cpu",
            ONLINE,
            {},
            [("error", "profile.wandb.enabled", "not installed here"), ("warning", KEY, "unset")],
        ),
        ("local-cpu", ONLINE | {"profile.rank_python": "/opt/python"}, {"WANDB_API_KEY": "verysecret"}, []),
    ],
    ids=str,
)
def test_findings(
    profile: str, values: Mapping[str, str], shell: Mapping[str, str], found: list[tuple[str, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(check_trackers, "_installed", lambda: False)
    spec = resolve("nemotron_3_nano_gb200", profile, "gate", list(values.items()))
    seen = list(check_trackers.check_trackers(spec, shell))
    assert [(one.severity, one.field) for one in seen] == [one[:2] for one in found]
    for one, (_, _, words) in zip(seen, found, strict=True):
        assert words in one.rule and one.fix and "verysecret" not in repr(one)


def test_a_run_of_this_machine_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    values = ONLINE | {"profile.paths.data": str(tmp_path), "profile.rank_python": "/opt/python"}
    findings = checked(resolve("qwen35_9b_gb200", "local-cpu", "gate", list(values.items())))
    assert [(one.severity, one.field) for one in findings if "wandb" in one.field] == [("warning", KEY)]
