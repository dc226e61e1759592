"""Commands that change nothing: render, check, verdict."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from seatrial.cli import complete
from seatrial.cli.options import (
    EXIT_CODES,
    AgainstOption,
    EngineOption,
    JsonFlag,
    KindName,
    KindOption,
    ProfileOption,
    RecipeArgument,
    SetOption,
    with_engine,
)
from seatrial.cli.resolving import checked, resolved
from seatrial.errors import SeatrialError


class Form(str, Enum):
    """What `render` can print."""

    yaml = "yaml"
    json = "json"
    args = "args"
    sbatch = "sbatch"


def render(
    recipe: RecipeArgument = None,
    profile: ProfileOption = "local-cpu",
    kind: KindOption = KindName.gate,
    set_: SetOption = None,
    engine: EngineOption = None,
    form: Annotated[Form, typer.Option("--format", help="What to print.")] = Form.yaml,
    run_id: Annotated[Optional[str], typer.Option("--run-id", help="The run that --format sbatch renders.")] = None,
) -> None:
    """Print what would run: resolved fields with sources, the diff against the recipe, the arguments, the script."""
    from seatrial.spec.render import render as text

    spec = resolved(recipe, profile, kind, with_engine(set_, engine))
    if form is not Form.sbatch:
        typer.echo(text(spec, form.value), nl=False)
        return
    from seatrial.run.layout import new_run_id
    from seatrial.slurm.script import batch_script
    from seatrial.slurm.submit import placed

    typer.echo(batch_script(placed(spec), run_id or new_run_id(spec.recipe, spec.kind)), nl=False)


def check(
    recipe: RecipeArgument = None,
    profile: ProfileOption = "local-cpu",
    kind: KindOption = KindName.gate,
    set_: SetOption = None,
    engine: EngineOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also feed Megatron's own parser and validation.")] = False,
    image: Annotated[bool, typer.Option("--image", help="Also look into the image, with one task on a node.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask Slurm.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find what is wrong before anything is queued."""
    from seatrial.report.terminal import print_findings

    spec = resolved(recipe, profile, kind, with_engine(set_, engine))
    findings = checked(spec, ask_slurm=not offline)
    stand_in: list[str] = []
    if deep:
        from seatrial.check.deep import deep_check

        more, stand_in = deep_check(spec)
        findings += more
    if image:
        from seatrial.slurm.client import Slurm
        from seatrial.slurm.image import check_image

        findings += check_image(spec, Slurm())
    errors = any(f.severity == "error" for f in findings)
    if as_json:
        data = {"ok": not errors, "stand_in": stand_in, "findings": [f.to_json() for f in findings]}
        typer.echo(json.dumps(data, indent=2))
    else:
        print_findings(findings)
        if stand_in:
            typer.echo(f"checked by Megatron under a stand-in for: {', '.join(stand_in)}")
        typer.echo("not fit to run" if errors else "fit to run")
    raise typer.Exit(2 if errors else 0)


def verdict(
    run: Annotated[
        Optional[str], typer.Argument(help="Folder, id or unique prefix.", autocompletion=complete.runs)
    ] = None,
    log: Annotated[
        Optional[list[Path]], typer.Option("--log", help="Judge a Megatron log instead; repeatable.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that a log should have.")] = 100,
    against: AgainstOption = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of verdict.json.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Judge a run, or anybody's Megatron log."""
    from seatrial.cli.runs import find_run, runs_folders
    from seatrial.judge.gate import judge_logs
    from seatrial.judge.judging import judge_folder
    from seatrial.judge.verdict import schema as published
    from seatrial.report.terminal import print_verdict
    from seatrial.run.reference import Held, read_reference

    if schema:
        typer.echo(json.dumps(published(), indent=2))
        return
    if bool(run) == bool(log):
        raise SeatrialError("name a run folder or --log FILE, one of the two", fix="seatrial verdict RUN")
    held = Held(read_reference(against), asked=True) if against else None
    if log:
        judged = judge_logs(log, steps=steps, save_steps=tuple(sorted({steps // 2, steps} - {0})), held=held)
    else:
        judged = judge_folder(find_run(str(run), runs_folders(None)).path, held=held)
    data = judged.to_json()
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    else:
        print_verdict(data)
    raise typer.Exit(EXIT_CODES[data["verdict"]])
