"""Ranks as one job step: started by srun on the batch host, told apart by what srun and the ranks themselves say."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from seatrial.errors import SeatrialError
from seatrial.run.layout import Attempt
from seatrial.supervise.ask import ask, step_id
from seatrial.supervise.exits import read_exit_record
from seatrial.supervise.nodes import allocation
from seatrial.supervise.ranks import Ended
from seatrial.supervise.step import beside_words, jit_caches, rank_of_message, srun_words, step_environment, step_name

_SLURM_SECONDS = 30.0
_SETTLE_SECONDS = 30.0  # for srun to end once every rank has left its record
_POLL_SECONDS = 0.05
# A controller that is just back may refuse a step for want of memory or nodes that it has not heard from yet.
_REFUSED = b"Unable to create step"
_REFUSED_SECONDS, _AGAIN_SECONDS = 120.0, 5.0
_EXIT_RECORD = re.compile(r"exit-(\d+)\.json$")
_EXIT_CODE = re.compile(r"[Ee]xit(?:ed with exit)? code (\d+)")
_SIGNALS = {signal.strsignal(number): -number for number in signal.valid_signals()}


class SrunRanks:
    """The ranks of one attempt as a job step. Used as LocalRanks is."""

    def __init__(
        self, spec: Mapping[str, Any], attempt: Attempt, command: Sequence[str], base: Mapping[str, str],
        nodes: Optional[Sequence[str]] = None,
    ) -> None:  # fmt: skip
        """Prepare the step for ``command``; ``base`` is the supervisor's own environment. ``nodes``: its own."""
        self._spec, self._attempt, self._command = spec, attempt, list(command)
        self._environment, self._chosen = dict(base), nodes
        self._log = attempt.path / "srun.log"
        self._running = set(range(int(spec["world_size"])))
        self.nodes: list[str] = []
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._heard = self._spoke_from = 0
        self._recorded: dict[int, Any] = {}  # the codes in the ranks' exit records, each read once
        self._step_id: Optional[str] = None
        self._words: list[str] = []
        self._give_up_at = float("-inf")
        self._again_at: Optional[float] = None
        self._all_recorded_at: Optional[float] = None

    def start(self, prepare: Callable[[Sequence[str]], None]) -> list[int]:
        """Find the nodes, start the step; return srun's process id. ``prepare`` is told the nodes before.

        Raises SeatrialError where the allocation does not fit the run, or srun cannot be started.
        """
        place = allocation(self._spec, self._environment, self._chosen)
        self.nodes = list(place.nodes)
        prepare(self.nodes)
        caches = jit_caches(self._spec["profile"]["paths"]["node_local"], self._spec["run_id"])
        settings = {**caches, **self._spec["environment"]}
        self._words = srun_words(self._spec, place, settings, self._attempt, self._command)
        self._environment = step_environment(self._environment, settings, place)
        self._give_up_at = time.monotonic() + _REFUSED_SECONDS
        return [self._spawn()]

    def _spawn(self) -> int:
        try:
            with self._log.open("ab") as stream:
                self._spoke_from, self._step_id = stream.tell(), None
                self._process = subprocess.Popen(
                    self._words,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise SeatrialError(f"cannot start srun: {error}", fix="run on a host of the cluster") from error
        return self._process.pid

    @property
    def running(self) -> list[int]:
        """The ranks that have not been seen to end."""
        return sorted(self._running)

    def poll(self) -> list[Ended]:
        """Return the ranks that have ended since the last look: srun says how, or they left their record."""
        over = self._process is None or self._process.poll() is not None  # asked before reading what it said
        if over and self._refused():
            return []
        ended = [Ended(rank, status, False) for rank, status in self._said() if rank in self._running]
        self._running -= {end.rank for end in ended}
        self._read_records()
        for rank in sorted(self._running if over else self._running & self._recorded.keys()):
            code = self._recorded.get(rank)
            if isinstance(code, int) and code != 0:
                ended.append(Ended(rank, code, False))
            elif over:
                ended.append(Ended(rank, self._leftover(code), False))
        self._running -= {end.rank for end in ended}
        self._settle()
        return ended

    def _read_records(self) -> None:
        """Read the exit records that are new: one listing of the folder a look, however many ranks there are."""
        with contextlib.suppress(OSError), os.scandir(self._attempt.path) as entries:
            for entry in entries:
                found = _EXIT_RECORD.match(entry.name) if entry.name.startswith("exit-") else None
                rank = int(found[1]) if found else -1
                if rank in self._running and rank not in self._recorded:
                    record = read_exit_record(self._attempt.exit_record(rank))
                    if record is not None:
                        self._recorded[rank] = record.get("code")

    def _refused(self) -> bool:
        """Whether Slurm did not begin the step, and it is worth another try; which is made when it is time."""
        now = time.monotonic()
        if self._process is None or now > self._give_up_at:
            return False
        with contextlib.suppress(OSError):
            said = self._log.read_bytes()[self._spoke_from :]
            if _REFUSED in said and b": task" not in said:
                if self._again_at is None:
                    self._again_at = now + _AGAIN_SECONDS
                elif now >= self._again_at:
                    self._again_at = None
                    self._spawn()
                return True
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every rank, through Slurm."""
        step = self._step()
        if step:
            ask(["scancel", f"--signal={number.name[3:]}", step], self._environment, _SLURM_SECONDS)

    def beside(self, command: Sequence[str], log: str, seconds: float) -> None:
        """Run a command on each node of the ranks, beside them; its output goes to ``log``-N.log, by node."""
        folder = str(self._attempt.path).replace("%", "%%")
        words = [*beside_words(log, self.nodes), f"--output={folder}/{log}-%n.log"]
        ask([*words, *command], self._environment, seconds)

    def end(self, grace_seconds: float = 0.0) -> list[Ended]:
        """Give what still runs ``grace_seconds`` to end by itself, then kill the step. Returns as poll."""
        if self._process is None:  # nothing was started
            return []
        self._give_up_at = float("-inf")
        ended = self.poll()
        deadline = time.monotonic() + grace_seconds
        while self._running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            ended += self.poll()
        self._kill()
        known = {end.rank for end in ended}
        late = [Ended(rank, status, status == -signal.SIGKILL) for rank, status in self._said() if rank not in known]
        ended += [end for end in late if end.rank in self._running]
        self._running -= {end.rank for end in late}
        ended += [Ended(rank, -signal.SIGKILL, True) for rank in sorted(self._running)]
        self._running = set()
        return ended

    def _leftover(self, recorded: Optional[int]) -> int:
        """Return the status of a rank that srun said nothing of, once srun is over."""
        assert self._process is not None
        code = self._process.returncode
        # Its own record of a good end counts; without one, srun's failure may be this rank's.
        return 0 if recorded == 0 or code == 0 else (1 if code < 0 else code)

    def _settle(self) -> None:
        """End a step whose ranks all say that they have ended, but which does not end."""
        if self._process is None or self._process.poll() is not None or not self._running:
            return
        if not self._running <= self._recorded.keys():
            self._all_recorded_at = None
        elif self._all_recorded_at is None:
            self._all_recorded_at = time.monotonic()
        elif time.monotonic() - self._all_recorded_at > _SETTLE_SECONDS:
            self._kill()

    def _said(self) -> list[tuple[int, int]]:
        """Return (rank, status) of srun's messages since the last look; negative: ended by that signal."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(self._heard)
                data = stream.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._heard += end
        text = data[:end].decode("utf-8", "replace")
        found = []
        for line in text.splitlines():
            message = rank_of_message(line)
            if message:
                found += [(rank, _status(message[1])) for rank in _ranks(message[0])]
        return found

    def _kill(self) -> None:
        """Kill the step through Slurm, then srun itself if it stays."""
        assert self._process is not None
        if self._process.poll() is None:
            step = self._step()
            told = step and ask(["scancel", "--signal=KILL", step], self._environment, _SLURM_SECONDS)
            if told is None:
                # The controller is away. srun itself reaches the nodes: at SIGTERM it kills all tasks.
                self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_SLURM_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _step(self) -> Optional[str]:
        """Return this step's id (``123.4``), found by its name; None where Slurm does not tell."""
        if self._step_id is not None:
            return self._step_id
        self._step_id = step_id(step_name(self._attempt.number), self._environment, _SLURM_SECONDS)
        return self._step_id


def _ranks(tasks: str) -> list[int]:
    """Expand srun's task list: ``0-2,5``."""
    found: list[int] = []
    for part in tasks.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.extend(range(int(first), int(last or first) + 1))
    return found


def _status(said: str) -> int:
    code = _EXIT_CODE.search(said)
    if code:
        return int(code[1])
    word = said.split(" (")[0].strip()
    return _SIGNALS.get(word, 1)
