"""`seatrial converge A B`: a run for each recipe, as one group on the same data and seed; all of them followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from seatrial.cli.gate import gate_here, tell
from seatrial.cli.group_candidates import Candidate, Wish, candidates_of, prepare, told
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.slurm.group import Member


def converge_group(wish: Wish) -> int:
    """Check every recipe, submit all or none, and follow them to the end; return the exit code."""
    from seatrial.run.groups import DEFAULT_NAME, new_group_id

    name = wish.name if wish.name is not None else DEFAULT_NAME
    new_group_id(name)
    other_data = _reason(wish.other_data)
    candidates = candidates_of(wish)
    if told(candidates, prepare(candidates, wish)):
        typer.echo("nothing was submitted", err=True)
        return 2
    for one in candidates:
        _state(one)
    return _submit(candidates, wish, name, other_data)


def _reason(words: str | None) -> str | None:
    plain = None if words is None else " ".join(words.split())
    if plain == "":
        raise SeatrialError(
            "--other-data needs a reason: it stands in the group's record", key="--other-data", value=words,
            fix='--other-data "the same text, tokenised anew for each tokenizer"',
        )  # fmt: skip
    return plain


def _state(one: Candidate) -> None:
    """Print what a run takes, and what lets it start."""
    from datetime import datetime, timezone

    from seatrial.check.estimate import estimate
    from seatrial.report.estimate import statement

    assert one.spec is not None
    lines = statement(estimate(one.spec, one.measured), datetime.now(timezone.utc))
    if one.admission is not None and one.admission.gate is not None:
        lines.append(f"{'gate':<13}{one.admission.gate}")
    typer.echo("\n".join([f"{one.name}:", *(f"  {line}" for line in lines)]))


def _submit(candidates: Sequence[Candidate], wish: Wish, name: str, other_data: str | None) -> int:
    from seatrial.cli.following_group import follow_group
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.group import submit_group

    slurm = Slurm(say=lambda words: typer.echo(words, err=True))
    members = _members(candidates, wish)
    if members is None:
        return 1
    made = submit_group(members, name, other_data=other_data, slurm=slurm, **wish.source)
    typer.echo(f"group {made.group.id}: {len(made.runs)} runs, on record as {made.record}")
    for kind, submissions in (("gate's run folder", made.gates), ("run folder", made.runs)):
        for one in submissions:
            tell(one, kind)
    if members[0].spec.profile["executor"] == "local":
        typer.echo("they run side by side on this machine")
    if wish.detach:
        typer.echo(f"how they stand: seatrial status {made.group.id}")
        return 0
    return follow_group(made.group, [gate.folder for gate in made.gates])


def _members(candidates: Sequence[Candidate], wish: Wish) -> list[Member] | None:
    """Return what is submitted. On this machine gates run first, one after the other; None where one does not pass."""
    from seatrial.slurm.group import Member

    found = []
    for one in candidates:
        assert one.spec is not None
        if one.gate is None or one.spec.profile["executor"] != "local":
            found.append(Member(one.spec, one.admission, one.gate))
            continue
        verdict, admission = gate_here(one.spec, one.gate, **wish.source)
        if admission is None:
            typer.echo(f"no run of the group was submitted: the verdict of the gate of {one.name} is {verdict}")
            return None
        found.append(Member(one.spec, admission))
    return found
