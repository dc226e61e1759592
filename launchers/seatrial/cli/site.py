"""`init` drafts the site file; `sandbox` runs a real Slurm on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(init)
    app.add_typer(_sandbox(), name="sandbox")


def init(
    write: Annotated[bool, typer.Option("--write", help="Write it, where there is none yet.")] = False,
) -> None:
    """Draft site.yaml from what this Slurm says: account, partition, GPUs, capabilities. Guesses are marked."""
    from seatrial.slurm import site_draft
    from seatrial.slurm.check_facts import ask, for_a_person
    from seatrial.slurm.client import Slurm
    from seatrial.spec.library import site_file

    text = site_draft.draft(ask(for_a_person(Slurm())))
    if write:
        site_draft.write(text, site_file())
        typer.echo(f"wrote {site_file()}: read it, then add what is missing", err=True)
    typer.echo(text, nl=False)


def _sandbox() -> typer.Typer:
    """Return the commands; their options are the sandbox's own, which it parses itself."""
    group = typer.Typer(no_args_is_help=True, help="A real Slurm on this machine, to try things on.")
    for name, text in (
        ("up", "Start it, or what is missing of it; prints what a shell needs to reach it."),
        ("down", "End its jobs and daemons."),
        ("status", "Say what runs."),
    ):
        group.command(name, help=text, context_settings=_PASSED_ON, add_help_option=False)(_pass_on)
    return group


def _pass_on(context: typer.Context) -> None:
    from seatrial.sandbox.__main__ import main

    raise typer.Exit(main([str(context.info_name), *context.args]))
