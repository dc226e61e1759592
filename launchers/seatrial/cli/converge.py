"""`seatrial converge`: find the admitting gate, check, say what it takes, submit, follow to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.cli import complete
from seatrial.cli.gate import follow_first, gate_here, tell
from seatrial.cli.options import (
    AllowDirtyFlag,
    EngineOption,
    KindName,
    ProfileOption,
    RequireHeadOption,
    with_engine,
)
from seatrial.cli.resolving import (
    checked,
    found_gates,
    gate_settings,
    measured_by_a_gate,
    refuse_errors,
    resolved,
    runs_of,
)
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.check.estimate import Measured
    from seatrial.run.layout import RunFolder
    from seatrial.slurm.admission import Admission
    from seatrial.spec.runspec import RunSpec

_ASK_SECONDS = 10.0


def converge(
    recipes: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="[RECIPE]...",
            help="Recipe name, alias, or YAML file; several are submitted as a group. MODEL_RECIPE_NAME where none is.",
            autocompletion=complete.recipes,
        ),
    ] = None,
    profile: ProfileOption = "local-cpu",
    set_: Annotated[
        Optional[list[str]],
        typer.Option(
            "--set",
            metavar="[RECIPE:]KEY=VALUE",
            help="Set section.key or profile.key for this run, in a group for all or for RECIPE; repeatable.",
        ),
    ] = None,
    engine: EngineOption = None,
    name: Annotated[Optional[str], typer.Option("--name", metavar="NAME", help="The group's name.")] = None,
    other_data: Annotated[
        Optional[str],
        typer.Option("--other-data", metavar="REASON", help="A group's data paths and splits may differ; recorded."),
    ] = None,
    gate: Annotated[
        Optional[list[str]],
        typer.Option(
            "--gate",
            metavar="RUN",
            help="The gate that admits it; in a group one a recipe.",
            autocompletion=complete.runs,
        ),
    ] = None,
    after_gate: Annotated[bool, typer.Option("--after-gate", help="Submit a gate, too; start once it passes.")] = False,
    no_gate: Annotated[
        Optional[str], typer.Option("--no-gate", metavar="REASON", help="Do without; the reason is recorded.")
    ] = None,
    gate_max_age_days: Annotated[float, typer.Option(min=0, help="How old the gate's verdict may be.")] = 14,
    detach: Annotated[bool, typer.Option("--detach", help="Return after submission; do not follow.")] = False,
    allow_dirty: AllowDirtyFlag = False,
    require_head: RequireHeadOption = None,
) -> None:
    """Submit the 48,000-step convergence run, which a gate must admit, and follow it to its end.

    Several recipes: a run each, as one group on the same data and seed; all are submitted, or none.
    """
    from seatrial.slurm.submit import submit

    if bool(gate) + after_gate + (no_gate is not None) > 1:
        raise SeatrialError("--gate, --after-gate and --no-gate exclude each other", fix="leave all but one out")
    settings = with_engine(set_, engine)
    if len(recipes or []) > 1:
        from seatrial.cli.group import converge_group
        from seatrial.cli.group_candidates import Wish

        wish = Wish(
            tuple(recipes or ()), profile, tuple(settings), name, other_data, tuple(gate or ()), after_gate, no_gate,
            gate_max_age_days, detach, {"allow_dirty": allow_dirty, "require_head": require_head},
        )  # fmt: skip
        raise typer.Exit(converge_group(wish))
    for option, given in (("--name", name), ("--other-data", other_data)):
        if given is not None:
            raise SeatrialError(f"{option} is a group's", key=option, value=given, fix="name two recipes or more")
    if len(gate or []) > 1:
        raise SeatrialError("one gate admits a run", key="--gate", value=gate, fix="leave all but one out")
    recipe = recipes[0] if recipes else None
    spec = resolved(recipe, profile, KindName.convergence, settings)
    if after_gate:
        gate_spec = resolved(recipe, profile, KindName.gate, gate_settings(settings))
        if detach and spec.profile["executor"] == "local":
            raise SeatrialError(
                "on this machine --after-gate runs the gate in the foreground", key="--detach",
                fix="leave --detach out, or run the gate first",
            )  # fmt: skip
        _check(spec, None)
        _check(gate_spec, None)
        folder = _both(gate_spec, spec, detach, allow_dirty, require_head)
    else:
        refusal: SeatrialError | None = None
        admission: Admission | None = None
        measured: Measured | None = None
        try:
            admission, measured = admitted(spec, gate[0] if gate else None, no_gate, gate_max_age_days)
        except SeatrialError as error:
            refusal = error
        _check(spec, measured)  # what else is wrong is told before a gate is asked for
        if admission is None:
            raise refusal or SeatrialError("no gate admits this run")
        submission = submit(spec, allow_dirty=allow_dirty, require_head=require_head, admission=admission)
        folder = submission.folder
        tell(submission)
    if not detach:
        raise typer.Exit(follow_run(folder, int(spec.get("train_iters"))))


def admitted(
    spec: RunSpec, gate: str | None, no_gate: str | None, max_age_days: float
) -> tuple[Admission, Measured | None]:
    """Return what lets the run start, and what its gate measured. Raises SeatrialError where nothing does."""
    from seatrial.cli.runs import find_run
    from seatrial.slurm.admission import Admission, Wanted, admit, read_gate, require
    from seatrial.slurm.admission_measured import measured

    if no_gate is not None:
        return Admission.without_gate(no_gate), None
    wanted = Wanted.of(spec, max_age_days)
    if gate is None:
        chosen = admit(wanted, found_gates(spec))
    else:
        named = read_gate(find_run(gate, runs_of(spec)))
        if named is None:
            raise SeatrialError("not a gate", key="--gate", value=gate, rule="the run of a gate")
        chosen = require(wanted, named)
    return chosen.admission(), measured(chosen)


def _check(spec: RunSpec, measured: Measured | None) -> None:
    """Print what the checks find; for a convergence run what it takes, too. Ends the command on an error."""
    from datetime import datetime, timezone

    from seatrial.check.estimate import estimate
    from seatrial.report.estimate import statement

    measured = measured or measured_by_a_gate(spec)
    refuse_errors(checked(spec, measured=measured))
    if spec.kind == "convergence":
        typer.echo("\n".join(statement(estimate(spec, measured), datetime.now(timezone.utc))))


def _both(gate_spec: RunSpec, spec: RunSpec, detach: bool, allow_dirty: bool, require_head: str | None) -> RunFolder:
    """Submit the gate and the run; unless detached, see the gate through. Returns the run's folder."""
    from seatrial.slurm.after_gate import submit_after_gate
    from seatrial.slurm.submit import submit

    if spec.profile["executor"] == "local":
        verdict, admission = gate_here(spec, gate_spec, allow_dirty=allow_dirty, require_head=require_head)
        if admission is None:
            typer.echo(f"the run was not submitted: the verdict of its gate is {verdict}")
            raise typer.Exit(1)
        folder = submit(spec, allow_dirty=allow_dirty, require_head=require_head, admission=admission).folder
        typer.echo(f"run folder: {folder.path}")
        return folder
    pair = submit_after_gate(gate_spec, spec, allow_dirty=allow_dirty, require_head=require_head)
    typer.echo(f"gate's run folder: {pair.gate.folder.path}\nrun folder: {pair.run.folder.path}")
    if not detach and follow_first(pair, int(gate_spec.gate["steps"])) != "PASS":
        raise typer.Exit(1)
    return pair.run.folder


