"""What `seatrial tend` does about a run: a pure function of what the run folder, Slurm and this machine say of it.

In doubt nothing is done: a job too many may train over another one's checkpoints, a job too late costs minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from seatrial.slurm.requeue_rules import is_held
from seatrial.slurm.state_records import UNKNOWN, WAITING, JobState

MOST_UNTAKEN = 2  # submissions in a row that no supervisor took up
MOST_UNBEGUN = 5  # submissions in a row after which no attempt began
_BY_HAND = "seatrial requeue RUN brings it back"


class Action(Enum):
    """``NOTHING``: it is over, or goes on by itself. ``WAIT``: what happens to it may show in a minute. ``UNKNOWN``: a
    question failed. ``PERSON``: a person must look. The others are done."""

    NOTHING = "nothing"
    WAIT = "wait"
    UNKNOWN = "unknown"
    PERSON = "person"
    SUBMIT = "submit"
    START = "start"
    RELEASE = "release"
    REQUEUE = "requeue"

    @property
    def acts(self) -> bool:
        return self in (Action.SUBMIT, Action.START, Action.RELEASE, Action.REQUEUE)


@dataclass(frozen=True)
class Tended:
    """What is done about a run, and why."""

    action: Action
    words: str


@dataclass(frozen=True)
class Patience:
    """``fresh``: a job may be submitted and not listed yet. ``grace``: Slurm may put a job that ended back into the
    queue. ``silence``: of a run's records, before a job that Slurm has forgotten counts as gone. ``still``: before one
    whose batch host is down does. All in seconds. ``old_days``: a run that nobody named and that has been silent for so
    long was given up by somebody."""

    fresh: float = 120.0
    grace: float = 60.0
    silence: float = 300.0
    still: float = 60.0
    old_days: float = 14.0


@dataclass(frozen=True)
class Host:
    """The batch host of a running job. ``lost`` None: nobody can say."""

    name: str
    lost: bool | None


@dataclass(frozen=True)
class Case:
    """What is known of a run. Times in seconds, None: not known.

    ``settled``: the reason of its final decision, where no person has asked for more since; None: it has none.
    ``executor``: of its newest submission ("slurm", "local", "here"); empty: none is on record. ``age``: since then;
    ``silent``: since its records were last written; ``gone``: since Slurm says that its job ended. ``begun``: its
    records show that this job has started. ``said``: Slurm's word for the job's end in its batch log.
    ``untaken``, ``unbegun``: tend's submissions in a row that no supervisor took up, and that no attempt came of.
    ``held_by_tend``: tend submitted the job, and never came to let it go. ``requeued``: tend has requeued this very
    start of it. ``cluster``: the job's, where it may be another one than Slurm answers for here; "?": nobody can say.
    ``owner``: who submitted it, where that is not who asks. ``named``: a person named the run.
    """

    kind: str
    job: JobState
    settled: str | None = None
    executor: str = "slurm"
    age: float | None = None
    silent: float | None = None
    gone: float | None = None
    begun: bool = True
    said: str = ""
    untaken: int = 0
    unbegun: int = 0
    host: Host | None = None
    held_by_tend: bool = False
    requeued: bool = False
    cluster: str = ""
    owner: str = ""
    named: bool = False


def tended(case: Case, patience: Patience | None = None) -> Tended:
    """Return what is to be done about a run."""
    patience = patience or Patience()
    if case.settled is not None:
        return Tended(Action.NOTHING, f"it has ended: {case.settled}")
    if not case.executor:
        return Tended(Action.NOTHING, "no job of it is on record: it was not submitted, or is being submitted now")
    if case.owner:
        return Tended(Action.NOTHING, f"user {case.owner} submitted it, and tends it")
    if case.job.state == UNKNOWN:
        return _unknown(case, patience)
    return _ended(case, patience) if case.job.final else _alive(case, patience)


def _alive(case: Case, patience: Patience) -> Tended:
    job = case.job
    if job.source == "sacct":  # the queue did not answer, and accounting lags
        return Tended(Action.UNKNOWN, f"nobody can say how its job stands: {'; '.join(job.notes) or job.reason}")
    if job.state not in WAITING:
        return _lost_host(case, patience) if case.host else Tended(Action.NOTHING, f"its job is {_named(job)}")
    if case.kind == "gate":
        return Tended(Action.NOTHING, f"its job is {_named(job)}")
    if is_held(job.state, job.reason) and case.held_by_tend:
        return Tended(Action.RELEASE, f"job {job.job_id}, submitted by tend, was not released yet")
    if is_held(job.state, job.reason) and case.age is not None and case.age < patience.fresh:
        return Tended(Action.WAIT, f"job {job.job_id} is held, and perhaps being submitted now")
    if job.needs_action:
        return Tended(Action.PERSON, f"job {job.job_id} waits in vain: {job.needs_action}")
    return Tended(Action.NOTHING, f"its job is {_named(job)}")


def _lost_host(case: Case, patience: Patience) -> Tended:
    job, host = case.job, case.host
    assert host is not None
    if not host.lost:
        words = f", and nobody can say how its batch host {host.name} is" if host.lost is None else ""
        return Tended(Action.NOTHING, f"its job is {_named(job)}{words}")
    down = f"its batch host {host.name} is down, and Slurm leaves job {job.job_id} running without it"
    if case.silent is None or case.silent < patience.still:
        return Tended(Action.WAIT, f"{down}; its records were written just now all the same")
    if case.kind == "gate":
        return Tended(Action.PERSON, f"{down}; a gate is not repeated: seatrial cancel RUN")
    if case.requeued:
        return Tended(Action.PERSON, f"{down}, though it was requeued already: scancel {job.job_id}, then {_BY_HAND}")
    return Tended(Action.REQUEUE, down)


def _unknown(case: Case, patience: Patience) -> Tended:
    job = case.job
    if case.executor != "slurm":
        return Tended(Action.NOTHING, job.reason)
    # A site without accounting says so each time: that is its answer.
    failed = [note for note in job.notes if "accounting storage is disabled" not in note.lower()]
    if failed:
        return Tended(Action.UNKNOWN, f"nobody can say whether its job lives: {'; '.join(failed)}")
    forgotten = f"Slurm no longer knows its job {job.job_id}"
    if case.age is None or case.age < patience.fresh:
        return Tended(Action.WAIT, f"{forgotten}, or does not list it yet")
    if case.silent is None or case.silent < patience.silence:
        return Tended(Action.WAIT, f"{forgotten}, and its records were written just now all the same")
    if case.cluster == "?" and not case.named:
        return Tended(Action.PERSON, f"{forgotten}, and nobody can say whether it was this Slurm's: {_BY_HAND}")
    if case.cluster not in ("", "?"):
        return Tended(Action.NOTHING, f"{forgotten}: it ran on cluster {case.cluster}, which is not here")
    if case.said == "CANCELLED":
        return Tended(Action.NOTHING, f"{forgotten}; its batch log says CANCELLED: {_BY_HAND}")
    if not case.begun and case.kind != "gate":
        return Tended(Action.PERSON, f"{forgotten}, which never began; it may have been cancelled: {_BY_HAND}")
    return _brought_back(case, patience, forgotten)


def _ended(case: Case, patience: Patience) -> Tended:
    job = case.job
    if job.state == "CANCELLED":
        return Tended(Action.NOTHING, f"a person cancelled job {job.job_id}: {_BY_HAND}")
    if case.executor == "here":
        return Tended(Action.NOTHING, "it ran in somebody's allocation, where nothing can be submitted")
    if case.kind != "gate" and job.state in ("DEADLINE", "REVOKED"):
        return Tended(Action.PERSON, f"Slurm ended job {job.job_id}: {job.state}; if it is still wanted, {_BY_HAND}")
    over = f"job {job.job_id} ended ({job.state}) without a decision"
    if case.executor == "local":
        over = "its supervisor is gone without a decision"
    since = case.silent if case.gone is None else case.gone
    if since is None or since < patience.grace:
        return Tended(Action.WAIT, f"{over}, just now: it may come back by itself")
    return _brought_back(case, patience, over)


def _brought_back(case: Case, patience: Patience, why: str) -> Tended:
    if case.kind == "gate":
        return Tended(Action.NOTHING, f"{why}, and a gate is not repeated: it shows what one undisturbed start does")
    if not case.named and case.silent is not None and case.silent > patience.old_days * 86400:
        return Tended(Action.NOTHING, f"{why}, and silent for {case.silent / 86400:.0f} days: name it to bring it back")
    look = f"a person must look (seatrial logs RUN); then {_BY_HAND}"
    if case.untaken >= MOST_UNTAKEN:
        return Tended(Action.PERSON, f"{why}; of {case.untaken} submissions in a row none came to start: {look}")
    if case.unbegun >= MOST_UNBEGUN:
        return Tended(Action.PERSON, f"{why}; after {case.unbegun} submissions in a row no attempt began: {look}")
    return Tended(Action.START if case.executor == "local" else Action.SUBMIT, why)


def _named(job: JobState) -> str:
    return job.state + (f" ({job.reason})" if job.reason else "")
