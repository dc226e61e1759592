"""`seatrial gate --drill`: a gate with a fault in it, and before it an undisturbed one where none is there yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from seatrial.cli.gate import follow_first, follow_gate, tell
from seatrial.cli.options import EXIT_CODES
from seatrial.cli.resolving import checked, found_gates, refuse_errors, runs_of
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.run.layout import RunFolder
    from seatrial.slurm.submit import Submission
    from seatrial.spec.runspec import RunSpec


def run_drill(spec: RunSpec, drill: str, reference: str | None, *, detach: bool, here: bool, **source: Any) -> None:
    """Submit the gate ``spec`` with the fault that ``drill`` names; unless detached, end with its verdict's exit code.

    ``reference``: the undisturbed run, by name; where it is None one is looked for, and else run first. ``source``:
    what the submission is told of the source tree.
    """
    from seatrial.slurm.here import run_here
    from seatrial.slurm.submit import submit
    from seatrial.spec.drill import drilled, with_reference

    disturbed = drilled(spec, drill)
    refuse_errors(checked(disturbed, ask_slurm=not here))
    start: Callable[..., Submission] = run_here if here else submit
    steps = int(spec.gate["steps"])
    folder = _reference(disturbed, reference)
    if folder is None and (here or spec.profile["executor"] == "local"):
        if detach:
            raise SeatrialError(
                "no undisturbed gate is there to compare with, and on this machine it runs in the foreground first",
                key="--detach", fix="leave --detach out, or run the gate first",
            )  # fmt: skip
        first = start(spec, **source)
        typer.echo(f"undisturbed run: {first.folder.path}")
        _go_on_after(follow_gate(first, steps))
        folder = first.folder
    if folder is None:
        last = _after_its_gate(spec, disturbed, detach, source)
    else:
        typer.echo(f"compared with: {folder.path}")
        last = start(with_reference(disturbed, folder.path), **source)
        tell(last)
    if not detach:
        raise typer.Exit(EXIT_CODES[follow_gate(last, steps)])


def _reference(spec: RunSpec, named: str | None) -> RunFolder | None:
    """Return the undisturbed run: the one that was named, else the newest that fits, if any does.

    Raises SeatrialError where the one that was named does not fit.
    """
    from seatrial.cli.runs import find_run
    from seatrial.slurm.admission import read_gate
    from seatrial.slurm.drill import find_reference, require_reference

    if named is None:
        found = find_reference(spec, found_gates(spec))
        return found.folder if found else None
    gate = read_gate(find_run(named, runs_of(spec)))
    if gate is None:
        raise SeatrialError("not a gate", key="--reference", value=named, rule="the run of an undisturbed gate")
    return require_reference(spec, gate).folder


def _after_its_gate(spec: RunSpec, disturbed: RunSpec, detach: bool, source: dict[str, Any]) -> Submission:
    """Submit the undisturbed gate and the drill that waits for it; unless detached, see the first one through."""
    from seatrial.slurm.drill import submit_drill

    pair = submit_drill(spec, disturbed, **source)
    typer.echo(f"undisturbed run: {pair.gate.folder.path}")
    tell(pair.run)
    if not detach:
        _go_on_after(follow_first(pair, int(spec.gate["steps"])))
    return pair.run


def _go_on_after(verdict: str) -> None:
    """End the command where the undisturbed gate did not pass: there is nothing to compare a drill with."""
    if verdict != "PASS":
        typer.echo(f"no drill: the verdict of the undisturbed gate is {verdict}")
        raise typer.Exit(EXIT_CODES[verdict])
