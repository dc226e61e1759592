"""squeue, sacct and scontrol: which columns are asked for, and how they are read. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from seatrial.slurm.state_records import Entry, Record
from seatrial.slurm.table import SEPARATOR, job_rows, number, pairs, seconds_since_1970

# The name comes last: it is the only column that users fill, so whatever it holds breaks no other.
_QUEUE = ("%A", "%u", "%U", "%T", "%V", "%S", "%e", "%N", "%r", "%j")
_ACCOUNTING = (
    "JobIDRaw", "User", "UID", "State", "Submit", "Start", "End", "NodeList", "ExitCode", "DerivedExitCode",
    "Restarts", "FailedNode", "Reason", "JobName",
)  # fmt: skip
# Slurm 22.05 lacks Restarts and FailedNode, and one unknown column fails the whole call.
OPTIONAL = frozenset({"Restarts", "FailedNode", "Reason"})
# Linux takes 128 KiB in one argument.
_LONGEST_ARGUMENT = 100_000
_NO_VALUE = frozenset({"", "None", "Unknown", "N/A", "(null)", "n/a", "None assigned"})


def queue_argv(numbers: Sequence[str], cluster: str | None) -> list[str]:
    """Return the squeue call for these jobs; ended ones show too, while the controller remembers them."""
    return [
        "squeue", "--noheader", "--states=all", *_where(cluster), f"--jobs={','.join(numbers)}",
        f"--format={SEPARATOR.join(_QUEUE)}",
    ]  # fmt: skip


def accounting_argv(numbers: Sequence[str], cluster: str | None, lacks: Collection[str]) -> list[str]:
    """Return the sacct call for these jobs: all records of each, without steps."""
    return [
        "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--delimiter={SEPARATOR}",
        *_where(cluster), f"--jobs={','.join(numbers)}", f"--format={','.join(_columns(lacks))}",
    ]  # fmt: skip


def control_argv(numbers: Sequence[str], cluster: str | None) -> list[str]:
    """Return the scontrol call: it takes one number, so for several jobs it shows all."""
    return ["scontrol", *_where(cluster), "--oneliner", "show", "job", *(numbers if len(numbers) == 1 else [])]


def chunks(numbers: Iterable[str]) -> Iterator[list[str]]:
    """Cut job numbers into lists that fit one argument each; nearly always one."""
    chunk: list[str] = []
    length = 0
    for item in numbers:
        if chunk and length + len(item) + 1 > _LONGEST_ARGUMENT:
            yield chunk
            chunk, length = [], 0
        chunk.append(item)
        length += len(item) + 1
    if chunk:
        yield chunk


def parse_queue(text: str) -> dict[str, tuple[Entry, ...]]:
    """Read squeue's answer: job number -> its entries."""
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for job, user, uid, state, submitted, started, ended, nodes, reason, name in job_rows(text, len(_QUEUE)):
        if word := _state(state)[0]:
            found[job].append(Entry(
                job, name, user, uid, word, _text(reason), seconds_since_1970(submitted), seconds_since_1970(started),
                seconds_since_1970(ended), _text(nodes),
            ))  # fmt: skip
    return {job: tuple(entries) for job, entries in found.items()}


def parse_accounting(text: str, lacks: Collection[str]) -> dict[str, tuple[Record, ...]]:
    """Read sacct's answer: job number -> its records, oldest first."""
    columns = _columns(lacks)
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for row in job_rows(text, len(columns)):
        at = dict(zip(columns, row, strict=True))
        word, more = _state(at["State"])
        if not word:
            continue
        found[at["JobIDRaw"]].append(Record(
            at["JobIDRaw"], at["JobName"], at["User"], at["UID"], word, more or _text(at.get("Reason", "")),
            seconds_since_1970(at["Submit"]), seconds_since_1970(at["Start"]), seconds_since_1970(at["End"]),
            _text(at["NodeList"]), at["ExitCode"], at["DerivedExitCode"], number(at.get("Restarts", "")),
            _text(at.get("FailedNode", "")) or None,
        ))  # fmt: skip
    return {job: tuple(sorted(records, key=_age)) for job, records in found.items()}


def parse_control(text: str) -> dict[str, tuple[Entry, ...]]:
    """Read ``scontrol --oneliner show job``."""
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for line in text.split("\n"):
        # The name may hold anything, so it is cut out by its neighbours.
        head = re.match(r"JobId=(\d+) .*?JobName=(.*?) UserId=(.*?)\((\d+)\) (.*)$", line)
        if head is None:
            continue
        at = pairs(head[5])
        word = _state(at.get("JobState", ""))[0]
        if word:
            found[head[1]].append(Entry(
                head[1], head[2], head[3], head[4], word, _text(at.get("Reason", "")),
                seconds_since_1970(at.get("SubmitTime", "")), seconds_since_1970(at.get("StartTime", "")),
                seconds_since_1970(at.get("EndTime", "")), _text(at.get("NodeList", "")),
                number(at.get("Restarts", "")), at.get("ExitCode"), "scontrol",
            ))  # fmt: skip
    return {job: tuple(entries) for job, entries in found.items()}


def missing_column(words: str) -> bool:
    """Return whether sacct's error is about a column that this version does not have."""
    return "invalid field requested" in words.lower()


def no_such_job(words: str) -> bool:
    """Return whether the error is an answer: asked about a single job it does not have, the controller says this."""
    return "invalid job id specified" in words.lower()


def _columns(lacks: Collection[str]) -> list[str]:
    return [column for column in _ACCOUNTING if column not in lacks]


def _where(cluster: str | None) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _state(text: str) -> tuple[str, str]:
    """Return the state's word and what follows it ("CANCELLED by 0"); an empty word for what is no state."""
    word, _, more = text.strip().partition(" ")
    word = word.rstrip("+")
    return (word, more.strip()) if re.fullmatch(r"[A-Z][A-Z_]+", word) else ("", "")


def _text(value: str) -> str:
    return "" if value in _NO_VALUE else value


def _age(record: Record) -> tuple[float, float, float]:
    """Order records in time. An open record has no end, one that never started no start: both come last."""
    late = float("inf")
    return (record.submitted or 0.0, late if record.started is None else record.started, record.ended or late)
