"""How a run is judged, as recipes and the command line say it: its resume check, and what it is held against."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm.admission_identity import curve_identity
from seatrial.spec.drill import drilled
from seatrial.spec.judging import held_against, with_resume_check
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec

NANO = "nemotron_3_nano_gb200"


@pytest.mark.parametrize(
    ("profile", "kind", "settings", "on"),
    [
        ("gb200-8gpu", "gate", [], True),
        ("gb200-64gpu", "gate", [], True),
        ("gb200-8gpu", "convergence", [], False),
        ("local-cpu", "gate", [], False),
        ("gb200-8gpu", "gate", [("checkpoint.save_interval", "100")], False),
    ],
)
def test_the_resume_check_is_on_by_default_on_hardware(profile: str, kind: str, settings: list, on: bool) -> None:  # type: ignore[type-arg]
    assert resolve(NANO, profile, kind, settings).gate["resume_check"] is on


def test_the_command_line_decides() -> None:
    rehearsal, hardware = (resolve(NANO, profile, "gate") for profile in ("local-cpu", "gb200-8gpu"))
    assert with_resume_check(rehearsal, True).gate["resume_check"] is True
    assert with_resume_check(hardware, False).gate["resume_check"] is False
    assert with_resume_check(hardware, None) == hardware
    assert drilled(hardware, "kill-rank@30").gate["resume_check"] is False
    with pytest.raises(SeatrialError, match="no checkpoint to resume from"):
        with_resume_check(resolve(NANO, "local-cpu", "gate", [("checkpoint.save_interval", "100")]), True)


def recipe(folder: Path, block: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(f"extends: {NANO}\n{block}")
    return str(path)


GOOD = "reference:\n  file: curve.json\n  pointwise: 0.1\nrehearsal:\n  reference:\n    file: small.json\n"


def test_a_recipe_names_its_reference_and_its_rehearsal_another(tmp_path: Path) -> None:
    for name in ("curve.json", "small.json"):
        (tmp_path / name).write_text(json.dumps({"schema": 1, "steps": [[1, 2.0]]}))
    name = recipe(tmp_path, GOOD)
    for profile, file in (("gb200-8gpu", "curve.json"), ("local-cpu", "small.json")):
        spec = resolve(name, profile, "gate")
        assert spec.reference is not None
        assert (spec.reference["file"], spec.reference["asked"]) == (str(tmp_path / file), False)
        assert RunSpec.from_json(spec.to_json()).reference == spec.reference
    asked = held_against(resolve(name, "gb200-8gpu", "gate"), tmp_path / "small.json")
    assert asked.reference == {"file": str(tmp_path / "small.json"), "pointwise": 0.1, "asked": True}
    assert resolve(NANO, "gb200-8gpu", "gate").reference is None


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("reference:\n  file: none.json\n", "no such file"),
        ("reference:\n  fle: curve.json\n", "unknown key 'fle'"),
        ("reference:\n  speed: 0.04\n", "at least 0.05"),
        ("reference:\n  speed: true\n", "wrong value"),
        ("reference:\n  pointwise: 0\n", "above 0"),
        ("reference:\n  final: 1.5\n", "below 1"),
        ("reference: curve.json\n", "must be a mapping"),
    ],
)
def test_a_reference_that_is_none_is_refused_with_its_line(tmp_path: Path, block: str, words: str) -> None:
    with pytest.raises(SeatrialError) as error:
        resolve(recipe(tmp_path, block), "gb200-8gpu", "gate")
    assert words in str(error.value) and "mine.yaml" in str(error.value)


def test_what_decides_a_curve_makes_another_one_and_where_data_lie_does_not() -> None:
    spec = resolve(NANO, "gb200-8gpu", "gate")
    assert curve_identity(spec) == curve_identity(resolve(NANO, "gb200-8gpu", "convergence"))
    same = [("data.data_path", '["/elsewhere"]'), ("data.tokenizer_model", "/there"), ("data.num_workers", "2")]
    other = [("optimizer.lr", "0.1"), ("schedule.seed", "1"), ("schedule.global_batch_size", "1024")]
    for setting in same:
        assert curve_identity(resolve(NANO, "gb200-8gpu", "gate", [setting])) == curve_identity(spec)
    for setting in other:
        assert curve_identity(resolve(NANO, "gb200-8gpu", "gate", [setting])) != curve_identity(spec)
    assert curve_identity(replace(spec, gate={})) == curve_identity(spec)
