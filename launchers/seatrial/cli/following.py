"""`watch` and `logs`: follow a run, and change nothing about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.cli.options import GroupArgument, RunArgument, RunsOption
from seatrial.cli.runs import alive, find_run, find_runs, run_job, runs_folders, state_of

if TYPE_CHECKING:
    from seatrial.run.layout import RunFolder


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(watch)
    app.command()(logs)


def watch(run: GroupArgument, runs: RunsOption = None) -> None:
    """Watch a run until it ends; q or Ctrl-C leaves it running. The exit code of a run that ended is that of `gate`.

    The runs of a group are followed together, as converge does.
    """
    from seatrial.report.facts import read_facts
    from seatrial.report.terminal import console
    from seatrial.report.watch_live import End
    from seatrial.report.watch_live import watch as follow

    named = find_runs(run, runs_folders(runs))
    if named.group is not None:
        from seatrial.cli.following_group import follow_group

        raise typer.Exit(follow_group(named.group))
    (folder,) = named.runs
    total = read_facts(folder).total
    end = follow(folder, total, lambda: state_of(run_job(folder)), console())
    if end is End.OVER:
        raise typer.Exit(_conclude(folder))
    typer.echo(f"stopped watching; the run goes on: seatrial watch {folder.path.name}", err=True)
    raise typer.Exit(0 if end is End.LEFT else 130)


def logs(
    run: RunArgument,
    rank: Annotated[
        Optional[str], typer.Option("--rank", metavar="N", help="A rank's log; `last` prints the training lines.")
    ] = None,
    attempt: Annotated[Optional[int], typer.Option("--attempt", min=0, help="Of the rank's log; the newest.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines from the end.")] = 100,
    runs: RunsOption = None,
) -> None:
    """Print the end of the batch log, or of a rank's."""
    from seatrial.report import logs as files

    folder = find_run(run, runs_folders(runs))
    if rank is None and attempt is not None:
        rank = files.LAST

    def choose() -> Path:
        if rank is None:
            return files.batch_log(folder, dict(run_job(folder).submitted))
        return files.rank_log(folder, rank, attempt)

    path = choose()
    text, end = files.last_lines(path, lines)
    sys.stdout.buffer.write(text)
    sys.stdout.flush()
    if not follow:
        return
    try:
        files.follow(choose, path, end, alive(folder), sys.stdout.buffer)
    except KeyboardInterrupt:
        typer.echo("stopped following; the run goes on", err=True)
        raise typer.Exit(130) from None


def _conclude(folder: RunFolder) -> int:
    """Print how a run ended; return the exit code."""
    from seatrial.cli.options import EXIT_CODES
    from seatrial.judge.gate import judge_run
    from seatrial.report.decisions import class_words
    from seatrial.report.explain import goodput_of
    from seatrial.report.explain_words import goodput_words
    from seatrial.report.facts import read_facts
    from seatrial.report.terminal import print_verdict
    from seatrial.run import records

    facts = read_facts(folder)
    if facts.kind == "gate":
        verdict = records.read_json(folder.verdict) or judge_run(folder.path).to_json()
        print_verdict(verdict)
    code = facts.decision.get("exit_code") if facts.ended else None
    words = facts.decision.get("reason") if facts.ended else "its job ended without a decision of its supervisor"
    goodput = goodput_of(folder, None).to_json()
    count, named = goodput["attempts"], facts.decision.get("class")
    attempts = f"{count} attempt{'' if count == 1 else 's'}" + (f", the last: {class_words(named)}" if named else "")
    typer.echo(f"{words}\n{attempts}; {goodput_words(goodput)}\nrun folder: {folder.path}")
    return EXIT_CODES[verdict["verdict"]] if facts.kind == "gate" else 0 if code == 0 else 1
