"""`seatrial gate`: check, submit, follow, judge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from seatrial.cli import complete
from seatrial.cli.options import (
    EXIT_CODES,
    AgainstOption,
    AllowDirtyFlag,
    EngineOption,
    KindName,
    ProfileOption,
    RecipeArgument,
    RequireHeadOption,
    SetOption,
    with_engine,
)
from seatrial.cli.resolving import checked, refuse_errors, resolved
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.slurm.admission import Admission
    from seatrial.slurm.after_gate import Pair
    from seatrial.slurm.submit import Submission
    from seatrial.spec.runspec import RunSpec


def gate(
    recipe: RecipeArgument = None,
    profile: ProfileOption = "local-cpu",
    set_: SetOption = None,
    engine: EngineOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return after submission; do not follow.")] = False,
    here: Annotated[bool, typer.Option("--here", help="Run on the allocation that this shell is in.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep its checkpoints after the verdict.")] = False,
    drill: Annotated[
        Optional[str],
        typer.Option("--drill", metavar="FAULT[@STEP]", help="Put a fault in; it passes only if it recovers."),
    ] = None,
    reference: Annotated[
        Optional[str],
        typer.Option(metavar="RUN", help="The undisturbed gate of a drill.", autocompletion=complete.runs),
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--all-nodes", help="Gates side by side, over a set of nodes.")] = False,
    nodes: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="--all-nodes: these, as gb200-[001-016]; else the partition's."),
    ] = None,
    at_most: Annotated[Optional[int], typer.Option(min=1, help="--all-nodes: so many gates at a time.")] = None,
    second_round: Annotated[
        bool, typer.Option("--second-round/--no-second-round", help="--all-nodes: try suspects with good nodes.")
    ] = True,
    resume: Annotated[Optional[str], typer.Option(metavar="ID", help="--all-nodes: follow earlier ones again.")] = None,
    resume_check: Annotated[
        Optional[bool],
        typer.Option("--resume-check/--no-resume-check", help="Train again from the save before; on hardware, yes."),
    ] = None,
    against: AgainstOption = None,
    allow_dirty: AllowDirtyFlag = False,
    require_head: RequireHeadOption = None,
) -> None:
    """Submit the 100-step gate, follow it, judge it."""
    from seatrial.slurm.here import run_here
    from seatrial.slurm.submit import submit
    from seatrial.spec.judging import held_against, with_resume_check

    if here and detach:
        raise SeatrialError("--here runs in the foreground", key="--detach", fix="leave one of the two out")
    settings = with_engine(set_, engine) + (["profile.recovery.gate_checkpoints=true"] if keep else [])
    if all_nodes:
        from seatrial.cli.all_nodes import ONE_GATE, run_all_nodes

        spec = resolved(recipe, profile, KindName.gate, [*settings, *ONE_GATE])
        spec = held_against(with_resume_check(spec, resume_check or False), against)
        run_all_nodes(
            spec, nodes=nodes, at_most=at_most, again=second_round, resume=resume, detach=detach,
            other={"--here": here, "--drill": drill, "--reference": reference}, allow_dirty=allow_dirty,
            require_head=require_head,
        )  # fmt: skip
        return
    for option, given in (("--nodes", nodes), ("--at-most", at_most), ("--resume", resume)):
        if given is not None:
            raise SeatrialError(f"{option} is one of --all-nodes", key=option, value=given, fix="add --all-nodes")
    spec = resolved(recipe, profile, KindName.gate, settings)
    spec = held_against(with_resume_check(spec, resume_check), against)
    if drill is not None:
        from seatrial.cli.drilling import run_drill

        run_drill(spec, drill, reference, detach=detach, here=here, allow_dirty=allow_dirty, require_head=require_head)
        return
    if reference is not None:
        raise SeatrialError("--reference is a drill's", key="--reference", value=reference, fix="--drill FAULT@STEP")
    refuse_errors(checked(spec, ask_slurm=not here))
    submission = (run_here if here else submit)(spec, allow_dirty=allow_dirty, require_head=require_head)
    tell(submission)
    if not detach:
        raise typer.Exit(EXIT_CODES[follow_gate(submission, int(spec.gate["steps"]))])


def tell(submission: Submission, what: str = "run folder") -> None:
    """Print where a submitted run lies, and which nodes it must not get."""
    typer.echo(f"{what}: {submission.folder.path}")
    if submission.excluded:
        typer.echo(f"nodes left out: {', '.join(submission.excluded)} (seatrial nodes says why)")


def gate_here(spec: RunSpec, gate: RunSpec, **source: Any) -> tuple[str, Admission | None]:
    """Run ``gate`` in the foreground; return its verdict, and where it passed what it admits ``spec`` by.

    ``source``: what the submission is told of the source tree.
    """
    from seatrial.slurm.admission import Wanted, read_gate, require
    from seatrial.slurm.submit import submit

    first = submit(gate, **source)
    typer.echo(f"gate's run folder: {first.folder.path}")
    verdict = follow_gate(first, int(gate.gate["steps"]))
    passed = read_gate(first.folder)
    if verdict != "PASS" or passed is None:
        return verdict, None
    return verdict, require(Wanted.of(spec), passed).admission("after-gate")


def follow_first(pair: Pair, steps: int) -> str:
    """Follow the gate that a run waits for; return its verdict. The run is withdrawn where that is not PASS."""
    from seatrial.slurm.after_gate import withdraw
    from seatrial.slurm.client import Slurm

    verdict = follow_gate(pair.gate, steps)
    if verdict != "PASS":
        why = f"the verdict of gate {pair.gate.folder.path.name} is {verdict}"
        typer.echo(withdraw(pair.run.folder, why, Slurm()))
    return verdict


def follow_gate(submission: Submission, steps: int) -> str:
    """Follow a gate to its end, print its verdict and return it. Ctrl-C ends the command, and not the gate."""
    from seatrial.judge.gate import judge_run
    from seatrial.report.live import follow
    from seatrial.report.terminal import print_verdict

    folder = submission.folder
    try:
        judged = follow(folder, steps, submission.alive)
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
    return str(verdict["verdict"])
