"""The recipes of a group on their way to runs: resolved, admitted and checked, and all that is wrong told together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from seatrial.cli.options import KindName
from seatrial.cli.resolving import checked, gate_settings, measured_by_a_gate, resolved, runs_of
from seatrial.errors import SeatrialError, did_you_mean

if TYPE_CHECKING:
    from seatrial.check.estimate import Measured
    from seatrial.check.findings import Finding
    from seatrial.slurm.admission import Admission
    from seatrial.spec.runspec import RunSpec


@dataclass(frozen=True)
class Wish:
    """What the command line asks for. ``source``: what the submission is told of the source tree."""

    recipes: tuple[str, ...]
    profile: str
    settings: tuple[str, ...]
    name: str | None
    other_data: str | None
    gates: tuple[str, ...]
    after_gate: bool
    no_gate: str | None
    max_age_days: float
    detach: bool
    source: Mapping[str, Any]


@dataclass
class Candidate:
    """A recipe on its way to a run. ``names``: what it may be called, its own name last. ``problems`` keep all of them
    from being submitted."""

    names: list[str]
    settings: list[str] = field(default_factory=list)
    spec: RunSpec | None = None
    gate: RunSpec | None = None
    admission: Admission | None = None
    measured: Measured | None = None
    findings: list[Finding] = field(default_factory=list)
    problems: list[SeatrialError] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def refused(self) -> bool:
        return bool(self.problems) or any(finding.severity == "error" for finding in self.findings)


def candidates_of(wish: Wish) -> list[Candidate]:
    """Give each recipe its settings. Raises SeatrialError for a setting of a recipe that is not there, and for a recipe
    that is there twice."""
    found = [Candidate(_names(word)) for word in wish.recipes]
    by_name: dict[str, Candidate] = {}
    for one in found:
        twice = next((name for name in one.names if name in by_name), None)
        if twice is not None:
            raise SeatrialError(
                f"recipe {one.name} is named twice", value=[by_name[twice].names[0], one.names[0]],
                rule="one run a recipe in a group",
                fix="for a second run of it: seatrial converge RECIPE, then seatrial compare",
            )  # fmt: skip
        by_name |= dict.fromkeys(one.names, one)
    for text in wish.settings:
        recipe, key_and_value = _addressed(text)
        if recipe is not None and recipe not in by_name:
            raise SeatrialError(
                f"no recipe {recipe!r} in this group", key="--set", value=text,
                rule=f"one of {', '.join(one.name for one in found)}", fix=did_you_mean(recipe, by_name),
            )  # fmt: skip
        for one in found if recipe is None else [by_name[recipe]]:
            one.settings.append(key_and_value)
    return found


def _addressed(text: str) -> tuple[str | None, str]:
    """Split ``RECIPE:section.key=value``; None: it is for all."""
    key, equals, value = text.partition("=")
    recipe, colon, own = key.rpartition(":")
    return (recipe, own + equals + value) if colon else (None, text)


def _names(word: str) -> list[str]:
    """Return what a recipe may be called: as it was on the command line, then by its name."""
    from seatrial.spec.recipe import load_recipe
    from seatrial.spec.schema import load_schema

    try:
        return list(dict.fromkeys([word, load_recipe(word, load_schema()).name]))
    except SeatrialError:
        return [word]  # what is wrong with it is told when it is resolved


def prepare(candidates: Sequence[Candidate], wish: Wish) -> list[SeatrialError]:
    """Resolve, admit and check every recipe; what is wrong with one keeps no other from being looked at.

    Return what is wrong with no single one: gates that are of none, and what differs between them.
    """
    from seatrial.slurm.group_same import differences

    for one in candidates:
        try:
            one.spec = resolved(one.names[0], wish.profile, KindName.convergence, one.settings)
            if wish.after_gate:
                one.gate = resolved(one.names[0], wish.profile, KindName.gate, gate_settings(one.settings))
        except SeatrialError as error:
            one.problems.append(error)
    named: dict[str, str] = {}
    general = list(_match_gates(wish.gates, candidates, named))
    for one in candidates:
        if one.spec is None or one.problems:
            continue
        if not wish.after_gate:
            if not general:
                _admit(one, named.get(one.name), wish)
        elif wish.detach and one.spec.profile["executor"] == "local":
            one.problems.append(SeatrialError(
                "on this machine --after-gate runs the gate in the foreground", key="--detach",
                fix="leave --detach out, or run the gates first",
            ))  # fmt: skip
        try:
            one.measured = one.measured or measured_by_a_gate(one.spec)
            for spec in filter(None, (one.spec, one.gate)):
                one.findings += [f for f in checked(spec, measured=one.measured) if f not in one.findings]
        except SeatrialError as error:
            one.problems.append(error)
    specs = [one.spec for one in candidates if one.spec is not None]
    return [*general, *differences(specs, wish.other_data is not None)]


def _admit(one: Candidate, gate: str | None, wish: Wish) -> None:
    from seatrial.cli.converge import admitted

    assert one.spec is not None
    try:
        one.admission, one.measured = admitted(one.spec, gate, wish.no_gate, wish.max_age_days)
    except SeatrialError as error:
        one.problems.append(error)


def _match_gates(
    named: Sequence[str], candidates: Sequence[Candidate], found: dict[str, str]
) -> Iterator[SeatrialError]:
    """Put recipe -> the gate that was named for it into ``found``; yield an error for each that is of none, or the
    second of one."""
    from seatrial.cli.runs import find_run
    from seatrial.slurm.admission import read_gate

    folders = [path for one in candidates if one.spec is not None for path in runs_of(one.spec)]
    for name in named if folders else ():
        try:
            gate = read_gate(find_run(name, folders))
        except SeatrialError as error:
            yield error
            continue
        recipe = str(gate.spec.get("recipe")) if gate else ""
        if gate is None or recipe not in [one.name for one in candidates]:
            what = "not a gate" if gate is None else f"a gate of {recipe}, which is not in this group"
            yield SeatrialError(what, key="--gate", value=name, rule="a gate of one of the recipes")
        elif recipe in found:
            yield SeatrialError(f"a second gate of {recipe}", key="--gate", value=name, rule="one gate admits a run")
        else:
            found[recipe] = str(gate.folder.path)


def told(candidates: Sequence[Candidate], general: Sequence[SeatrialError]) -> bool:
    """Print what is wrong or doubtful, each with its recipe; return whether anything is wrong."""
    from seatrial.report.terminal import print_findings
    from seatrial.slurm.group_same import foreign_tokens

    for one in candidates:
        shown = [finding for finding in one.findings if finding.severity != "note"]
        if shown or one.problems:
            typer.echo(f"{one.name}:", err=True)
        for problem in one.problems:
            typer.echo(f"error: {problem}", err=True)
        print_findings(shown)
    for problem in general:
        typer.echo(f"error: {problem}", err=True)
    if warning := foreign_tokens([one.spec for one in candidates if one.spec is not None]):
        typer.echo(f"warning: {warning}", err=True)
    return bool(general) or any(one.refused for one in candidates)
