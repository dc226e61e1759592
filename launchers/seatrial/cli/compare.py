"""`seatrial compare`: are runs the same, and `seatrial reference`: keep one for others to be held against."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from seatrial.cli import complete
from seatrial.cli.options import JsonFlag, RunsOption
from seatrial.cli.runs import find_runs, runs_folders
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.judge.comparison_pair import Tolerance

# Steps that are missing prove nothing: no success, and no difference either.
_EXIT_CODES = {"same": 0, "different": 1, "incomplete": 3, "nothing to compare": 3}


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...",
            autocompletion=complete.runs,
            help="Runs, run groups, Megatron logs (also .gz) or folders of logs; all are held against the first.",
        ),
    ],
    relative: Annotated[
        Optional[float], typer.Option("--relative", help="The band, as a share of the first run's value: 0.01.")
    ] = None,
    absolute: Annotated[Optional[float], typer.Option("--absolute", help="Added to the band: 1e-6.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Bit for bit as printed: for equal layouts.")] = False,
    window: Annotated[
        int, typer.Option("--window", min=1, metavar="N", help="Also compare means over N steps; 1: none.")
    ] = 10,
    first: Annotated[Optional[int], typer.Option("--from", min=1, metavar="STEP", help="The first step.")] = None,
    last: Annotated[Optional[int], typer.Option("--to", min=1, metavar="STEP", help="The last step.")] = None,
    loss: Annotated[
        Optional[list[str]], typer.Option("--loss", metavar="NAME", help="Only this loss; repeatable.")
    ] = None,
    folder: RunsOption = None,
    as_json: JsonFlag = False,
    html: Annotated[Optional[Path], typer.Option("--html", metavar="FILE", help="Write a page.")] = None,
) -> None:
    """Tell whether runs trained the same: curves, first divergence, speed, configuration.

    Exit codes: 0 the same, 1 different, 2 a mistake, 3 nothing to compare, or steps are missing.
    """  # fmt: skip
    from seatrial.judge.comparison import compare_curves
    from seatrial.judge.curves import read_curve

    tolerance = _tolerance(relative, absolute, exact, window, first, last, loss)
    paths = [path for name in runs for path in find_curves(name, folder)]
    if len(paths) < 2:
        raise SeatrialError("one run is nothing to compare", value=runs[0], rule="two or more runs, groups or logs")
    data = compare_curves([read_curve(path) for path in paths], tolerance)
    if html is not None:
        from seatrial.cli.report import write_page
        from seatrial.report.page import compare_page

        write_page(html, compare_page(data))
        typer.echo(f"page: {html}", err=True)
    if as_json:
        typer.echo(json.dumps(data, indent=2, allow_nan=False))
    else:
        from seatrial.report.compare import print_comparison

        print_comparison(data)
    raise typer.Exit(_EXIT_CODES[data["verdict"]])


def reference(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A finished run, a Megatron log or a folder of logs.", autocompletion=complete.runs
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The JSON file to write.")],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is, for people.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    folder: RunsOption = None,
) -> None:
    """Keep the curve and the speed of a run as a reference that others are held against."""
    from seatrial.judge.curves import read_curve
    from seatrial.judge.reference_curve import make_reference, reference_text
    from seatrial.run.records import now

    paths = find_curves(run, folder)
    if len(paths) > 1:
        raise SeatrialError(
            f"{run!r} is a group of {len(paths)} runs", rule="one run", fix=f"name one: {paths[0].name}"
        )
    made = make_reference(read_curve(paths[0]), now(), note)
    if file.exists() and not overwrite:
        raise SeatrialError("the file exists", file=file, fix="name another, or add --overwrite")
    _write(file, reference_text(made))
    rows = f"{len(made['steps'])} steps" + (f", every {made['every']}th after 2,000" if made["every"] > 1 else "")
    typer.echo(f"{file}: {rows}")


def find_curves(name: str, folder: Path | None) -> list[Path]:
    """Return where the curves that ``name`` says lie: a log or a folder, else a run by id, else the runs of a group."""
    path = Path(name).expanduser()
    if name and path.exists():
        return [path]
    return [run.path for run in find_runs(name, runs_folders(folder)).runs]


def _tolerance(
    relative: float | None, absolute: float | None, exact: bool, window: int, first: int | None, last: int | None,
    losses: list[str] | None,
) -> Tolerance:  # fmt: skip
    from seatrial.judge.comparison_pair import Tolerance

    if exact and (relative is not None or absolute is not None):
        raise SeatrialError("--exact leaves no band", key="--exact", fix="--exact, or --relative and --absolute")
    bands = {name: value for name, value in (("relative", relative), ("absolute", absolute)) if value is not None}
    for name, value in bands.items():
        if not 0 <= value < math.inf:
            raise SeatrialError(
                "no band has this width", key=f"--{name}", value=value, rule="a finite number, 0 or more"
            )
    if first is not None and last is not None and first > last:
        raise SeatrialError("no step is asked for", key="--from", value=first, rule=f"at most --to {last}")
    if exact:
        bands = {"relative": 0.0, "absolute": 0.0}
    return Tolerance(window=window, first=first, last=last, losses=tuple(losses or ()), **bands)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SeatrialError(f"cannot write: {error.strerror}", file=file) from error
