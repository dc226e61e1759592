"""A site whose Slurm answers from files: each question of the checks has its own, and a test changes some of them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from seatrial.slurm.client import Slurm
from seatrial.slurm.table import SEPARATOR
from tests.slurm_room.fakes import Reply

# The words by which a command's arguments are told apart; the first match counts.
QUESTIONS = {
    "show config": "config", "show partition": "partition", "show topology": "topology",
    "show reservation": "reservation", "--version": "version", "show qos": "qos", "user= ": "tree",
    "show associations": "associations", "--Node": "nodes", "--test-only": "test_only",
    "--job-name=seatrial-image": "srun", "--name=seatrial-image": "scancel",
}  # fmt: skip
_PROGRAM = """#!/bin/bash
d={folder}
echo "${{0##*/}} $*" >> "$d/calls"
case "${{0##*/}} $*" in
{cases}
*) echo "nobody answers $*" >&2; exit 1;;
esac
[ -e "$d/$f.hang" ] && sleep 60
cat "$d/$f.out"; cat "$d/$f.err" >&2; exit "$(cat "$d/$f.rc")"
"""


def config(**values: str) -> str:
    """Return ``scontrol show config``."""
    known = {
        "AccountingStorageEnforce": "associations,limits,qos", "AccountingStorageType": "accounting_storage/slurmdbd",
        "ClusterName": "red", "PreemptMode": "OFF", "PreemptType": "(null)", "TopologyPlugin": "topology/block",
    }  # fmt: skip
    return "".join(f"{key:<24}= {value}\n" for key, value in (known | values).items())


def partition(name: str = "batch", **values: str) -> str:
    """Return a line of ``scontrol --oneliner show partition``."""
    known = {
        "AllowAccounts": "ALL", "AllowQos": "ALL", "Default": "NO", "QoS": "N/A", "GraceTime": "0",
        "MaxNodes": "UNLIMITED", "MaxTime": "04:00:00", "Nodes": "n[01-18]", "PreemptMode": "OFF", "State": "UP",
        "TotalNodes": "18",
    }  # fmt: skip
    return " ".join(f"{key}={value}" for key, value in ({"PartitionName": name} | known | values).items()) + "\n"


def node(
    number: int, *, at: str = "batch", gres: str = "gpu:gb200:4(S:0-1)", state: str = "idle", cpus: int = 144,
    memory: int = 900_000,
) -> str:  # fmt: skip
    """Return a line of sinfo."""
    return SEPARATOR.join([f"n{number:02d}", at, state, str(cpus), str(memory), gres, "gb200"]) + "\n"


def nodes(**values: object) -> str:
    """Return eighteen equal nodes."""
    return "".join(node(number, **values) for number in range(1, 19))  # type: ignore[arg-type]


ACCEPTED = "sbatch: Job 9 to start at 2026-12-01T05:27:26 using 288 processors on nodes n[01-02] in partition batch\n"
ANSWERS = {
    "config": Reply(config()), "partition": Reply(partition()), "nodes": Reply(nodes()),
    "topology": Reply("BlockName=rack-1 BlockIndex=0 Nodes=n[01-18] BlockSize=18\n"),
    "reservation": Reply("No reservations in the system\n"), "version": Reply("slurm 24.11.5\n"),
    "qos": Reply("normal|||||cluster|00:00:00|\nurgent|||||cluster|00:00:00|\n"),
    "associations": Reply("red|lab||normal,urgent|normal||\nblue|far|||||\n"),
    "tree": Reply("root|\nscience|root\nlab|science\n"), "test_only": Reply(err=ACCEPTED),
    "srun": Reply(), "scancel": Reply(),
}  # fmt: skip


class FakeSite:
    """Fake commands in a folder; ``slurm()`` is a client of them."""

    def __init__(self, root: Path, **changes: Reply) -> None:
        self.bin, self._state = root / "bin", root / "state"
        for folder in (self.bin, self._state):
            folder.mkdir()
        for name, reply in (ANSWERS | changes).items():
            (self._state / f"{name}.out").write_text(reply.out)
            (self._state / f"{name}.err").write_text(reply.err)
            (self._state / f"{name}.rc").write_text("1" if reply.rc == "hang" else str(reply.rc))
            if reply.rc == "hang":
                (self._state / f"{name}.hang").touch()
        cases = "\n".join(f"*{shlex.quote(words)}*) f={name};;" for words, name in QUESTIONS.items())
        program = _PROGRAM.format(folder=shlex.quote(str(self._state)), cases=cases)
        for command in ("scontrol", "sinfo", "sacctmgr", "sbatch", "srun", "scancel"):
            (self.bin / command).write_text(program)
            (self.bin / command).chmod(0o755)

    def calls(self) -> list[str]:
        """Return the commands that ran, each with its arguments."""
        return (self._state / "calls").read_text().splitlines()

    def slurm(self, **variables: str) -> Slurm:
        """Return a client whose shell has ``variables`` besides PATH and HOME."""
        shell = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
        return Slurm(shell | variables, sleep=lambda _: None, user="1000")
