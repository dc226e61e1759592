"""From a command's words to a resolved and checked spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seatrial.cli.options import KindName
from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.check.findings import Finding
    from seatrial.spec.runspec import RunSpec


def resolved(recipe: str | None, profile: str, kind: KindName, settings: list[str] | None) -> RunSpec:
    """Resolve; ``settings`` are the texts of --set."""
    from seatrial.spec.resolve import resolve

    return resolve(recipe, profile, kind.value, [_pair(text) for text in settings or []])


def checked(spec: RunSpec, *, ask_slurm: bool = True) -> list[Finding]:
    """Return what the offline checks find and, for a profile of a cluster, what its Slurm says."""
    from seatrial.check.findings import run_checks
    from seatrial.slurm.submit import prepare

    prepare(spec)
    findings = list(run_checks(spec))
    if ask_slurm and spec.profile["executor"] == "slurm" and not any(f.severity == "error" for f in findings):
        from seatrial.run.layout import new_run_id
        from seatrial.slurm.checks import slurm_findings
        from seatrial.slurm.client import Slurm

        findings += slurm_findings(spec, Slurm(), new_run_id(spec.recipe, spec.kind))
    return findings


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SeatrialError("--set takes KEY=VALUE", value=text, fix="for example --set schedule.train_iters=200")
    return key, value
