"""What `seatrial tend` knows of runs: their folders are read, Slurm is asked once for all of them. Writes nothing."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.batch_host import batch_hosts
from seatrial.slurm.client import Slurm
from seatrial.slurm.facts import parse_config
from seatrial.slurm.jobs import RunJob, job_states
from seatrial.slurm.requeue import read_document
from seatrial.slurm.state_records import UNKNOWN, JobState
from seatrial.slurm.table import from_iso
from seatrial.slurm.tend_rules import Case, Host
from seatrial.supervise import termination
from seatrial.supervise.history import History, read_history

BY = "tend"
EVENT = "tended"


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it. ``unreadable``: why it cannot be read; then the rest is empty."""

    folder: RunFolder
    document: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    history: History = field(default_factory=History)
    unreadable: str = ""

    @property
    def settled(self) -> str | None:
        """The reason of its final decision, unless a person has asked for more since."""
        decision = self.history.decision
        if decision.get("decision") not in ("done", "stop") or self.history.request.open:
            return None
        return f"{decision['decision']}: {decision.get('reason')}"

    @property
    def submitted(self) -> list[Mapping[str, Any]]:
        """Its submissions, oldest first."""
        return [event for event in self.events if event.get("event") == "submitted"]

    @property
    def job(self) -> RunJob:
        """Its newest submission."""
        sent = self.submitted
        host = str((self.document.get("provenance") or {}).get("host") or "")
        return RunJob(self.folder.path, sent[-1] if sent else {}, host)


def read_run(folder: RunFolder) -> Run:
    """Return what the folder tells. Never raises: one that cannot be read keeps no other from being tended."""
    try:
        run = Run(folder, read_document(folder), records.read_objects(folder.events), read_history(folder))
        _ = run.job.on_slurm and run.job.job_id  # raises for what is no job number
        return run
    except (SeatrialError, OSError, ValueError, TypeError, KeyError) as error:
        return Run(folder, unreadable=error.message if isinstance(error, SeatrialError) else repr(error))


def cases(runs: Iterable[Run], slurm: Slurm, named: bool = False) -> dict[Path, Case]:
    """Return folder -> what is known of a run, of those that can be read. ``named``: a person named them."""
    known = [run for run in runs if not run.unreadable]
    open_runs = [run for run in known if run.settled is None]
    states = job_states([run.job for run in open_runs], slurm)
    on_slurm = {run.folder.path: run.job.job_id for run in open_runs if run.job.on_slurm}
    running = {path: job for path, job in on_slurm.items() if states[path].state == "RUNNING"}
    hosts = batch_hosts(running.values(), slurm)
    lost = [path for path in on_slurm if states[path].state == UNKNOWN]
    here = _this_cluster(slurm) if lost else None
    if lost and here is None:
        note = "scontrol does not say which cluster this is"
        states |= {path: replace(states[path], notes=(*states[path].notes, note)) for path in lost}
    found: dict[Path, Case] = {}
    for run in known:
        path = run.folder.path
        if run.settled is not None:
            found[path] = Case(str(run.document["kind"]), _over(run), settled=run.settled)
            continue
        host = hosts.get(running[path]) if path in running else None
        found[path] = replace(case_of(run, states[path], host, time.time()), cluster=_elsewhere(run, here), named=named)
    return found


def case_of(run: Run, job: JobState, host: Host | None, now: float) -> Case:
    """Return what is known of a run whose job is in state ``job``. ``now``: seconds since 1970."""
    submitted = run.submitted
    newest = submitted[-1] if submitted else {}
    number = str(newest.get("job_id") or "")
    log = termination.batch_log(run.folder.path, number)
    written = [at for path in (run.folder.events, run.folder.metrics) if (at := _modified(path)) is not None]
    ended = from_iso(job.ended or "")
    sent = from_iso(_since(newest))
    mine = [event for event in run.events if event.get("event") == EVENT and event.get("job_id") == number]
    return Case(
        kind=str(run.document["kind"]), job=job, executor=str(newest.get("executor") or ""),
        age=None if sent is None else now - sent, silent=now - max(written) if written else None,
        gone=None if ended is None else now - ended, begun=_begun(run.events, newest, log),
        said=termination.said_in(log, number) or "",
        untaken=_in_a_row(submitted, _newest(run.events, "supervisor_started")),
        unbegun=_in_a_row(submitted, _newest(run.events, "attempt_started")), host=host,
        held_by_tend=newest.get("by") == BY and not mine,
        requeued=any(
            event.get("action") == "requeue" and str(event.get("time")) >= (job.started or "") for event in mine
        ),
        owner=_owner(newest),
    )  # fmt: skip


def _over(run: Run) -> JobState:
    newest = run.job.submitted
    return JobState("ENDED", True, "", "run folder", str(newest.get("job_id") or "") or None)


def _owner(newest: Mapping[str, Any]) -> str:
    """Return the number of the user who submitted it, where that is somebody else."""
    user = str(newest.get("user") or "")
    return user if user.isdecimal() and user != str(os.getuid()) else ""


def _this_cluster(slurm: Slurm) -> str | None:
    done = slurm.question(["scontrol", "show", "config"], seconds=slurm.status_seconds)
    return parse_config(done.stdout).get("ClusterName") or None if done.ok else None


def _elsewhere(run: Run, here: str | None) -> str:
    """Return the cluster of the run's job, "?" where nobody can say; empty where it is ``here``, or was asked by name.

    Clusters may share their folders of runs: that one of them does not know a job of another says nothing.
    """
    newest = run.job.submitted
    if not run.job.on_slurm or newest.get("cluster"):
        return ""
    started = [event for event in run.events if event.get("event") == "supervisor_started"]
    told = [str(event["cluster"]) for event in started if event.get("cluster")]
    if not told:
        return "" if run.job.host == socket.gethostname() else "?"
    return "" if told[-1] == here else told[-1]


def _begun(events: Sequence[Mapping[str, Any]], newest: Mapping[str, Any], log: Path) -> bool:
    """Return whether the job ran when it was last heard of. One that went back to the queue waited there."""
    told = [
        event for event in events
        if event.get("event") in ("supervisor_started", "returned") and str(event.get("time", "")) >= _since(newest)
    ]  # fmt: skip
    if not told:
        return log.is_file()
    return told[-1].get("event") == "supervisor_started" or not told[-1].get("done")


def _in_a_row(submitted: Sequence[Mapping[str, Any]], taken_up: str) -> int:
    """Count the newest submissions, all by tend, that came after ``taken_up``."""
    count = 0
    for event in reversed(submitted):
        if event.get("by") != BY or _since(event) <= taken_up:
            break
        count += 1
    return count


def _newest(events: Sequence[Mapping[str, Any]], name: str) -> str:
    return max((str(event.get("time", "")) for event in events if event.get("event") == name), default="")


def _since(submitted: Mapping[str, Any]) -> str:
    """Return the time from which events belong to this submission: a quick job writes before the submission does."""
    return str(submitted.get("submit_time") or submitted.get("time") or "")


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
