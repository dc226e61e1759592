"""From a command's words to a resolved and checked spec."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seatrial.cli.options import KindName
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.check.estimate import Measured
    from seatrial.check.findings import Finding
    from seatrial.slurm.admission import Gate
    from seatrial.spec.runspec import RunSpec


def resolved(recipe: str | None, profile: str, kind: KindName, settings: list[str] | None) -> RunSpec:
    """Resolve; ``settings`` are the texts of --set."""
    from seatrial.spec.resolve import resolve

    return resolve(recipe, profile, kind.value, [_pair(text) for text in settings or []])


def gate_settings(settings: list[str] | None) -> list[str]:
    """Return the settings of a convergence run that its gate takes over: not what a gate fixes itself, as its steps."""
    from seatrial.spec.kind import load_kind
    from seatrial.spec.schema import load_schema

    run, gate = (load_kind(kind.value, load_schema()).values for kind in (KindName.convergence, KindName.gate))
    fixed = {key for key, item in gate.items() if item != run.get(key)}
    return [text for text in settings or [] if _pair(text)[0] not in fixed]


def runs_of(spec: RunSpec) -> list[Path]:
    """Return the folders of runs in which a gate of ``spec`` may lie: its profile's, and the known ones."""
    from seatrial.cli.runs import runs_folders

    return [Path(spec.profile["paths"]["runs"]).expanduser(), *runs_folders(None)]


def found_gates(spec: RunSpec) -> list[Gate]:
    """Return all gates there, the newest first."""
    from seatrial.slurm.admission import gates

    return gates(runs_of(spec))


def checked(spec: RunSpec, *, ask_slurm: bool = True, measured: Measured | None = None) -> list[Finding]:
    """Return what the offline checks find and, for a profile of a cluster, what its Slurm says.

    ``measured``: what the gate of a convergence run measured; where it is None, one that would admit it is looked for.
    """
    from seatrial.check.findings import run_checks
    from seatrial.slurm.submit import prepare

    prepare(spec)
    findings = list(run_checks(spec))
    if spec.profile["executor"] == "local":
        from seatrial.slurm.check_trackers import check_trackers

        findings += check_trackers(spec, os.environ)
    if spec.kind == "convergence" and not any(f.severity == "error" for f in findings):
        from seatrial.check.estimate import estimate, judge_estimate

        findings += judge_estimate(spec, estimate(spec, measured or measured_by_a_gate(spec)))
    if ask_slurm and spec.profile["executor"] == "slurm" and not any(f.severity == "error" for f in findings):
        from seatrial.run.layout import new_run_id
        from seatrial.slurm.checks import slurm_findings
        from seatrial.slurm.client import Slurm

        findings += slurm_findings(spec, Slurm(), new_run_id(spec.recipe, spec.kind))
    return findings


def refuse_errors(findings: list[Finding]) -> None:
    """Print what is wrong or doubtful; end the command where something is wrong."""
    from seatrial.report.terminal import print_findings

    print_findings(f for f in findings if f.severity != "note")
    if any(f.severity == "error" for f in findings):
        raise typer.Exit(2)


def measured_by_a_gate(spec: RunSpec) -> Measured | None:
    """Return what the newest gate that would admit a convergence run measured; None where none does."""
    from seatrial.slurm.admission import Wanted, admitting
    from seatrial.slurm.admission_measured import measured

    if spec.kind != "convergence":
        return None
    gate = admitting(Wanted.of(spec), found_gates(spec))
    return measured(gate) if gate else None


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SeatrialError("--set takes KEY=VALUE", value=text, fix="for example --set schedule.train_iters=200")
    return key, value
