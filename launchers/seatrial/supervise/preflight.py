"""The preflight: what each node must show before an attempt begins on it. One task a node, in seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from seatrial.errors import SeatrialError
from seatrial.supervise import preflight_judge, preflight_settings, preflight_step
from seatrial.supervise.nodes import down, nodes_now
from seatrial.supervise.preflight_judge import Heard
from seatrial.supervise.step import srun_environment

if TYPE_CHECKING:
    from seatrial.supervise.job import Job

_RANK_PROGRAM = preflight_step.PROGRAM.parents[1] / "train" / "rank.py"
_REFUSED_SECONDS = 2.0  # until a step that Slurm refused is tried again
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Report:
    """What a preflight came to. ``failed``: node -> sentences; ``skipped``: checks that some node could not make.

    ``asked`` is False where nobody could be asked: then only those count as failed that Slurm itself calls lost.
    """

    nodes: Sequence[str]
    failed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    tries: int = 0
    seconds: float = 0.0
    asked: bool = True

    @property
    def healthy(self) -> list[str]:
        """The nodes that have not failed, in order."""
        return [node for node in self.nodes if node not in self.failed]


def preflight(job: Job, nodes: Sequence[str], attempt: int, backoff: float = 2.0) -> Report:
    """Ask ``nodes`` before attempt ``attempt``; return who failed every try, and put it on record.

    Those that fail are asked again, after ``backoff`` seconds, then twice as many. Never raises for what nodes or Slurm
    do. A stop that is asked for ends it.
    """
    block = preflight_settings.wanted(job.spec)
    if not block["enabled"] or not nodes:
        return Report(list(nodes))
    return _Preflight(job, nodes, attempt).run(int(block["tries"]), backoff)


class _Preflight:
    def __init__(self, job: Job, nodes: Sequence[str], attempt: int) -> None:
        self._job, self._nodes, self._attempt = job, list(nodes), attempt
        block = preflight_settings.wanted(job.spec)
        self._seconds, self._clock_seconds = float(block["seconds"]), float(block["clock_seconds"])
        profile = job.spec["profile"]
        python = str(profile.get("host_python") or "python3") if job.on_slurm else sys.executable
        settings = preflight_settings.for_nodes(job.spec, job.folder.path, _RANK_PROGRAM)
        self._program = preflight_step.program_words(python, settings)
        self._environment = srun_environment(os.environ) if job.on_slurm else dict(os.environ)
        self._lost: dict[str, tuple[str, ...]] = {}  # of these Slurm itself has said so
        self._skipped: dict[str, str] = {}
        self._problem = ""

    def run(self, most: int, backoff: float) -> Report:
        began = time.monotonic()
        failed: Mapping[str, tuple[str, ...]] = {}
        asked, tries, left = 0, 0, list(self._nodes)
        while left and tries < most and not self._stopped():
            if tries:
                self._wait(backoff * 2 ** (tries - 1))
            found = self._try(left, f"preflight-{self._attempt:03d}-{tries}")
            tries += 1
            if found is not None:
                asked, failed = asked + 1, found
                left = [node for node in left if node in failed]
            left = [node for node in left if node not in self._lost]
        if self._stopped():
            asked, failed = 0, {}
        elif left and asked < most:
            failed = {}  # not proven: they were not asked as often as a node may fail
        failed = {node: words for node in self._nodes for words in [self._lost.get(node) or failed.get(node)] if words}
        seconds = time.monotonic() - began
        return self._told(Report(self._nodes, failed, tuple(self._skipped), tries, seconds, asked > 0))

    def _try(self, nodes: Sequence[str], name: str) -> Optional[dict[str, tuple[str, ...]]]:
        """Ask once, and those that others kept from answering once more; None where nobody could be asked."""
        failed: dict[str, tuple[str, ...]] = {}
        left, asked = list(nodes), False
        while left:
            heard = self._heard(left, name)
            left = [node for node in left if node not in self._lost]
            if heard is None:
                break
            judged = preflight_judge.judge(heard, left, self._seconds, self._clock_seconds)
            asked, failed = True, {**failed, **judged.failed}
            self._skipped.update(judged.skipped)
            left = preflight_judge.cut_short(heard, left, judged)
            failed = {node: words for node, words in failed.items() if node not in left}
        return failed if asked else None

    def _heard(self, nodes: Sequence[str], name: str) -> Optional[Heard]:
        """Return what the nodes say, but for those that turn out lost; None where nobody could be asked.

        A step that Slurm refuses is tried again in the same time.
        """
        end = time.monotonic() + self._seconds
        while True:
            asked = [node for node in nodes if node not in self._lost]
            if not asked:
                return None
            heard = self._listen(asked, name, time.monotonic() + self._seconds)  # a step that begins has its full time
            refused = self._job.on_slurm and preflight_judge.refused(heard)
            if not refused or self._stopped() or time.monotonic() + _REFUSED_SECONDS > end:
                break
            if not self._look_for_lost(asked):
                self._wait(_REFUSED_SECONDS)
        if heard.reached:
            return heard
        self._problem = preflight_judge.last_error(heard)
        return None

    def _listen(self, nodes: Sequence[str], name: str, end: float) -> Heard:
        if self._job.on_slurm:
            words = [*preflight_step.srun_words(name, nodes), *self._program]
            return preflight_step.Step(words, nodes, self._environment, name).listen(end, self._stopped)
        environment = {**self._environment, "SLURMD_NODENAME": nodes[0]}
        return preflight_step.Step(self._program, nodes, environment, None).listen(end, self._stopped)

    def _look_for_lost(self, nodes: Sequence[str]) -> bool:
        """Ask Slurm which of ``nodes`` it has taken from the job, or calls down; return whether there are any."""
        try:
            present = set(nodes_now(os.environ))
        except SeatrialError:
            present = set(nodes)
        lost = {node: "Slurm has taken it from the job" for node in nodes if node not in present}
        lost.update((node, "Slurm calls it down") for node in down(nodes, os.environ))
        self._lost.update((node, (f"no answer: {why}",)) for node, why in lost.items())
        return bool(lost)

    def _told(self, report: Report) -> Report:
        """Put it on record."""
        journal = self._job.journal
        for node, sentences in report.failed.items():
            journal.say(f"preflight: {node} is not fit: {'; '.join(sentences)}")
        if report.asked:
            fit = f"{len(report.healthy)} of {len(report.nodes)} nodes fit"
            journal.say(f"preflight: {fit}, in {report.seconds:.1f} s{self._skips()}")
        else:
            why = "a stop was asked for" if self._stopped() else self._problem or "Slurm began no step"
            journal.say(f"the preflight could not be made, so nodes count as fit: {why}")
        journal.event(
            "preflight", attempt=self._attempt, tries=report.tries, nodes=list(report.nodes),
            failed={node: list(sentences) for node, sentences in report.failed.items()},
            skipped=list(report.skipped), seconds=round(report.seconds, 3), asked=report.asked,
        )  # fmt: skip
        return report

    def _skips(self) -> str:
        reasons: dict[str, list[str]] = {}
        for check, why in self._skipped.items():
            reasons.setdefault(why, []).append(check)
        told = "; ".join(f"{', '.join(checks)} ({why})" for why, checks in reasons.items())
        return f"; skipped: {told}" if told else ""

    def _stopped(self) -> bool:
        return self._job.control.stop is not None or self._job.control.taken_away

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stopped():
            time.sleep(_POLL_SECONDS)
