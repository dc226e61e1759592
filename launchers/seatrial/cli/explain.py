"""`seatrial explain`: why a run went as it did."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.cli.options import JsonFlag, RunArgument, RunsOption
from seatrial.cli.runs import find_run, run_job, runs_folders, state_of

if TYPE_CHECKING:
    from seatrial.run.layout import RunFolder


def explain(
    run: RunArgument,
    attempt: Annotated[Optional[int], typer.Option("--attempt", min=0, help="Only this one.")] = None,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say why a run went as it did: its attempts, why they ended, the decisions, and where the time went."""
    from seatrial.report.explain import explanation
    from seatrial.report.explain_words import lines

    folder = find_run(run, runs_folders(runs))
    data = explanation(folder, still_going(folder), attempt)
    if as_json:
        typer.echo(json.dumps(data, indent=2))
        return
    typer.echo("\n".join(lines(data)))


def still_going(folder: RunFolder) -> float | None:
    """Return the time in seconds since 1970 if the run goes on; None if it is over, or its job is."""
    from seatrial.report.facts import read_facts

    return None if read_facts(folder).ended or state_of(run_job(folder)).final else time.time()
