"""Running one Slurm command: an argv list, an environment, a time limit, and retries for errors known to pass.

Nothing here writes a log; arguments are refused if they hold a secret, and what is shown of output hides secrets.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.errors import SeatrialError
from seatrial.slurm.environment import redacted, secrets
from seatrial.slurm.passing import Passing, passing

_SHOWN = 2000
_LAST_WORDS_SECONDS = 5.0


class CommandFailed(SeatrialError):
    """A Slurm command gave no usable answer. Says nothing about any job."""


@dataclass(frozen=True)
class Done:
    """How a command ended. ``code``: its exit code, negative if a signal ended it, None if its time was over."""

    code: int | None
    stdout: str
    stderr: str
    name: str = ""
    seconds: float = 0.0

    @property
    def timed_out(self) -> bool:
        return self.code is None

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def passes(self) -> bool:
        """Whether asking again may help."""
        return not self.ok and (self.timed_out or passing(self.stderr + self.stdout) is not None)

    @property
    def not_taken(self) -> bool:
        """Whether the command surely had no effect, and may have one later."""
        return not (self.ok or self.timed_out) and passing(self.stderr + self.stdout) is Passing.NOT_TAKEN

    @property
    def words(self) -> str:
        """Slurm's own words about what went wrong, or ours where it said none."""
        said = "\n".join(part.strip() for part in (self.stderr, self.stdout) if part.strip())[:_SHOWN]
        if self.timed_out:
            return f"{self.name} gave no answer within {self.seconds:.0f} s" + (f"; it said: {said}" if said else "")
        return said or f"{self.name} ended with {self.code} and said nothing"


@dataclass(frozen=True)
class Retry:
    """At most ``attempts`` runs; waits of ``first`` seconds, doubling up to ``most``, each spread by up to a half."""

    attempts: int = 5
    first: float = 1.0
    most: float = 30.0

    def waits(self, spread: Callable[[], float] = random.random) -> Iterator[float]:
        """Yield the waits between attempts, in seconds. ``spread`` gives numbers in [0, 1)."""
        for number in range(self.attempts - 1):
            yield min(self.most, self.first * 2**number) * (1 + spread() / 2)


ONCE = Retry(attempts=1)
DEFAULT_RETRY = Retry()


def run(argv: Sequence[str], *, environment: Mapping[str, str], timeout_seconds: float) -> Done:
    """Run ``argv`` without a shell and without input; ``environment`` is all it gets.

    A time-out is an outcome (``Done.timed_out``). Raises SeatrialError for a command that is missing or cannot be
    started, and for an argument that holds a secret of the environment. Ctrl-C does not reach the command; when it
    ends this call, the command is ended too.
    """
    words = list(argv)
    _refuse_secrets(words, environment)
    try:
        process = subprocess.Popen(
            words, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="replace", start_new_session=True,
        )  # fmt: skip
    except (FileNotFoundError, NotADirectoryError):
        raise SeatrialError(
            f"there is no command {words[0]!r} here",
            rule="Slurm's commands must be on PATH",
            fix="run this on a login node of the cluster, or use --profile local-cpu",
        ) from None
    except (OSError, ValueError) as error:
        raise SeatrialError(f"cannot start {words[0]!r}: {error}") from error
    began = time.monotonic()
    code: int | None
    try:
        out, err = process.communicate(timeout=timeout_seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        code = None
    except BaseException:
        _end(process)
        raise
    hide = secrets(environment)
    return Done(code, redacted(out, hide), redacted(err, hide), words[0], time.monotonic() - began)


def run_patiently(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float,
    retry: Retry,
    only_once: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    spread: Callable[[], float] = random.random,
) -> Done:
    """Run a command, and again while its error is one that passes.

    ``only_once``: its effect must not come twice, so a lost answer is not followed by another run.
    """
    done = run(argv, environment=environment, timeout_seconds=timeout_seconds)
    for wait in retry.waits(spread):
        if not done.passes or (only_once and not done.not_taken):
            break
        sleep(wait)
        done = run(argv, environment=environment, timeout_seconds=timeout_seconds)
    return done


def _refuse_secrets(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    for name, value in secrets(environment).items():
        if any(value in word for word in argv):
            raise SeatrialError(
                f"an argument of {argv[0]} holds the value of {name}",
                rule="secrets are never in arguments: every user of the machine can read those",
                fix=f"give {name} by name (profile env.pass) or in a file",
            )


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Kill the command with its children (a wrapper's sleep would hold our pipes); return what it said."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=_LAST_WORDS_SECONDS)
    except subprocess.TimeoutExpired:
        # A child in a session of its own still holds the pipe: leave it, it is not ours to find.
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
        return "", ""