def follow_run(folder: RunFolder, steps: int) -> int:
    """Follow the run until its supervisor has decided to end it, or its job is gone; return the exit code."""
    from seatrial.report.facts import read_facts
    from seatrial.report.live import follow
    from seatrial.slurm.runs import at_most_every

    job = at_most_every(_ASK_SECONDS, lambda: _goes_on(folder))
    try:
        follow(folder, steps, lambda: not read_facts(folder).ended and job())
    except KeyboardInterrupt:
        typer.echo(f"\nstopped following; the run goes on: seatrial watch {folder.path}", err=True)
        return 130
    return 0 if conclude(folder) else 1


def conclude(folder: RunFolder) -> bool:
    """Print how a run ended; return whether it is done."""
    from seatrial.report.facts import read_facts
    from seatrial.run import records

    facts = read_facts(folder)
    decision = facts.decision if facts.ended else {}
    typer.echo(f"{decision.get('reason') or 'its job ended without a decision of its supervisor'}")
    verdict = records.read_object(folder.verdict) if facts.ended else None
    if verdict is not None:
        typer.echo(f"verdict: {verdict.get('verdict')} (seatrial verdict {folder.path.name})")
    typer.echo(f"run folder: {folder.path}")
    return decision.get("decision") == "done"


def _goes_on(folder: RunFolder) -> bool:
    """Return whether the run's job may still do something; one that waits in vain for its gate is cancelled."""
    from seatrial.cli.runs import run_job, state_of
    from seatrial.slurm.after_gate import withdraw
    from seatrial.slurm.client import Slurm
    from seatrial.slurm.state_needs import dependency_failed

    state = state_of(run_job(folder))
    if dependency_failed(state.state, state.reason):
        typer.echo(withdraw(folder, "the gate it waited for did not pass", Slurm()))
        return False
    return not state.final
