"""Everything the checks ask a site's Slurm, asked once. A question that fails is remembered, and fails nothing."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from seatrial.errors import SeatrialError
from seatrial.slurm.client import CommandFailed, Slurm
from seatrial.slurm.commands import Retry
from seatrial.slurm.facts import Association, Node, Partition, Qos
from seatrial.slurm.table import listed, number, pairs

_SECONDS = 15.0  # a person waits for the answer
_RETRY = Retry(attempts=2)
_TREE = ("sacctmgr", "--readonly", "--noheader", "--parsable2", "show", "associations", "user=")
_ACCOUNTING_OFF = "not running a supported accounting_storage plugin"


@dataclass(frozen=True)
class Reservation:
    """``users`` and ``accounts`` None: not limited by those. A name with a minus is kept out."""

    name: str
    state: str
    partition: str | None
    users: tuple[str, ...] | None
    accounts: tuple[str, ...] | None


@dataclass(frozen=True)
class Site:
    """What Slurm said. None: it could not be asked (``unasked`` says why), or nobody needed to know.

    ``blocks``: the sizes in nodes of topology/block's blocks, none under another topology. ``parents``: account -> its
    parent account.
    """

    user: str = ""
    config: Mapping[str, str] | None = None
    version: tuple[int, ...] | None = None
    partitions: Sequence[Partition] | None = None
    nodes: Sequence[Node] | None = None
    qos: Sequence[Qos] | None = None
    associations: Sequence[Association] | None = None
    blocks: tuple[int, ...] | None = None
    reservations: Sequence[Reservation] | None = None
    parents: Mapping[str, str] | None = None
    unasked: Mapping[str, str] = field(default_factory=dict)

    @property
    def accounting(self) -> bool:
        """Whether this Slurm knows accounts and QOSs at all (yes, where that is not known)."""
        kind = (self.config or {}).get("AccountingStorageType", "accounting_storage/slurmdbd")
        return kind not in ("", "accounting_storage/none") and not any(
            _ACCOUNTING_OFF in words.lower() for words in self.unasked.values()
        )

    def enforces(self, what: str) -> bool:
        """Whether jobs are held to ``associations``, ``limits`` or ``qos`` (yes, where that is not known)."""
        text = (self.config or {}).get("AccountingStorageEnforce", "all").lower()
        words = set(text.split(","))
        if "safe" in words:
            words.add("limits")
        if words & {"limits", "qos", "wckeys"}:
            words.add("associations")
        return what in words or "all" in words

    def ancestors(self, account: str) -> list[str]:
        """Return ``account`` and the accounts above it: a partition's lists count for those below, too."""
        found = [account]
        while (parent := (self.parents or {}).get(found[-1])) and parent not in found:
            found.append(parent)
        return found


def for_a_person(slurm: Slurm) -> Slurm:
    """Return a client of the same Slurm that gives up soon."""
    return replace(slurm, retry=_RETRY, timeout_seconds=min(slurm.timeout_seconds, _SECONDS))


def ask(slurm: Slurm) -> Site:
    """Ask everything, several questions at a time. Never raises for what Slurm answers or does not.

    Where there is no Slurm, or its controller does not answer, nothing more is asked.
    """
    user = user_name()
    unasked: dict[str, str] = {}
    first = _answers({"itself": slurm.show_config}, unasked)
    site = Site(user=user, config=first.get("itself"), unasked=unasked)
    if site.config is None:
        return site
    questions: dict[str, Callable[[], Any]] = {
        "the version": slurm.version,
        "partitions": slurm.partitions,
        "nodes": slurm.nodes,
        "the topology": lambda: parse_blocks(_read(slurm, ["scontrol", "show", "topology"])),
        "reservations": lambda: parse_reservations(_read(slurm, ["scontrol", "--oneliner", "show", "reservation"])),
    }
    if site.accounting:
        questions |= {
            "QOSs": slurm.qos,
            "accounts": lambda: slurm.accounts(user),
            "the tree of accounts": lambda: parse_tree(_read(slurm, [*_TREE, "format=Account,ParentName"])),
        }
    said = _answers(questions, unasked)
    return replace(
        site, version=said.get("the version"), partitions=said.get("partitions"), nodes=said.get("nodes"),
        qos=said.get("QOSs"), associations=said.get("accounts"), blocks=said.get("the topology"),
        reservations=said.get("reservations"), parents=said.get("the tree of accounts"), unasked=unasked,
    )  # fmt: skip


def parse_blocks(text: str) -> tuple[int, ...]:
    """Read ``scontrol show topology``: the size of each block; none where there are switches or nothing."""
    lines = (pairs(line) for line in text.splitlines())
    return tuple(number(line.get("BlockSize", "")) or 0 for line in lines if "BlockName" in line)


def parse_reservations(text: str) -> list[Reservation]:
    """Read ``scontrol --oneliner show reservation``."""
    lines = (pairs(line) for line in text.splitlines())
    return [
        Reservation(
            line["ReservationName"], line.get("State", ""), (listed(line.get("PartitionName", "")) or (None,))[0],
            listed(line.get("Users", "")), listed(line.get("Accounts", "")),
        )
        for line in lines if "ReservationName" in line
    ]  # fmt: skip


def parse_tree(text: str) -> dict[str, str]:
    """Read ``sacctmgr show associations user= format=Account,ParentName`` (parsable): account -> its parent."""
    cells = (line.split("|") for line in text.splitlines())
    return {row[0]: row[1] for row in cells if len(row) == 2 and all(row)}


def _answers(questions: Mapping[str, Callable[[], Any]], unasked: dict[str, str]) -> dict[str, Any]:
    found = {}
    with ThreadPoolExecutor(max_workers=4) as pool:
        asked = {what: pool.submit(question) for what, question in questions.items()}
        for what, answer in asked.items():
            try:
                found[what] = answer.result()
            except SeatrialError as error:
                # Slurm's words alone: the same words about several questions make one note.
                words = error.message.partition(" failed: ")[2] or error.message
                unasked[what] = re.sub(r"\s*\n\s*", "; ", words.strip())
    return found


def _read(slurm: Slurm, argv: Sequence[str]) -> str:
    done = slurm.question(argv)
    if not done.ok:
        raise CommandFailed(f"{' '.join(argv[:3])} failed: {done.words}")
    return done.stdout


def user_name() -> str:
    """Return the name that Slurm knows this process's user by; variables of the shell may say another."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
