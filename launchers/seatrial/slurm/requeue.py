"""Bringing a run back because a person wants it: its own script again, as one new job; or a job of it that is held."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.check.deep import need_megatron
from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm import requeue_profile, requeue_queue, resubmission
from seatrial.slurm.client import CommandFailed, JobId, Slurm
from seatrial.slurm.jobs import RunJob, job_states
from seatrial.slurm.requeue_profile import Changed
from seatrial.slurm.requeue_queue import expand
from seatrial.slurm.requeue_rules import (
    Way,
    Wish,
    check_class,
    check_not_done,
    check_start,
    way_back,
    with_blamed_node,
)
from seatrial.slurm.state_records import JobState
from seatrial.slurm.submit import start_local
from seatrial.slurm.table import from_iso
from seatrial.spec.runspec import RunSpec
from seatrial.supervise.excluded import Excluded
from seatrial.supervise.history import read_history

__all__ = ["Requeued", "Wish", "expand", "requeue"]


@dataclass(frozen=True)
class Requeued:
    """What was done, in ``words``. ``job``: the run's job now. ``exclude``: the nodes that it must not get, as Slurm
    was told (also in brackets)."""

    words: str
    job: str
    replaces: str | None = None
    exclude: tuple[str, ...] = ()


def requeue(folder: RunFolder, wish: Wish, slurm: Slurm) -> Requeued:
    """Bring the run in ``folder`` back. One job comes of it at most, and nothing is written where it is refused.

    Raises SeatrialError that says why it may not, or cannot, come back; SubmissionUnclear where nobody can say whether
    Slurm took the job.
    """
    check_class(wish)
    with requeue_queue.only_one(folder):
        document = read_document(folder)
        submitted = [event for event in records.read_objects(folder.events) if event.get("event") == "submitted"]
        host = str((document.get("provenance") or {}).get("host") or "")
        run = RunJob(folder.path, submitted[-1] if submitted else {}, host)
        state = job_states([run], slurm)[folder.path]
        way = way_back(state, wish, str(document["kind"]), run.on_slurm, _age(run.submitted))
        if document["profile"]["executor"] == "slurm" and not run.on_slurm:
            raise SeatrialError("no Slurm job of it is on record", file=folder.path, fix="submit it anew")
        history = read_history(folder)
        check_not_done(history, wish, way)
        if way is not Way.LEAVE:
            check_start(folder, history, wish)
        wish = with_blamed_node(wish, history)
        if not run.on_slurm:
            return _start_here(folder, document, wish, run)
        if way is Way.SUBMIT:
            known = [str(event["job_id"]) for event in submitted if event.get("executor") == "slurm"]
            return _Submission(folder, document, wish, run, slurm).submit(known)
        return _to_waiting(folder, document, wish, run.job_id, slurm, state, way)


def _start_here(folder: RunFolder, document: Mapping[str, Any], wish: Wish, run: RunJob) -> Requeued:
    need_megatron("a run on this machine", RunSpec.from_json(document))
    changed = requeue_profile.changed(document, folder, wish.profile) if wish.profile else None
    before = str(run.submitted.get("job_id") or "") or None
    take_back = changed.write() if changed else None
    try:
        _request(folder, wish)
        job = start_local(folder, changed.spec if changed else RunSpec.from_json(document), by=wish.by, replaces=before)
    except BaseException as error:
        if take_back is not None:
            take_back()
        _failed(folder, wish, error)
        raise
    return Requeued("started again on this machine", str(job.job_id), before)


class _Submission:
    """A new job for a run that has none. It is submitted held: what is asked for is on record before it can start."""

    def __init__(self, folder: RunFolder, document: Mapping[str, Any], wish: Wish, run: RunJob, slurm: Slurm) -> None:
        self.folder, self.document, self.wish, self.run, self.slurm = folder, document, wish, run, slurm
        self.new = resubmission.Resubmission(folder, run, slurm, wish.by)

    def submit(self, known: Collection[str]) -> Requeued:
        """Submit, write the request, let go. ``known``: the run's earlier jobs."""
        self.new.check(self.document)
        changed = self._changed()
        exclude = self._exclude(changed)
        options = resubmission.options(exclude)
        take_back: Callable[[], None] | None = None
        try:
            with requeue_profile.script(changed, self.folder) as script:
                if changed:
                    requeue_profile.require_accepted(self.slurm, ["sbatch", *options, str(script)], self.wish.profile)
                job = self.new.submit(script, options, known)
            take_back = changed.write() if changed else None
            _request(self.folder, self.wish)
        except BaseException as error:
            left = self.new.withdraw()
            if take_back is not None:
                take_back()
            _failed(self.folder, self.wish, error, *left)
            raise
        _release(self.folder, self.wish, job, self.slurm)
        words = f"submitted as job {job.number}" + (f", without {', '.join(exclude)}" if exclude else "")
        return Requeued(words, job.number, self.run.job_id.number, tuple(exclude))

    def _changed(self) -> Changed | None:
        if self.wish.profile is None:
            return None
        return requeue_profile.changed(self.document, self.folder, self.wish.profile, self.slurm)

    def _exclude(self, changed: Changed | None) -> list[str]:
        profile = changed.spec.profile if changed else self.document["profile"]
        return _to_exclude(self.folder, profile, self.wish)


