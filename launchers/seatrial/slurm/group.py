"""The runs of a group, submitted together: all, or none."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.groups import Group, GroupRun, new_group_id, write_group
from seatrial.run.layout import RunFolder
from seatrial.slurm import ending
from seatrial.slurm.admission import Admission
from seatrial.slurm.after_gate import job_id, submit_pair, take_back
from seatrial.slurm.client import CommandFailed, Slurm, SubmissionUnclear
from seatrial.slurm.group_same import same_values
from seatrial.slurm.jobs import RunJob, job_states
from seatrial.slurm.local_job import look, supervisor
from seatrial.slurm.submit import Submission, submit
from seatrial.spec.runspec import RunSpec

_STARTED_SECONDS = 30.0  # for a supervisor on this machine to be there, after it was started


@dataclass(frozen=True)
class Member:
    """A run to submit: what admits it, or on Slurm the ``gate`` that is submitted with it."""

    spec: RunSpec
    admission: Admission | None = None
    gate: RunSpec | None = None


@dataclass(frozen=True)
class Submitted:
    """A submitted group, its record, and in its order the runs; their gates where they were submitted, too."""

    group: Group
    record: Path
    runs: tuple[Submission, ...]
    gates: tuple[Submission, ...] = ()


def submit_group(
    members: Sequence[Member],
    name: str,
    *,
    other_data: str | None = None,
    allow_dirty: bool = False,
    require_head: str | None = None,
    slurm: Slurm | None = None,
) -> Submitted:
    """Submit a run for each member, put the group on record, and let them start.

    On Slurm every job is held until all are there, so that a failure, even of this machine, starts nothing. On this
    machine they start at once, side by side. Raises SeatrialError where one step fails; then the jobs are cancelled and
    nothing is left, except what may still have a job or has started: the error names it.
    """
    return _Group(members, new_group_id(name), name, other_data, slurm or Slurm()).submit(allow_dirty, require_head)


class _Group:
    def __init__(
        self, members: Sequence[Member], group_id: str, name: str, other_data: str | None, slurm: Slurm
    ) -> None:
        self.members, self.id, self.name, self.other_data, self.slurm = members, group_id, name, other_data, slurm
        self.runs: list[Submission] = []
        self.gates: list[Submission] = []
        self.made: list[RunFolder] = []  # as they were submitted
        self.held: list[RunFolder] = []
        self.started: list[RunFolder] = []
        self.record: Path | None = None

    def submit(self, allow_dirty: bool, require_head: str | None) -> Submitted:
        at = ""
        try:
            for member in self.members:
                at = member.spec.recipe
                self._add(member, allow_dirty=allow_dirty, require_head=require_head)
            at = "the group's record"
            group = self._group()
            self.record = write_group(self.made[0].path.parent, group)
            for folder in self.held:
                at = folder.path.name
                self._release(folder)
        except BaseException as error:
            left = self._withdraw(error)
            if not isinstance(error, (SeatrialError, OSError)) and not left:
                raise
            raise _told(error, at, left) from error
        return Submitted(group, self.record, tuple(self.runs), tuple(self.gates))

    def _add(self, member: Member, **source: Any) -> None:
        on_slurm = member.spec.profile["executor"] == "slurm"
        if member.gate is not None:
            pair = submit_pair(member.gate, lambda _: member.spec, group=self.id, hold=True, slurm=self.slurm, **source)
            self.gates.append(pair.gate)
            self.made.append(pair.gate.folder)
            self.held.append(pair.gate.folder)
            run = pair.run
        else:
            run = submit(
                member.spec, admission=member.admission, group=self.id, hold=on_slurm, slurm=self.slurm, **source
            )
            (self.held if on_slurm else self.started).append(run.folder)
        self.runs.append(run)
        self.made.append(run.folder)

    def _group(self) -> Group:
        pairs = zip(self.members, self.runs, strict=True)
        runs = tuple(GroupRun(run.folder.path.name, run.folder.path, one.spec.recipe) for one, run in pairs)
        same = same_values([one.spec for one in self.members])
        return Group(self.id, self.name, records.now(), runs, same=same, other_data=self.other_data)

    def _release(self, folder: RunFolder) -> None:
        job = job_id(folder)
        self.started.append(folder)  # also where the answer is lost
        if not self.slurm.release(job):
            raise SeatrialError(f"its job {job.number} is gone before it could start", fix="submit again")

    def _withdraw(self, error: BaseException) -> list[str]:
        """Take everything back, the last first; return what is left."""
        left = []
        if isinstance(error, SubmissionUnclear):
            left.append("should that job be there after all, nothing lets it start: cancel it")
        for folder in reversed(self.made):
            try:
                left += self._take_back(folder)
            except (SeatrialError, OSError) as second:
                left.append(f"{folder.path} is kept, and its run may go on: {_words(second)}")
        if self.record is not None:
            with contextlib.suppress(OSError):
                self.record.unlink()
        return left

    def _take_back(self, folder: RunFolder) -> list[str]:
        if folder not in self.started:
            return take_back(folder, self.slurm)
        if folder in self.held:
            job = job_id(folder)
            try:
                self.slurm.cancel(job)
            except CommandFailed as error:
                return [f"job {job.number} may run: scancel {job.number}; {folder.path} is kept ({error.message})"]
            return [f"job {job.number} had been let go: it is cancelled, and {folder.path} is kept"]
        run = RunJob(folder.path, {"executor": "local"})
        deadline = time.monotonic() + _STARTED_SECONDS
        while supervisor(folder.path, look()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        ending.cancel(run, job_states([run], self.slurm)[folder.path], self.slurm)
        shutil.rmtree(folder.path, ignore_errors=True)
        return []


def _told(error: BaseException, at: str, left: Sequence[str]) -> SeatrialError:
    """Return the error that a person reads: whose run could not be submitted, and what is left."""
    known = error if isinstance(error, SeatrialError) else SeatrialError(_words(error))
    taken = "and nothing of the group was submitted" if not left else "what there was of the group is taken back, but:"
    return SeatrialError(
        "\n    ".join([f"{at}: {known.message}", taken, *left]), file=known.file, line=known.line, key=known.key,
        value=known.value, rule=known.rule, fix=known.fix,
    )  # fmt: skip


def _words(error: BaseException) -> str:
    if isinstance(error, SeatrialError):
        return error.message
    return str(error) if isinstance(error, OSError) else f"interrupted: {error!r}"
