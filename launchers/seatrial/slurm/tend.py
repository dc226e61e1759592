"""Bringing back runs whose jobs ended without a decision of their own. What they start from, and whether they go on at
all, the supervisor that starts decides by the policy, as after any other end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seatrial.check.deep import need_megatron
from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm import resubmission
from seatrial.slurm.client import CommandFailed, JobId, Slurm
from seatrial.slurm.requeue_queue import Busy, only_one
from seatrial.slurm.resubmission import Resubmission
from seatrial.slurm.submit import start_local
from seatrial.slurm.tend_case import BY, EVENT, Run, cases, read_run
from seatrial.slurm.tend_rules import Action, Case, Patience, Tended, tended
from seatrial.spec.runspec import RunSpec
from seatrial.supervise.excluded import Excluded

__all__ = ["Outcome", "Patience", "tend"]


@dataclass(frozen=True)
class Outcome:
    """What came of a run. ``action``: of tend_rules.Action. ``words``: what was done, or why nothing was. ``done``: it
    was; ``failed``: it could not be. ``job_id``: the run's job now; ``replaces``: the one before, where that is new."""

    run: str
    folder: str
    state: str
    job_id: str | None
    action: str
    words: str
    done: bool = False
    failed: bool = False
    replaces: str | None = None

    @property
    def needs_person(self) -> bool:
        return self.failed or self.action == Action.PERSON.value

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"needs_person": self.needs_person}


def tend(
    folders: Sequence[RunFolder], slurm: Slurm, *, named: bool = False, dry_run: bool = False,
    patience: Patience | None = None,
) -> list[Outcome]:  # fmt: skip
    """Bring back those of the runs that want it; return what came of each, in the order given.

    Slurm is asked once for all; a run that something is done about is looked at once more, under its lock. ``named``: a
    person named them. ``dry_run``: nothing is done or written. Never raises for what is wrong with one of them.
    """
    runs = [read_run(folder) for folder in folders]
    known = cases(runs, slurm, named)
    outcomes = []
    for run in runs:
        case = known.get(run.folder.path)
        if case is None:
            words = f"it cannot be read: {run.unreadable}"
            outcomes.append(Outcome(run.folder.path.name, str(run.folder.path), "UNKNOWN", None, "person", words))
            continue
        what = tended(case, patience)
        if what.action.acts:
            outcomes.append(_rehearsed(run, case, what, slurm) if dry_run else _act(run, slurm, named, patience))
        else:
            outcomes.append(_outcome(run, case, what))
    return outcomes


def _act(run: Run, slurm: Slurm, named: bool, patience: Patience | None) -> Outcome:
    """Look again, where nobody else can act meanwhile, and do what is to be done then."""
    path = run.folder.path
    try:
        with only_one(run.folder):
            run = read_run(run.folder)
            case = cases([run], slurm, named).get(path)
            if case is None:
                raise SeatrialError(f"it cannot be read: {run.unreadable}")
            what = tended(case, patience)
            if not what.action.acts:
                return _outcome(run, case, what)
            try:
                return _DO[what.action](run, case, what, slurm)
            except Exception as error:  # what is wrong with one run keeps no other from being tended
                return _outcome(run, case, what, f"{what.words}; {_told(error)}", failed=True)
    except Busy:
        words = "another command brings it back, or tidies it, just now"
        return Outcome(path.name, str(path), "UNKNOWN", None, Action.WAIT.value, words)
    except (SeatrialError, OSError) as error:
        return Outcome(path.name, str(path), "UNKNOWN", None, Action.PERSON.value, _told(error), failed=True)


def _rehearsed(run: Run, case: Case, what: Tended, slurm: Slurm) -> Outcome:
    """Return what would be done; what can be known to stand in the way is a failure already."""
    try:
        if what.action is Action.SUBMIT:
            _checked(run, slurm)
        elif what.action is Action.START:
            need_megatron("a run on this machine", RunSpec.from_json(run.document))
    except Exception as error:
        return _outcome(run, case, what, f"{what.words}; {_told(error)}", failed=True)
    return _outcome(run, case, what)