def _to_waiting(
    folder: RunFolder, document: Mapping[str, Any], wish: Wish, job: JobId, slurm: Slurm, state: JobState, way: Way
) -> Requeued:  # fmt: skip
    """Exclude nodes from a job that waits; where it is held, let it go."""
    new = _to_exclude(folder, document["profile"], wish) if way is Way.RELEASE else list(wish.exclude)
    exclude = requeue_queue.exclude(job, new, slurm) if new else ()
    without = f"without {', '.join(exclude)}" if exclude else ""
    if way is Way.RELEASE:
        _request(folder, wish)
        _release(folder, wish, job, slurm)
        return Requeued(", ".join(filter(None, [f"released job {job.number}", without])), job.number, None, exclude)
    if exclude:
        records.append_event(folder.events, "nodes_excluded", job_id=job.number, exclude=list(wish.exclude), by=wish.by)
        return Requeued(f"job {job.number} waits in the queue, now {without}", job.number, None, exclude)
    why = state.needs_action or state.reason
    return Requeued(f"job {job.number} waits in the queue already ({why}): nothing to do", job.number)


def _to_exclude(folder: RunFolder, profile: Mapping[str, Any], wish: Wish) -> list[str]:
    """Return the nodes that this person, and what other runs have met, leave out."""
    return sorted({*wish.exclude, *Excluded(profile, folder.path.name).nodes()})


def _request(folder: RunFolder, wish: Wish) -> None:
    records.append_event(
        folder.events, "requeue_requested", from_step=wish.from_step, exclude=list(wish.exclude),
        force_class=wish.force_class, profile=wish.profile, by=wish.by,
    )  # fmt: skip


def _release(folder: RunFolder, wish: Wish, job: JobId, slurm: Slurm) -> None:
    try:
        released = slurm.release(job)
    except CommandFailed as error:
        raise SeatrialError(
            f"job {job.number} is there, but held: it could not be released: {error.message}",
            fix="again when Slurm answers: seatrial requeue RUN",
        ) from error
    if not released:
        gone = SeatrialError(f"job {job.number} is gone before it could start", fix="again: seatrial requeue RUN")
        _failed(folder, wish, gone)
        raise gone


def _failed(folder: RunFolder, wish: Wish, error: BaseException, *left: str) -> None:
    reason = "; ".join([error.message if isinstance(error, SeatrialError) else repr(error), *left])
    with contextlib.suppress(OSError):  # what went wrong first is told
        records.append_event(folder.events, "requeue_failed", reason=reason, by=wish.by)


def read_document(folder: RunFolder) -> dict[str, Any]:
    """Return spec.json. Raises SeatrialError where it is none."""
    try:
        document = records.read_json(folder.spec)
    except (OSError, ValueError) as error:
        raise SeatrialError(f"cannot read the spec: {error}", file=folder.spec) from error
    if not isinstance(document, dict) or not {"kind", "profile", "fields"} <= document.keys():
        raise SeatrialError("not the spec of a run", file=folder.spec)
    return document


def _age(submitted: Mapping[str, Any]) -> float | None:
    at = from_iso(str(submitted.get("submit_time") or submitted.get("time") or ""))
    return None if at is None else time.time() - at
