"""The `seatrial` command: parse, call, print. What a command needs is imported when it runs."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.check.findings import Finding
    from seatrial.spec.runspec import RunSpec

EXIT_CODES = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}
_EPILOG = "Exit codes: 0 done or PASS, 1 FAIL, 2 a mistake to mend, 3 INCONCLUSIVE."

app = typer.Typer(
    add_completion=True, no_args_is_help=True, pretty_exceptions_enable=False, epilog=_EPILOG,
    help="Hardware gates and self-healing convergence runs for LLM pretraining.",
)  # fmt: skip


class KindName(str, Enum):
    """The kinds of run."""

    gate = "gate"
    convergence = "convergence"


class Form(str, Enum):
    """What `render` can print."""

    yaml = "yaml"
    json = "json"
    args = "args"
    sbatch = "sbatch"


RecipeArgument = Annotated[
    Optional[str],
    typer.Argument(help="Recipe name, alias, or YAML file; MODEL_RECIPE_NAME where none is named."),
]
ProfileOption = Annotated[str, typer.Option("--profile", "-p", help="Cluster profile: a shipped name or a YAML file.")]
SetOption = Annotated[
    Optional[list[str]],
    typer.Option("--set", metavar="KEY=VALUE", help="Set section.key or profile.key for this run; repeatable."),
]
KindOption = Annotated[KindName, typer.Option(help="The kind of run.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def gate(
    recipe: RecipeArgument = None,
    profile: ProfileOption = "local-cpu",
    set_: SetOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return after submission; do not follow.")] = False,
    allow_dirty: Annotated[bool, typer.Option("--allow-dirty", help="Run uncommitted source, recorded.")] = False,
    require_head: Annotated[
        Optional[str], typer.Option("--require-head", metavar="SHA", help="Refuse any other commit.")
    ] = None,
) -> None:
    """Submit the 100-step gate, follow it, judge it."""
    from seatrial.judge.gate import judge_run
    from seatrial.report.live import follow
    from seatrial.report.terminal import print_findings, print_verdict
    from seatrial.slurm.submit import submit

    spec = _resolve(recipe, profile, KindName.gate, set_)
    findings = _checked(spec)
    print_findings(f for f in findings if f.severity != "note")
    if any(f.severity == "error" for f in findings):
        raise typer.Exit(2)
    submission = submit(spec, allow_dirty=allow_dirty, require_head=require_head)
    typer.echo(f"run folder: {submission.folder.path}")
    if detach:
        return
    try:
        judged = follow(submission.folder, int(spec.gate["steps"]), submission.alive)
    except KeyboardInterrupt:
        typer.echo("\nstopped following; the run goes on", err=True)
        raise typer.Exit(130) from None
    if judged:
        verdict = json.loads(submission.folder.verdict.read_text())
    else:
        # The records are enough to judge; what is missing in them is never a PASS.
        typer.echo("the job ended without a verdict of its own; judging what it left", err=True)
        verdict = judge_run(submission.folder.path).to_json()
    print_verdict(verdict)
    typer.echo(f"run folder: {submission.folder.path}")
    raise typer.Exit(EXIT_CODES[verdict["verdict"]])


@app.command()
def render(
    recipe: RecipeArgument = None,
    profile: ProfileOption = "local-cpu",
    kind: KindOption = KindName.gate,
    set_: SetOption = None,
    form: Annotated[Form, typer.Option("--format", help="What to print.")] = Form.yaml,
    run_id: Annotated[Optional[str], typer.Option("--run-id", help="The run that --format sbatch renders.")] = None,
) -> None:
    """Print what would run: resolved fields with sources, the diff against the recipe, the arguments, the script."""
    from seatrial.spec.render import render as text

    spec = _resolve(recipe, profile, kind, set_)
    if form is Form.sbatch:
        from seatrial.run.layout import new_run_id
        from seatrial.slurm.script import batch_script
        from seatrial.slurm.submit import placed

        typer.echo(batch_script(placed(spec), run_id or new_run_id(spec.recipe, spec.kind)), nl=False)
    else:
        typer.echo(text(spec, form.value), nl=False)


@app.command()
def check(
    recipe: RecipeArgument = None,
    profile: ProfileOption = "local-cpu",
    kind: KindOption = KindName.gate,
    set_: SetOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also feed Megatron's own parser and validation.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find what is wrong before anything is queued."""
    from seatrial.report.terminal import print_findings

    spec = _resolve(recipe, profile, kind, set_)
    findings = _checked(spec)
    stand_in: list[str] = []
    if deep:
        from seatrial.check.deep import deep_check

        more, stand_in = deep_check(spec)
        findings += more
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


@app.command()
def verdict(
    run: Annotated[Optional[str], typer.Argument(help="Run folder.")] = None,
    log: Annotated[
        Optional[list[Path]], typer.Option("--log", help="Judge a Megatron log instead; repeatable.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that a log should have.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Judge a run, or anybody's Megatron log."""
    from seatrial.judge.gate import judge_logs, judge_run
    from seatrial.report.terminal import print_verdict
    from seatrial.run.layout import RunFolder

    if bool(run) == bool(log):
        raise SeatrialError("name a run folder or --log FILE, one of the two", fix="seatrial verdict RUN")
    if log:
        judged = judge_logs(log, steps=steps, save_steps=tuple(sorted({steps // 2, steps} - {0})))
    else:
        judged = judge_run(RunFolder.open(str(run)).path)
    data = judged.to_json()
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    else:
        print_verdict(data)
    raise typer.Exit(EXIT_CODES[data["verdict"]])


def _resolve(recipe: str | None, profile: str, kind: KindName, set_: list[str] | None) -> RunSpec:
    from seatrial.spec.resolve import resolve

    return resolve(recipe, profile, kind.value, [_pair(text) for text in set_ or []])


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SeatrialError("--set takes KEY=VALUE", value=text, fix="for example --set schedule.train_iters=200")
    return key, value


def _checked(spec: RunSpec) -> list[Finding]:
    from seatrial.check.findings import run_checks
    from seatrial.slurm.submit import prepare

    prepare(spec)
    return list(run_checks(spec))


def main() -> None:
    """Run the command; a user's mistake ends with one message and exit code 2, never a traceback."""
    try:
        app()
    except SeatrialError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)


if __name__ == "__main__":
    main()
