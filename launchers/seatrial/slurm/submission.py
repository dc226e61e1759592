"""Submitting exactly once: sbatch, and where its answer was lost, a look for the job before anything is sent again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum

from seatrial.errors import SeatrialError
from seatrial.slurm.commands import Done, Retry
from seatrial.slurm.passing import Passing, passing, refused
from seatrial.slurm.table import SEPARATOR, job_rows, seconds_since_1970

_ID = re.compile(r"([1-9]\d*)(?:;([^\s;]+))?")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_UNANSWERED = Retry(attempts=5)
_RESEND = Retry(attempts=7, first=2.0)


@dataclass(frozen=True)
class JobId:
    """A job: its number as Slurm prints it, and its cluster where sbatch named one. ``adopted``: found after sbatch had
    reported an error. Raises SeatrialError for what is no job number: ``scancel ''`` must never run."""

    number: str
    cluster: str | None = None
    adopted: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[1-9][0-9]{0,11}", self.number):
            raise SeatrialError("not a job number", value=self.number, rule="a positive whole number")


class SubmissionUnclear(SeatrialError):
    """Nobody can say whether the job was accepted. Keep its run folder; nothing more was submitted."""


class Answer(Enum):
    """What sbatch's end says. ``ODD``: an error that we know nothing about; the job is looked for, never sent again."""

    REFUSED = "refused"
    NOT_TAKEN = "not taken"
    UNCLEAR = "unclear"
    ODD = "odd"


@dataclass(frozen=True)
class Patience:
    """Waits before each look for a lost job, in seconds. An unclear request may still lie in the controller's queue
    while it answers squeue, so its job counts as absent only after all of those looks."""

    unclear: tuple[float, ...] = (1.0, 3.0, 6.0, 12.0)
    otherwise: tuple[float, ...] = (1.0,)
    unanswered: Retry = _UNANSWERED
    resend: Retry = _RESEND


DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True)
class Commands:
    """What submission needs of the world: argv in, how it ended out. ``ask`` never raises; ``sbatch`` may."""

    sbatch: Callable[[Sequence[str]], Done]
    ask: Callable[[Sequence[str]], Done]
    sleep: Callable[[float], None]
    spread: Callable[[], float]
    say: Callable[[str], None] = lambda _: None