def _submit(run: Run, case: Case, what: Tended, slurm: Slurm) -> Outcome:
    new = _checked(run, slurm)
    exclude = _to_exclude(run)
    known = [str(event["job_id"]) for event in run.submitted if event.get("executor") == "slurm"]
    try:
        job = new.submit(run.folder.path / "batch.sh", resubmission.options(exclude), known)
    except BaseException as error:
        if left := new.withdraw():
            raise SeatrialError("; ".join([_told(error), *left])) from error
        raise
    _let_go(job, slurm)
    without = f", without {', '.join(exclude)}" if exclude else ""
    words = f"submitted as job {job.number}{without}: {what.words}"
    _record(run, what.action, job.number, words, replaces=run.job.job_id.number)
    return _done(run, case, what, words, job.number)


def _release(run: Run, case: Case, what: Tended, slurm: Slurm) -> Outcome:
    _let_go(run.job.job_id, slurm)
    words = f"released: {what.words}"
    _record(run, what.action, run.job.job_id.number, words)
    return _done(run, case, what, words)


def _requeue(run: Run, case: Case, what: Tended, slurm: Slurm) -> Outcome:
    job = run.job.job_id
    if not slurm.requeue(job):
        raise SeatrialError(f"Slurm no longer has job {job.number}")
    words = f"requeued: {what.words}"
    host = case.host.name if case.host else None
    _record(run, what.action, job.number, words, host=host)
    return _done(run, case, what, words)


def _start(run: Run, case: Case, what: Tended, slurm: Slurm) -> Outcome:
    spec = RunSpec.from_json(run.document)
    need_megatron("a run on this machine", spec)
    before = str(run.job.submitted.get("job_id") or "") or None
    job = start_local(run.folder, spec, by=BY, replaces=before)
    words = f"started again on this machine: {what.words}"
    _record(run, what.action, str(job.job_id), words, replaces=before)
    return _done(run, case, what, words, str(job.job_id))


_DO = {Action.SUBMIT: _submit, Action.START: _start, Action.RELEASE: _release, Action.REQUEUE: _requeue}


def _checked(run: Run, slurm: Slurm) -> Resubmission:
    """Return the new job, not submitted yet. Raises SeatrialError where none may be; changes nothing."""
    new = Resubmission(run.folder, run.job, slurm, BY)
    new.check(run.document)
    passed = (run.document["profile"].get("env") or {}).get("pass") or ()
    unset = [name for name in passed if name not in slurm.environment]
    if unset:
        raise SeatrialError(
            f"the ranks need {', '.join(unset)} from the shell that submits, where that is unset",
            key="env.pass", fix="set it where seatrial tend runs",
        )  # fmt: skip
    return new


def _let_go(job: JobId, slurm: Slurm) -> None:
    """Release it. Raises SeatrialError; the job is on record, so the next tend tries again."""
    try:
        released = slurm.release(job)
    except CommandFailed as error:
        words = f"job {job.number} is there, but held: it could not be released: {error.message}"
        raise SeatrialError(words, fix="again: seatrial tend") from error
    if not released:
        raise SeatrialError(f"job {job.number} is gone before it could start")


def _to_exclude(run: Run) -> list[str]:
    """Return the nodes that the last decision, a person, and what other runs have met leave out."""
    last = run.history.records[-1] if run.history.records else {}
    decided = (last.get("decision") or {}).get("exclude") or ()
    known = Excluded(run.document["profile"], run.folder.path.name).nodes()
    return sorted({*map(str, decided), *run.history.request.exclude, *known})


def _record(run: Run, action: Action, job: str, words: str, **details: Any) -> None:
    records.append_event(
        run.folder.events, EVENT, action=action.value, job_id=job, words=words, user=str(os.getuid()), **details
    )


def _outcome(run: Run, case: Case, what: Tended, words: str = "", failed: bool = False) -> Outcome:
    path = run.folder.path
    return Outcome(
        path.name, str(path), case.job.state, case.job.job_id, what.action.value, words or what.words, failed=failed
    )


def _done(run: Run, case: Case, what: Tended, words: str, job: str | None = None) -> Outcome:
    path, before = run.folder.path, case.job.job_id
    return Outcome(
        path.name, str(path), case.job.state, job or before, what.action.value, words, done=True,
        replaces=before if job else None,
    )  # fmt: skip


def _told(error: BaseException) -> str:
    """Return an error in one line: this is read in a mail from cron."""
    if not isinstance(error, SeatrialError):
        return repr(error)
    return "; ".join(filter(None, [error.message, error.fix and f"fix: {error.fix}"])).replace("\n", " ")
