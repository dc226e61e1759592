"""The supervisor: the process that is the job. ``python -m seatrial.supervise RUN_FOLDER``, or a submitit callable."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from seatrial.judge.gate import judge_run
from seatrial.run import records
from seatrial.run.layout import Attempt, RunFolder
from seatrial.supervise import exit_codes
from seatrial.supervise.attempt import Outcome, run_attempt

_VERDICT_CODES = {"PASS": exit_codes.DONE, "FAIL": exit_codes.VERDICT_FAIL}


class _Signals:
    """SIGUSR2, SIGTERM and SIGINT ask the ranks to save and end; a second SIGTERM or SIGINT ends them at once."""

    def __init__(self) -> None:
        self.attempt: Optional[Attempt] = None
        self.asked = 0
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def announce(self, attempt: Attempt) -> None:
        """Tell which attempt a signal stops; one that came before is passed on."""
        self.attempt = attempt
        if self.asked:
            self._ask(signal.SIGTERM)

    def hurry(self) -> bool:
        """True when the ranks are to be ended at once."""
        return self.asked > 1

    def _handle(self, number: int, _frame: Any) -> None:
        if number != signal.SIGUSR2 or not self.asked:
            self.asked += 1
        self._ask(number)

    def _ask(self, number: int) -> None:
        if self.attempt is not None and not self.attempt.stop_file.exists():
            self.attempt.stop_file.write_text(f"{signal.Signals(number).name} {records.now()}\n")


def supervise(run_folder: str, rank_command: Optional[Sequence[str]] = None) -> int:
    """Carry the run in ``run_folder`` to its end and return the job's exit code (see exit_codes).

    Whatever happens, the ranks are ended, and the record says what happened.
    """
    folder = RunFolder(Path(run_folder))
    signals = _Signals()  # first of all: submitit's own handlers would swallow SIGTERM
    try:
        spec = records.read_json(folder.spec)
        outcome = run_attempt(spec, folder, os.environ, signals.hurry, signals.announce, rank_command)
        _say(f"attempt ended: {outcome.outcome}: {outcome.reason}")
        code = _judge(folder, outcome) if spec["kind"] == "gate" else outcome.exit_code
        records.append_event(folder.events, "decision", decision="done" if code == 0 else "stop", exit_code=code)
    except BaseException as error:
        _say(traceback.format_exc())
        records.append_event(
            folder.events, "decision", decision="stop", exit_code=exit_codes.SUPERVISOR_ERROR,
            reason=f"the supervisor broke: {type(error).__name__}: {error}",
        )  # fmt: skip
        return exit_codes.SUPERVISOR_ERROR
    return code


def _judge(folder: RunFolder, outcome: Outcome) -> int:
    """Write the gate's verdict; return the exit code that it and the outcome make."""
    verdict = judge_run(folder.path).to_json()
    records.write_json(folder.verdict, verdict)
    records.append_event(folder.events, "verdict", verdict=verdict["verdict"])
    _say(f"verdict: {verdict['verdict']}")
    return outcome.exit_code or _VERDICT_CODES.get(verdict["verdict"], exit_codes.VERDICT_INCONCLUSIVE)


def _say(text: str) -> None:
    """Write a line to the batch log."""
    print(f"[seatrial {records.now()}] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1]))