def submit(
    argv: Sequence[str],
    run_id: str,
    commands: Commands,
    *,
    user: str,
    cluster: str | None = None,
    known: Collection[str] = (),
    patience: Patience = DEFAULT_PATIENCE,
) -> JobId:
    """Run ``argv`` (an sbatch command) and return its job. At most one job comes of it.

    The job's name or comment must be ``run_id``; ``known`` are numbers of earlier jobs of the same run, which are not
    adopted. Raises SeatrialError with Slurm's words where the job was refused, SubmissionUnclear where nobody knows.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise SeatrialError(
            "not a name for a job", value=run_id, rule="1 to 200 of A-Z a-z 0-9 . _ -, the first no sign",
        )  # fmt: skip
    return _Submission(list(argv), run_id, commands, user, cluster, frozenset(known), patience).run()


def parse_id(stdout: str) -> tuple[str, str | None] | None:
    """Return (number, cluster) of ``sbatch --parsable``: its last line of that form, as site wrappers print more."""
    for line in reversed(stdout.split("\n")):
        match = _ID.fullmatch(line.strip())
        if match:
            return match[1], match[2]
    return None


def classify(done: Done) -> Answer:
    """Return what an sbatch that gave no job id says about the job."""
    if done.timed_out or done.ok or (done.code is not None and done.code < 0):
        return Answer.UNCLEAR  # killed, or its answer was unreadable
    kind = passing(done.stderr + done.stdout)
    if kind is not None:
        return Answer.UNCLEAR if kind is Passing.UNCLEAR else Answer.NOT_TAKEN
    return Answer.REFUSED if refused(done.stderr + done.stdout) else Answer.ODD


class _Submission:
    def __init__(
        self, argv: list[str], run_id: str, commands: Commands, user: str, cluster: str | None,
        known: frozenset[str], patience: Patience,
    ) -> None:  # fmt: skip
        self.argv = argv if "--parsable" in argv else [argv[0], "--parsable", *argv[1:]]
        self.run_id, self.commands, self.user, self.cluster = run_id, commands, user, cluster
        self.known, self.patience = known, patience

    def run(self) -> JobId:
        try:
            return self._run()
        except KeyboardInterrupt:
            raise self._unclear("interrupted before its answer was there") from None

    def _run(self) -> JobId:
        sent_after_unclear = False
        resends = self.patience.resend.waits(self.commands.spread)
        while True:
            done = self.commands.sbatch(self.argv)
            found = parse_id(done.stdout) if done.ok else None
            if found is not None:
                return JobId(*found)
            answer = classify(done)
            if answer is Answer.REFUSED:
                raise _refusal(done)
            self.commands.say(f"{done.words.splitlines()[0]}; looking whether Slurm has the job all the same")
            job = self._look(answer, done)
            if job is not None:
                return job
            wait = next(resends, None)
            if answer is Answer.ODD or wait is None or (answer is Answer.UNCLEAR and sent_after_unclear):
                raise _refusal(done)
            sent_after_unclear = sent_after_unclear or answer is Answer.UNCLEAR
            self.commands.say(f"it does not; sending it again in {wait:.0f} s")
            self.commands.sleep(wait)

    def _look(self, answer: Answer, done: Done) -> JobId | None:
        """Return the job if it is there, None if it is truly absent. Raises SubmissionUnclear if nobody knows."""
        waits = self.patience.unclear if answer is Answer.UNCLEAR else self.patience.otherwise
        unanswered = self.patience.unanswered.waits(self.commands.spread)
        for wait in waits:
            self.commands.sleep(wait)
            found = self._ask()
            while found is None:
                more = next(unanswered, None)
                if more is None:
                    raise self._unclear(done.words)
                self.commands.sleep(more)
                found = self._ask()
            if found:
                return self._adopt(found)
        return None

    def _ask(self) -> list[str] | None:
        """Return the numbers of jobs with our name, oldest first; None where the controller gave no answer.

        Accounting only adds what the queue has forgotten already: it lags, so its silence proves nothing.
        """
        where = [f"--clusters={self.cluster}"] if self.cluster else []
        queue = self.commands.ask([
            "squeue", "--noheader", "--states=all", f"--user={self.user}", *where,
            f"--format={SEPARATOR.join(('%A', '%V', '%k', '%j'))}",
        ])  # fmt: skip
        found = {row[0]: row[1] for row in job_rows(queue.stdout, 4) if self.run_id in row[2:]} if queue.ok else {}
        if not found.keys() - self.known:
            accounting = self.commands.ask([
                "sacct", "--noheader", "--parsable2", "--allocations", f"--delimiter={SEPARATOR}", *where,
                f"--name={self.run_id}", f"--user={self.user}", f"--starttime={_an_hour_ago()}",
                "--format=JobIDRaw,Submit,JobName",
            ])  # fmt: skip
            found |= {row[0]: row[1] for row in job_rows(accounting.stdout, 3) if row[2] == self.run_id}
        new = found.keys() - self.known
        if not new and not queue.ok:
            return None
        return sorted(new, key=lambda number: (seconds_since_1970(found[number]) or 0.0, int(number)))

    def _adopt(self, found: list[str]) -> JobId:
        """Take the oldest. Others of the name wait for it (singleton): they are withdrawn while they are pending."""
        where = [f"--clusters={self.cluster}"] if self.cluster else []
        for number in found[1:]:
            self.commands.ask(["scancel", "--state=PENDING", *where, number])
        return JobId(found[0], self.cluster, adopted=True)

    def _unclear(self, words: str) -> SubmissionUnclear:
        return SubmissionUnclear(
            f"nobody can say whether Slurm took the job: {words}",
            rule="nothing is sent again before Slurm has said that the job is not there",
            fix=f"when Slurm answers again, look with `squeue --states=all --name={self.run_id}`, "
            f"and with `sacct --name={self.run_id}`",
        )


def _refusal(done: Done) -> SeatrialError:
    return SeatrialError(
        f"Slurm did not take the job: {done.words}",
        rule="sbatch must accept the job; no job was made",
        fix="mend what Slurm names (usually a value of the profile); `seatrial check` asks Slurm beforehand",
    )


def _an_hour_ago() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 3600))
