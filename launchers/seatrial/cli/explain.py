"""`seatrial explain`: why a run went as it did."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.cli.options import GroupArgument, JsonFlag, RunsOption
from seatrial.cli.runs import find_runs, run_job, runs_folders, state_of
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.run.layout import RunFolder


def explain(
    run: GroupArgument,
    attempt: Annotated[Optional[int], typer.Option("--attempt", min=0, help="Only this one.")] = None,
    runs: RunsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say why a run, or each of a group, went as it did: attempts, why they ended, decisions, where the time went."""
    from seatrial.report.explain import explanation
    from seatrial.report.explain_words import lines

    named = find_runs(run, runs_folders(runs))
    if named.group and attempt is not None:
        raise SeatrialError("--attempt is one run's", key="--attempt", value=attempt, fix="name one run of the group")
    found = [explanation(folder, still_going(folder), attempt) for folder in named.runs]
    if as_json:
        typer.echo(json.dumps({"group": named.group.id, "runs": found} if named.group else found[0], indent=2))
        return
    typer.echo("\n\n".join("\n".join(lines(data)) for data in found))


def still_going(folder: RunFolder) -> float | None:
    """Return the time in seconds since 1970 if the run goes on; None if it is over, or its job is."""
    from seatrial.report.facts import read_facts

    return None if read_facts(folder).ended or state_of(run_job(folder)).final else time.time()
