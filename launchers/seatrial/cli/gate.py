"""`seatrial gate`: check, submit, follow, judge."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seatrial.cli.options import (
    EXIT_CODES,
    AllowDirtyFlag,
    KindName,
    ProfileOption,
    RecipeArgument,
    RequireHeadOption,
    SetOption,
)
from seatrial.cli.resolving import checked, resolved
from seatrial.errors import SeatrialError


def gate(
    recipe: RecipeArgument = None,
    profile: ProfileOption = "local-cpu",
    set_: SetOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return after submission; do not follow.")] = False,
    here: Annotated[bool, typer.Option("--here", help="Run on the allocation that this shell is in.")] = False,
    allow_dirty: AllowDirtyFlag = False,
    require_head: RequireHeadOption = None,
) -> None:
    """Submit the 100-step gate, follow it, judge it."""
    from seatrial.judge.gate import judge_run
    from seatrial.report.live import follow
    from seatrial.report.terminal import print_findings, print_verdict
    from seatrial.slurm.here import run_here
    from seatrial.slurm.submit import submit

    if here and detach:
        raise SeatrialError("--here runs in the foreground", key="--detach", fix="leave one of the two out")
    spec = resolved(recipe, profile, KindName.gate, set_)
    findings = checked(spec, ask_slurm=not here)
    print_findings(f for f in findings if f.severity != "note")
    if any(f.severity == "error" for f in findings):
        raise typer.Exit(2)
    submission = (run_here if here else submit)(spec, allow_dirty=allow_dirty, require_head=require_head)
    folder = submission.folder
    typer.echo(f"run folder: {folder.path}")
    if detach:
        return
    try:
        judged = follow(folder, int(spec.gate["steps"]), submission.alive)
    except KeyboardInterrupt:
        typer.echo(f"\nstopped following; the run goes on: seatrial watch {folder.path}", err=True)
        raise typer.Exit(130) from None
    if judged:
        verdict = json.loads(folder.verdict.read_text())
    else:
        # The records are enough to judge; what is missing in them is never a PASS.
        typer.echo("the job ended without a verdict of its own; judging what it left", err=True)
        verdict = judge_run(folder.path).to_json()
    print_verdict(verdict)
    typer.echo(f"run folder: {folder.path}")
    raise typer.Exit(EXIT_CODES[verdict["verdict"]])
