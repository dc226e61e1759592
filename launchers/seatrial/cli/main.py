"""The `seatrial` command. What a command needs is imported when it runs."""

from __future__ import annotations

import sys

import typer

from seatrial.cli import verbs
from seatrial.cli.compare import compare, reference
from seatrial.cli.converge import converge
from seatrial.cli.gate import gate
from seatrial.cli.looking import check, render, verdict
from seatrial.cli.nodes import nodes
from seatrial.cli.prune import prune
from seatrial.cli.report import report
from seatrial.cli.requeue import requeue
from seatrial.cli.tend import tend
from seatrial.errors import SeatrialError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done or PASS, 1 FAIL, 2 a mistake to mend, 3 INCONCLUSIVE, 130 stopped following.",
    help="Hardware gates and self-healing convergence runs for LLM pretraining.",
)
for command in (gate, converge, render, check, verdict, compare, reference, report):
    app.command()(command)
verbs.register(app)
app.command()(requeue)
app.command()(tend)
app.command()(prune)
app.command()(nodes)


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
