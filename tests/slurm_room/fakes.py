"""Slurm commands that a test scripts: what each prints, how it exits, whether it hangs. They note their calls."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seatrial.slurm.client import Slurm
from seatrial.slurm.commands import ONCE, Done, Retry
from seatrial.slurm.table import SEPARATOR

_PROGRAM = r"""#!/bin/bash
d={folder}
n=$(($(cat "$d/n" 2>/dev/null || echo 0) + 1)); echo $n > "$d/n"
printf '%s\n' "$@" > "$d/argv.$n"; env > "$d/env.$n"
[ -e "$d/rc.$n" ] || n=last
cat "$d/out.$n"; cat "$d/err.$n" >&2
rc=$(cat "$d/rc.$n")
[ "$rc" = hang ] && sleep 60
[ "$rc" = killed ] && kill -9 $$
exit "$rc"
"""


@dataclass(frozen=True)
class Reply:
    """``rc``: a number, "hang" or "killed"."""

    out: str = ""
    err: str = ""
    rc: int | str = 0


class FakeCommands:
    """A folder of fake commands. Further calls repeat the last reply."""

    def __init__(self, root: Path) -> None:
        self.bin, self._state = root / "bin", root / "state"
        self.bin.mkdir()

    def script(self, name: str, *replies: Reply) -> None:
        folder = self._state / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "n").unlink(missing_ok=True)
        for number, reply in [*enumerate(replies, 1), ("last", replies[-1])]:
            (folder / f"out.{number}").write_text(reply.out)
            (folder / f"err.{number}").write_text(reply.err)
            (folder / f"rc.{number}").write_text(str(reply.rc))
        program = self.bin / name
        program.write_text(_PROGRAM.replace("{folder}", shlex.quote(str(folder))))
        program.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        folder = self._state / name
        files = sorted(folder.glob("argv.*"), key=lambda path: int(path.suffix[1:]))
        return [path.read_text().split("\n")[:-1] for path in files]

    def environment(self, name: str, call: int = 1) -> dict[str, str]:
        lines = (self._state / name / f"env.{call}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def slurm(self, environment: Mapping[str, str] | None = None, **settings: object) -> Slurm:
        """Return a client that uses the fakes and never sleeps."""
        path = {"PATH": f"{self.bin}:{os.environ['PATH']}"}
        slept: list[float] = []
        client = Slurm(dict(environment or {}) | path, sleep=slept.append, spread=lambda: 0.0, user="1000", **settings)
        client.slept = slept  # type: ignore[attr-defined]
        return client


@dataclass
class Told(Slurm):
    """A client whose questions are answered from a table (command -> outcome), in this process."""

    replies: Mapping[str, Done] = field(default_factory=dict)
    asked: list[Sequence[str]] = field(default_factory=list)

    def question(self, argv: Sequence[str], retry: Retry = ONCE, seconds: float | None = None) -> Done:
        self.asked.append(argv)
        return self.replies.get(argv[0], Done(127, "", f"there is no command {argv[0]!r} here", argv[0]))


def lines(*rows: Sequence[object]) -> str:
    """Return a table as Slurm prints it when asked for our separator."""
    return "".join(SEPARATOR.join(map(str, row)) + "\n" for row in rows)


def queue_row(
    job: int, name: str, state: str, *, reason: str = "None", user: str = "ada", uid: int = 1000,
    submitted: object = 1_800_000_000, started: object = 1_800_000_100, ended: object = "N/A", nodes: str = "n[1-2]",
) -> list[object]:  # fmt: skip
    return [job, user, uid, state, submitted, started, ended, nodes, reason, name]


def account_row(
    job: int, name: str, state: str, *, code: str = "0:0", derived: str = "0:0", user: str = "ada", uid: int = 1000,
    submitted: object = 1_800_000_000, started: object = 1_800_000_100, ended: object = 1_800_000_900,
    nodes: str = "n[1-2]", restarts: object = 0, failed: str = "", reason: str = "None", old: bool = False,
) -> list[object]:  # fmt: skip
    late = [] if old else [restarts, failed, reason]
    return [job, user, uid, state, submitted, started, ended, nodes, code, derived, *late, name]


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> FakeCommands:
    """Put fake commands first on PATH; those named say nothing and succeed."""
    root = folder / "fakes"
    root.mkdir()
    fakes = FakeCommands(root)
    monkeypatch.setenv("PATH", f"{fakes.bin}{os.pathsep}{os.environ['PATH']}")
    for name in names:
        fakes.script(name, Reply())
    return fakes
