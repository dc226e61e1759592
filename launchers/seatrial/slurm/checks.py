"""`seatrial check` against a site's Slurm: what it says of itself, and what sbatch says to the very script."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seatrial.check.blame import Finding, profile
from seatrial.errors import SeatrialError
from seatrial.slurm.check_access import check_admission, check_names, chosen_partitions
from seatrial.slurm.check_facts import Site, ask, for_a_person
from seatrial.slurm.check_files import check_files
from seatrial.slurm.check_policy import check_policy
from seatrial.slurm.check_size import check_nodes, check_time, check_user_limit, fitting_nodes, nodes_needed
from seatrial.slurm.check_trackers import check_trackers
from seatrial.slurm.client import Slurm
from seatrial.slurm.facts import Partition
from seatrial.slurm.script import batch_script
from seatrial.slurm.submit import placed
from seatrial.spec.runspec import RunSpec

_START = re.compile(r"to start at (\S+) using (\d+) processors on nodes (\S+) in partition (\S+)")
# What --test-only says of nodes that are down or drained, too; a real job would be queued then.
_NOT_NOW = ("node configuration is not available", "required node not available", "not available now")


def slurm_findings(spec: RunSpec, slurm: Slurm, run_id: str) -> list[Finding]:
    """Return what is wrong with ``spec`` on this Slurm, for a profile that submits there; else nothing.

    Nothing is queued, and nothing is written but a temporary file with the script of ``run_id`` for
    ``sbatch --test-only``. What cannot be asked (no Slurm here, accounting down) is a note, never an error.
    Raises nothing for what Slurm answers.
    """
    if spec.profile["executor"] != "slurm":
        return []
    spec = placed(spec)
    quick = for_a_person(slurm)
    site = ask(quick)
    found = [*check_files(spec, slurm.environment), *check_trackers(spec, slurm.environment)]
    if site.config is None:
        return [*found, *_unasked(spec, site)]
    out_of_service = any(_out_of_service(spec, site, partition) for partition in chosen_partitions(spec, site))
    return [
        *found,
        *check_names(spec, site),
        *_partitions(spec, site),
        *check_policy(spec, site),
        *_unasked(spec, site),
        *_test_only(spec, replace(slurm, retry=quick.retry), run_id, out_of_service),
    ]


def _partitions(spec: RunSpec, site: Site) -> list[Finding]:
    """Check each partition that the job may go to; where one of several takes it, the others only warn."""
    found = [
        list(itertools.chain.from_iterable(
            check(spec, site, partition) for check in (check_admission, check_time, check_nodes, check_user_limit)
        ))
        for partition in chosen_partitions(spec, site)
    ]  # fmt: skip
    if any(all(f.severity != "error" for f in findings) for findings in found):
        found = [[replace(f, severity="warning") if f.severity == "error" else f for f in part] for part in found]
    return list(dict.fromkeys(itertools.chain.from_iterable(found)))


def _unasked(spec: RunSpec, site: Site) -> Iterator[Finding]:
    """One note for each reason why something could not be asked."""
    if not site.accounting:
        site = replace(site, unasked={k: v for k, v in site.unasked.items() if "accounting_storage" not in v.lower()})
    for words in dict.fromkeys(site.unasked.values()):
        what = ", ".join(question for question, said in site.unasked.items() if said == words)
        rule = f"could not ask Slurm: {words}" if site.config is None else f"could not ask Slurm about {what}: {words}"
        yield profile(spec, "executor", rule, severity="note", value="slurm")


def _out_of_service(spec: RunSpec, site: Site, partition: Partition) -> bool:
    """Whether enough nodes fit the job, but not enough of them are in service now."""
    fitting = fitting_nodes(spec, site, partition)
    return len([node for node in fitting if node.usable]) < nodes_needed(spec) <= len(fitting)


def _test_only(spec: RunSpec, slurm: Slurm, run_id: str, out_of_service: bool) -> Iterator[Finding]:
    """Let sbatch judge the script that would be submitted."""
    try:
        script = batch_script(spec, run_id)
    except SeatrialError as error:
        yield Finding(
            "error",
            error.key or "profile",
            error.value,
            error.rule or error.message,
            str(error.file or ""),
            error.fix or "",
        )
        return
    with tempfile.TemporaryDirectory(prefix="seatrial-") as folder:
        path = Path(folder) / "batch.sh"
        path.write_text(script)
        answer = slurm.test_only(["sbatch", str(path)])
    words = " ".join(answer.words.replace(str(path), "batch.sh").split())
    if answer.accepted is None:
        rule = f"could not ask sbatch --test-only: {words}"
        yield profile(spec, "executor", rule, severity="note", value="slurm")
    elif answer.accepted:
        start = _START.search(words)
        rule = "Slurm would take the job" + (f"; it might start at {start[1]} on {start[3]}" if start else f": {words}")
        yield profile(spec, "executor", rule, severity="note", value="slurm")
    elif out_of_service and any(text in words.lower() for text in _NOT_NOW):
        rule = f"with the nodes in service now, Slurm says: {words}"
        yield profile(spec, "executor", rule, "the job would wait", severity="warning", value="slurm")
    else:
        fix = "mend what the other findings and Slurm's words name"
        yield profile(spec, "executor", f"sbatch --test-only refuses the job: {words}", fix, value="slurm")
