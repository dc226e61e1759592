"""FAULT@STEP: what is understood, where a fault comes, and what a drill changes of its gate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SeatrialError
from seatrial.spec.drill import FAULTS, Drill, default_step, drilled, parse_drill, save_interval, with_reference
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec

NANO = "nemotron_3_nano_gb200"


def gate(profile: str = "local-cpu", **settings: Any) -> RunSpec:
    return resolve(NANO, profile, "gate", [(key.replace("__", "."), str(value)) for key, value in settings.items()])


@pytest.mark.parametrize(
    ("text", "steps", "drill"),
    [
        ("kill-rank@30", 100, Drill("kill-rank", 30)),
        ("hang@3", 100, Drill("hang", 3)),
        ("kill-node@99", 100, Drill("kill-node", 99)),
        ("stop-signal", 100, Drill("stop-signal", 60)),
        ("truncate-checkpoint", 200, Drill("truncate-checkpoint", 120)),
        ("kill-rank", 4, Drill("kill-rank", 3)),
        ("kill-rank@007", 10, Drill("kill-rank", 7)),
    ],
)
def test_what_is_understood(text: str, steps: int, drill: Drill) -> None:
    assert parse_drill(text, steps) == drill


@pytest.mark.parametrize(
    ("text", "steps", "said"),
    [
        ("kill-rnak@30", 100, "did you mean 'kill-rank'?"),
        ("truncate", 100, "did you mean 'truncate-checkpoint'?"),
        ("", 100, "unknown fault ''"),
        ("@30", 100, "unknown fault ''"),
        ("Hang", 100, "did you mean 'hang'?"),
        ("kill-rank@2", 100, "a step from 3 to 99"),
        ("kill-rank@100", 100, "a step from 3 to 99"),
        ("kill-rank@-5", 100, "a step from 3 to 99"),
        ("kill-rank@", 100, "kill-rank@60"),
        ("kill-rank@3.5", 100, "kill-rank@60"),
        ("kill-rank@30@40", 100, "kill-rank@60"),
        ("kill-rank@٣٠", 100, "a step from 3 to 99"),
        ("kill-rank@" + "9" * 5000, 100, "a step from 3 to 99"),
        ("kill-rank", 3, "a gate of more steps"),
    ],
)
def test_what_is_refused(text: str, steps: int, said: str) -> None:
    with pytest.raises(SeatrialError) as caught:
        parse_drill(text, steps)
    assert caught.value.key == "--drill"
    assert said in str(caught.value)


@given(st.text(), st.integers(1, 10**6))
def test_no_text_is_more_than_a_mistake(text: str, steps: int) -> None:
    for word in (text, f"kill-rank@{text}"):
        try:
            found = parse_drill(word, steps)
        except SeatrialError:
            continue
        assert found.fault in FAULTS and 3 <= found.step < steps


@pytest.mark.parametrize(
    ("own", "step", "every"),
    [(50, 30, 10), (50, 60, 25), (50, 12, 5), (50, 3, 1), (50, 20, 5), (50, 21, 10), (50, 50, 10), (50, 51, 25),
     (50, 101, 50), (7, 14, 1), (7, 15, 7), (16, 6, 2), (1, 3, 1)],
)  # fmt: skip
def test_how_often_a_drill_saves(own: int, step: int, every: int) -> None:
    assert save_interval(own, step) == every


@given(st.integers(1, 5000), st.integers(3, 5000))
def test_two_saves_come_before_the_fault_and_no_larger_divisor_does_it(own: int, step: int) -> None:
    every = save_interval(own, step)
    assert own % every == 0
    assert len([save for save in range(every, step, every) if save < step]) >= 2
    assert not any(own % larger == 0 and 2 * larger < step for larger in range(every + 1, own + 1))


@given(st.integers(4, 10**6))
def test_the_default_step_is_always_one_that_may_be_named(steps: int) -> None:
    assert parse_drill(f"hang@{default_step(steps)}", steps).step == default_step(steps)


def test_a_drill_saves_more_often_and_says_why() -> None:
    plain = gate()
    spec = drilled(plain, "kill-rank@30")
    field = spec.fields["checkpoint.save_interval"]
    assert (field.value, field.source, field.owner, field.changed) == (10, "drill", "kind", True)
    assert field.recipe_value == plain.fields["checkpoint.save_interval"].recipe_value
    assert spec.gate["save_steps"] == list(range(10, 101, 10))
    assert spec.drill == {"fault": "kill-rank", "step": 30, "reference": None}
    assert {key for key in spec.fields if spec.fields[key] != plain.fields[key]} == {"checkpoint.save_interval"}
    assert plain.drill is None and plain.gate["save_steps"] == [50, 100]


def test_a_drill_is_on_record_and_another_run_than_its_gate() -> None:
    spec = with_reference(drilled(gate(), "hang@60"), "/runs/calm")
    again = RunSpec.from_json(spec.to_json())
    assert again == spec and again.drill == {"fault": "hang", "step": 60, "reference": "/runs/calm"}
    hashes = {one.content_hash for one in (gate(), spec, drilled(gate(), "kill-rank@60"), drilled(gate(), "hang@61"))}
    assert len(hashes) == 4
    assert drilled(gate(), "hang@60").content_hash == spec.content_hash, "what it is compared with changes no run"
    old = gate().to_json()
    del old["drill"]
    assert RunSpec.from_json(old).drill is None


def test_a_node_is_taken_only_where_another_can_take_over() -> None:
    with pytest.raises(SeatrialError) as caught:
        drilled(gate("slurm-sandbox"), "kill-node@30")
    assert (caught.value.key, caught.value.fix) == ("profile.spare_nodes", "--set profile.spare_nodes=1")
    assert drilled(gate("slurm-sandbox", profile__spare_nodes=1), "kill-node@30").drill
    assert drilled(gate("slurm-sandbox"), "kill-rank@30").drill
    assert drilled(gate("local-cpu"), "kill-node@30").drill, "the run begins again on the one host that there is"


def test_a_rank_is_stopped_only_where_somebody_would_find_it() -> None:
    with pytest.raises(SeatrialError) as caught:
        drilled(gate(profile__hang__enabled="false"), "hang@30")
    assert (caught.value.key, caught.value.fix) == ("profile.hang.enabled", "--set profile.hang.enabled=true")
    assert drilled(gate(profile__hang__enabled="false"), "kill-rank@30").drill
