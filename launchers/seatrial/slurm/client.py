"""The client: every Slurm command that the login node runs goes through ``Slurm``."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.errors import SeatrialError
from seatrial.slurm import facts, submission
from seatrial.slurm.commands import DEFAULT_RETRY, ONCE, CommandFailed, Done, Retry, run, run_patiently
from seatrial.slurm.environment import for_questions, scrubbed
from seatrial.slurm.submission import JobId, Patience, SubmissionUnclear

__all__ = ["CommandFailed", "DryRun", "JobId", "Slurm", "SubmissionUnclear"]

_GONE = ("invalid job id specified", "already completing or completed", "job has already finished")


@dataclass(frozen=True)
class DryRun:
    """What ``sbatch --test-only`` said. ``accepted`` None: the question itself failed."""

    accepted: bool | None
    words: str


@dataclass
class Slurm:
    """Slurm's commands, with a scrubbed environment, time limits, and retries for errors known to pass.

    ``environment`` is what the commands inherit (this process's own by default), scrubbed here. Times in seconds.
    ``submit_seconds`` is long: sbatch itself goes on trying for two minutes while the controller is busy.
    ``status_seconds`` is short: with the controller away, squeue itself takes 38 s to say so. ``say`` is told why a
    submission takes long. ``sleep`` and ``spread`` (numbers in [0, 1)) are for tests.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    timeout_seconds: float = 60.0
    status_seconds: float = 20.0
    submit_seconds: float = 240.0
    retry: Retry = DEFAULT_RETRY
    patience: Patience = submission.DEFAULT_PATIENCE
    say: Callable[[str], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    spread: Callable[[], float] = random.random
    user: str = field(default_factory=lambda: str(os.getuid()))
    lacks: set[str] = field(default_factory=set)  # columns of sacct that this Slurm turned out not to have

    def submit(
        self, argv: Sequence[str], run_id: str, *, cluster: str | None = None, known: Collection[str] = ()
    ) -> JobId:
        """Run ``argv`` (``sbatch`` and its words; ``--parsable`` is added) and return the job. At most one comes of it.

        The script must set ``run_id`` as job name or comment. ``known``: numbers of earlier jobs of this run, which
        must not be taken for the new one. Raises SeatrialError with Slurm's own words where the job was refused, and
        SubmissionUnclear (keep the run folder) where nobody can say.
        """
        commands = submission.Commands(self._sbatch, self.question, self.sleep, self.spread, self.say)
        return submission.submit(
            argv, run_id, commands, user=self.user, cluster=cluster, known=known, patience=self.patience
        )

    def test_only(self, argv: Sequence[str]) -> DryRun:
        """Ask whether sbatch would take ``argv``: nothing is submitted. Never raises for what Slurm answers."""
        try:
            done = self._run([argv[0], "--test-only", *argv[1:]], environment=scrubbed(self.environment))
        except SeatrialError as error:
            return DryRun(None, str(error))
        if done.ok:
            return DryRun(True, done.words)
        return DryRun(None if done.passes else False, done.words)

    def cancel(self, job: JobId) -> bool:
        """End a job for good. False: it has ended already. Raises CommandFailed where it may live on."""
        # Without --verbose scancel says nothing of jobs that are over.
        return self._act(["scancel", "--verbose", *_where(job), job.number])

    def signal(self, job: JobId, name: str, *, batch: bool = False, step: str | None = None) -> bool:
        """Send signal ``name`` ("USR2") to all steps, to ``step`` only, or with ``batch`` to the batch process only.

        False: the job is gone. Raises CommandFailed.
        """
        target = job.number if step is None else f"{job.number}.{step}"
        # A second TERM would cut a save short, so only an error that surely came before the signal is retried.
        return self._act(["scancel", f"--signal={name}", *(["--batch"] if batch else []), *_where(job), target], True)

    def requeue(self, job: JobId, *, hold: bool = False) -> bool:
        """Return a job to the queue (``hold``: not to start before ``release``). False: Slurm no longer has it.

        Beware: Slurm also runs a job again that has ended well, as long as it remembers it.
        """
        return self._act(["scontrol", *_where(job), "requeuehold" if hold else "requeue", job.number], True)

    def hold(self, job: JobId) -> bool:
        """Keep a pending job from starting. False: it is gone."""
        return self._scontrol(job, "hold")

    def release(self, job: JobId) -> bool:
        """Let a held job start. False: it is gone."""
        return self._scontrol(job, "release")

    def exclude(self, job: JobId, nodes: Sequence[str]) -> bool:
        """Set the nodes that a pending job must avoid (they replace earlier ones). False: it is gone."""
        return self._act(["scontrol", *_where(job), "update", f"JobId={job.number}", f"ExcNodeList={','.join(nodes)}"])

    def show_config(self) -> dict[str, str]:
        """Return ``scontrol show config``. Raises CommandFailed."""
        return facts.parse_config(self._read(["scontrol", "show", "config"]))

    def partitions(self) -> list[facts.Partition]:
        """Return the partitions. Raises CommandFailed."""
        return facts.parse_partitions(self._read(["scontrol", "--all", "--oneliner", "show", "partition"]))

    def nodes(self) -> list[facts.Node]:
        """Return every node once for each of its partitions. Raises CommandFailed."""
        return facts.parse_nodes(self._read(facts.NODE_ARGV))

    def qos(self) -> list[facts.Qos]:
        """Return the QOSs. Raises CommandFailed, too where accounting is off."""
        return facts.parse_qos(self._read(facts.QOS_ARGV))

    def accounts(self, user: str) -> list[facts.Association]:
        """Return what ``user`` (a name) may use on all clusters. Raises CommandFailed, too where accounting is off."""
        words = list(facts.ASSOCIATION_ARGV)
        words.insert(words.index("associations") + 1, f"user={user}")
        return facts.parse_associations(self._read(words))

    def version(self) -> tuple[int, ...] | None:
        """Return the client's version, such as (24, 11, 5); None if it cannot be read. Raises CommandFailed."""
        return facts.parse_version(self._read(["scontrol", "--version"]))

    def question(self, argv: Sequence[str], retry: Retry = ONCE, seconds: float | None = None) -> Done:
        """Run a command that changes nothing. Never raises: a missing command is an outcome with code 127."""
        try:
            return self._run(argv, retry, seconds=seconds)
        except SeatrialError as error:
            return Done(127, "", str(error), argv[0])

    def _sbatch(self, argv: Sequence[str]) -> Done:
        return run(argv, environment=scrubbed(self.environment), timeout_seconds=self.submit_seconds)

    def _scontrol(self, job: JobId, verb: str) -> bool:
        return self._act(["scontrol", *_where(job), verb, job.number])

    def _act(self, argv: Sequence[str], only_once: bool = False) -> bool:
        done = self._run(argv, only_once=only_once)
        # scontrol tells some errors on stdout, and some with code 0; scancel likewise.
        said = (done.stderr + done.stdout).lower()
        if any(text in said for text in _GONE):
            return False
        if not done.ok:
            raise _failed(argv, done)
        return True

    def _read(self, argv: Sequence[str]) -> str:
        done = self._run(argv)
        if not done.ok:
            raise _failed(argv, done)
        return done.stdout

    def _run(
        self, argv: Sequence[str], retry: Retry | None = None, environment: Mapping[str, str] | None = None,
        only_once: bool = False, seconds: float | None = None,
    ) -> Done:  # fmt: skip
        return run_patiently(
            argv, environment=environment or for_questions(self.environment),
            timeout_seconds=seconds or self.timeout_seconds, retry=retry or self.retry, only_once=only_once,
            sleep=self.sleep, spread=self.spread,
        )  # fmt: skip


def _where(job: JobId) -> list[str]:
    return [f"--clusters={job.cluster}"] if job.cluster else []


def _failed(argv: Sequence[str], done: Done) -> CommandFailed:
    return CommandFailed(f"{' '.join(argv[:3])} failed: {done.words}", rule="Slurm must answer", fix="try again later")
