"""The executor's fields: every directive of ours is in them, or is one run's own."""

from __future__ import annotations

import pytest

from seatrial.errors import SeatrialError
from seatrial.interop.nemo_run.differences import BOUND
from seatrial.interop.nemo_run.executor import executor
from seatrial.interop.nemo_run.settings import settings
from seatrial.slurm.script import directives
from seatrial.spec.resolve import resolve
from tests.interop.cases import CASES, FULL, NANO, spec


@pytest.mark.parametrize(("profile", "kind"), CASES)
@pytest.mark.parametrize("more", [(), FULL], ids=["as shipped", "everything"])
def test_no_directive_is_lost(profile: str, kind: str, more: tuple[tuple[str, str], ...]) -> None:
    run = spec(profile, kind, *more)
    ours = {name.replace("-", "_"): value for name, value in directives(run, "r", "/runs/r") if name not in BOUND}
    found = settings(run)
    placed = {**found.fields, **found.additional}
    assert not found.fields.keys() & found.additional.keys()
    assert placed.keys() == ours.keys()
    for name, value in ours.items():
        assert placed[name] is True if value is None else str(placed[name]) == str(value), name


def test_fields_have_the_types_that_nemo_run_names() -> None:
    fields = settings(spec("gb200-64gpu", "gate", *FULL)).fields
    assert {name for name, value in fields.items() if isinstance(value, int)} == {
        "nodes", "ntasks_per_node", "cpus_per_task", "segment", "exclusive",
    }  # fmt: skip
    assert settings(spec("gb200-8gpu", "gate", ("profile.account", "null"))).fields["account"] is None


def test_a_profile_without_slurm_is_refused() -> None:
    with pytest.raises(SeatrialError, match="not a profile of a Slurm cluster"):
        executor(resolve(NANO, "local-cpu", "gate"))


def test_without_nemo_run_the_extra_is_named() -> None:
    """The environment of the tests has no nemo_run."""
    with pytest.raises(SeatrialError) as error:
        executor(spec())
    assert error.value.fix == 'pip install "seatrial[nemo-run]"'
