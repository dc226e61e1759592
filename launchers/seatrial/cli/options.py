"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from seatrial.cli import complete

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Folder, id or unique prefix.", autocompletion=complete.runs)
]
RunArguments = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="[RUN]...", help="Folders, ids or unique prefixes.", autocompletion=complete.runs),
]
RunsOption = Annotated[
    Optional[Path], typer.Option("--runs", metavar="DIR", help="Where runs lie: ./runs and the site file's.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
