"""Options and arguments that several commands share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from seatrial.cli import complete


class KindName(str, Enum):
    """The kinds of run."""

    gate = "gate"
    convergence = "convergence"


RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Folder, id or unique prefix.", autocompletion=complete.runs)
]
RunArguments = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="[RUN]...", help="Folders, ids or unique prefixes; groups.", autocompletion=complete.runs),
]
GroupArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Folder, id or unique prefix; or a group.", autocompletion=complete.runs)
]
RunsOption = Annotated[
    Optional[Path], typer.Option("--runs", metavar="DIR", help="Where runs lie: ./runs and the site file's.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]

RecipeArgument = Annotated[
    Optional[str],
    typer.Argument(
        help="Recipe name, alias, or YAML file; MODEL_RECIPE_NAME where none is named.",
        autocompletion=complete.recipes,
    ),
]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile", "-p", help="Cluster profile: a shipped name or a YAML file.", autocompletion=complete.profiles
    ),
]
SetOption = Annotated[
    Optional[list[str]],
    typer.Option("--set", metavar="KEY=VALUE", help="Set section.key or profile.key for this run; repeatable."),
]
EngineOption = Annotated[
    Optional[str],
    typer.Option("--engine", metavar="NAME", help="Whose loop trains: megatron-core, or the image's megatron-bridge."),
]
KindOption = Annotated[KindName, typer.Option(help="The kind of run.")]
AgainstOption = Annotated[
    Optional[Path], typer.Option("--against", metavar="FILE", help="Hold loss and speed against this reference.")
]
AllowDirtyFlag = Annotated[bool, typer.Option("--allow-dirty", help="Run uncommitted source, recorded.")]
RequireHeadOption = Annotated[
    Optional[str], typer.Option("--require-head", metavar="SHA", help="Refuse any other commit.")
]


def with_engine(settings: Optional[list[str]], engine: Optional[str]) -> list[str]:
    """Return the settings, and that of the engine where one is named."""
    return [*(settings or []), *([f"engine={engine}"] if engine else [])]


# What a verdict makes of a command's exit code.
EXIT_CODES = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}
