"""The recipes of a group on their way to runs: resolved, admitted and checked, and all that is wrong told together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """A recipe on its way to a run; ``problems`` keep all of them from being submitted."""

    word: str
    settings: list[str]
    spec: RunSpec | None = None
    gate: RunSpec | None = None
    admission: Admission | None = None
    measured: Measured | None = None
    findings: list[Finding] = field(default_factory=list)
    problems: list[SeatrialError] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.spec.recipe if self.spec else self.word

    @property
    def refused(self) -> bool:
        return bool(self.problems) or any(finding.severity == "error" for finding in self.findings)


def candidates_of(wish: Wish) -> list[Candidate]:
    """Give each recipe its settings. Raises SeatrialError for a setting of a recipe that is not there, and for a recipe
    that is there twice."""
    names = {word: _names(word) for word in wish.recipes}
    seen: dict[str, str] = {}
    for word in wish.recipes:
        for name in names[word]:
            if name in seen:
                raise SeatrialError(
                    f"recipe {name} is named twice", value=[seen[name], word], rule="one run a recipe in a group",
                    fix="for a second run of it: seatrial converge RECIPE, then seatrial compare",
                )  # fmt: skip
        seen |= dict.fromkeys(names[word], word)
    found = {word: Candidate(word, []) for word in wish.recipes}
    for text in wish.settings:
        recipe, key_and_value = _addressed(text)
        if recipe is not None and recipe not in seen:
            raise SeatrialError(
                f"no recipe {recipe!r} in this group", key="--set", value=text, rule=f"one of {', '.join(names)}",
                fix=did_you_mean(recipe, seen),
            )  # fmt: skip
        for word in wish.recipes if recipe is None else [seen[recipe]]:
            found[word].settings.append(key_and_value)
    return list(found.values())


def _addressed(text: str) -> tuple[str | None, str]:
    """Split ``RECIPE:section.key=value``; None: it is for all."""
    key, equals, value = text.partition("=")
    recipe, colon, own = key.rpartition(":")
    return (recipe, own + equals + value) if colon else (None, text)


def _names(word: str) -> list[str]:
    """Return what a recipe may be called: as it was on the command line, and by its name."""
    from seatrial.spec.recipe import load_recipe
    from seatrial.spec.schema import load_schema

    try:
        return list(dict.fromkeys([word, load_recipe(word, load_schema()).name]))
    except SeatrialError:
        return [word]  # what is wrong with it is told when it is resolved


def prepare(candidates: Sequence[Candidate], wish: Wish) -> None:
    """Resolve, admit and check every recipe; what is wrong with one keeps no other from being looked at."""
    for one in candidates:
        try:
            one.spec = resolved(one.word, wish.profile, KindName.convergence, one.settings)
            if wish.after_gate:
                one.gate = resolved(one.word, wish.profile, KindName.gate, gate_settings(one.settings))
        except SeatrialError as error:
            one.problems.append(error)
    named = {} if wish.after_gate else _gates(wish.gates, candidates)
    for one in candidates:
        if one.spec is None or one.problems:
            continue
        if not wish.after_gate:
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


def _admit(one: Candidate, gate: str | None, wish: Wish) -> None:
    from seatrial.cli.converge import admitted

    assert one.spec is not None
    try:
        one.admission, one.measured = admitted(one.spec, gate, wish.no_gate, wish.max_age_days)
    except SeatrialError as error:
        one.problems.append(error)


def _gates(named: Sequence[str], candidates: Sequence[Candidate]) -> dict[str, str]:
    """Return recipe -> the gate that was named for it. Raises SeatrialError for one that is of none, or the second."""
    from seatrial.cli.runs import find_run
    from seatrial.slurm.admission import read_gate

    specs = [one.spec for one in candidates if one.spec is not None]
    found: dict[str, str] = {}
    for name in named if specs else ():
        gate = read_gate(find_run(name, [path for spec in specs for path in runs_of(spec)]))
        recipe = str(gate.spec.get("recipe")) if gate else None
        if gate is None or recipe is None or recipe not in [one.name for one in candidates]:
            what = "not a gate" if gate is None else f"a gate of {recipe}, which is not in this group"
            raise SeatrialError(what, key="--gate", value=name, rule="a gate of one of the recipes")
        if recipe in found:
            raise SeatrialError(f"a second gate of {recipe}", key="--gate", value=name, rule="one gate admits a run")
        found[recipe] = str(gate.folder.path)
    return found


def told(candidates: Sequence[Candidate], other_data: bool) -> bool:
    """Print what is wrong or doubtful, each with its recipe; return whether anything is wrong."""
    from seatrial.report.terminal import print_findings
    from seatrial.slurm.group_same import differences, foreign_tokens

    for one in candidates:
        shown = [finding for finding in one.findings if finding.severity != "note"]
        if shown or one.problems:
            typer.echo(f"{one.name}:", err=True)
        for problem in one.problems:
            typer.echo(f"error: {problem}", err=True)
        print_findings(shown)
    specs = [one.spec for one in candidates if one.spec is not None]
    apart = list(differences(specs, other_data))
    for error in apart:
        typer.echo(f"error: {error}", err=True)
    if (warning := foreign_tokens(specs)) is not None and not apart:
        typer.echo(f"warning: {warning}", err=True)
    return bool(apart) or any(one.refused for one in candidates)
