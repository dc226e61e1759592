"""What a run on this machine survives: Ctrl-C in the terminal that it was started from, and that terminal's end."""

from __future__ import annotations

import signal
import subprocess
import sys

from seatrial.slurm.local import _own_session

SAY = "import signal as s; print(*(s.getsignal(n) is s.SIG_IGN for n in (s.SIGINT, s.SIGHUP, s.SIGTERM)))"


def test_children_ignore_the_terminals_signals_and_this_process_does_not() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)]
    with _own_session():
        said = subprocess.run([sys.executable, "-c", SAY], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "True", "False"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)] == before
