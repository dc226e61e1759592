"""What nvidia-smi and the kernel log say of a node's GPUs, as faults in words. Pure; no text makes it raise.

Written from NVIDIA's documents and tried on such texts alone: nvidia-smi's man page (docs.nvidia.com/deploy/nvidia-smi)
and the Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

GPU_QUERY = ("nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader")
ECC_QUERY = ("nvidia-smi", "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader,nounits")
ROWS_QUERY = (
    "nvidia-smi", "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure",
    "--format=csv,noheader",
)  # fmt: skip
NVLINK_QUERY = ("nvidia-smi", "nvlink", "--status")

# Those whose immediate action in the catalog is a reset of the GPU or a restart of the node: until then the GPU is
# not to be used. Left out: 155 (also links that go down by intent), 156 (a repair that waits, as 63 does).
_RESET = frozenset({46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158})
_NVLINK5 = range(144, 151)  # each says itself whether it is fatal
_ACTION_CHANGED = 154
XID_SECONDS = 6 * 3600.0  # older ones were dealt with, or show in what nvidia-smi says

_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d{1,5})(.*)", re.DOTALL)
_NEW_ACTION = re.compile(r" to 0x[0-9a-fA-F]+ \(([^)]*)\)")
_DRIVER_LOADED = re.compile(r"NVRM: loading NVIDIA UNIX")
_GPU_LINE = re.compile(r"^GPU (\d+):")
_LINK_LINE = re.compile(r"^\s+Link (\d+):\s*(.*?)\s*$")
_SPEED = re.compile(r"^[\d.]+ [GM]B/s$")
_NO_LINK = re.compile(r"all links are inactive", re.IGNORECASE)


class Found(NamedTuple):
    """``faults`` in words; ``known``: whether the text said anything of the matter at all."""

    faults: tuple[str, ...]
    known: bool


def gpus(said: str, promised: int, kind: Optional[str]) -> Found:
    """Judge the answer to GPU_QUERY: how many GPUs are ``promised``, and of which ``kind`` (None: of any)."""
    rows = [row for row in _rows(said) if len(row) == 2 and row[0].isdecimal()]
    faults = []
    if len(rows) != promised:
        faults.append(f"{len(rows)} GPUs are visible, {promised} are promised")
    wrong = [row for row in rows if kind and _plain(kind) not in _plain(row[1])]
    faults += [f"GPU {index} is {name!r}, promised is {kind}" for index, name in wrong]
    return Found(tuple(faults), True)


def ecc(said: str) -> Found:
    """Judge the answer to ECC_QUERY: memory errors since the driver was loaded that could not be corrected."""
    counts = [(row[0], int(row[1])) for row in _rows(said) if len(row) == 2 and _is_count(row[1])]
    return Found(
        tuple(f"GPU {index}: {count} uncorrected ECC errors" for index, count in counts if count), bool(counts)
    )


def rows(said: str) -> Found:
    """Judge the answer to ROWS_QUERY: memory rows that wait for a reset to be replaced, or cannot be."""
    faults, known = [], False
    for row in _rows(said):
        if len(row) != 3:
            continue
        pending, failure = _yes(row[1]), _yes(row[2])
        known = known or pending is not None or failure is not None
        if failure:
            faults.append(f"GPU {row[0]}: remapping a memory row failed")
        if pending:
            faults.append(f"GPU {row[0]}: a memory row waits for a reset to be remapped")
    return Found(tuple(faults), known)


def nvlink(said: str) -> Found:
    """Judge the answer to NVLINK_QUERY: a link without a speed is down."""
    gpu, known = "?", False
    down: dict[str, list[str]] = {}
    for line in said.splitlines():
        head, link = _GPU_LINE.match(line), _LINK_LINE.match(line)
        if head:
            gpu = head[1]
        elif link:
            known = True
            if not _SPEED.match(link[2]):
                down.setdefault(gpu, []).append(link[1])
        elif _NO_LINK.search(line):
            known = True
            down.setdefault(gpu, ["all"])
    return Found(tuple(f"GPU {name}: NVLink down: {', '.join(links)}" for name, links in down.items()), known)


def xids(lines: Iterable[tuple[float, str]], within: float = XID_SECONDS) -> Found:
    """Judge the kernel log's (age in seconds, text), oldest first, as far back as ``within``.

    The driver's start, and Xid 154 when it says that nothing is to be done any more, end what was before.
    """
    faults: dict[str, list[str]] = {}
    for age, text in lines:
        if _DRIVER_LOADED.search(text):
            faults.clear()
        found = _XID.search(text)
        if not found or age > within:
            continue
        gpu, number, rest = found[1], int(found[2]), found[3]
        if number == _ACTION_CHANGED and _action(rest) == "None":
            faults.pop(gpu, None)
        elif _is_fault(number, rest):
            action = f" ({_action(rest)})" if number == _ACTION_CHANGED else ""
            words = f"{gpu}: Xid {number}{action} {_ago(age)} ago"
            faults.setdefault(gpu, []).append(words)
    return Found(tuple(words for found in faults.values() for words in found[-2:]), True)


def _is_fault(number: int, rest: str) -> bool:
    if number == _ACTION_CHANGED:
        return _action(rest) not in (None, "None")
    return number in _RESET or (number in _NVLINK5 and " Fatal " in rest)


def _action(rest: str) -> Optional[str]:
    found = _NEW_ACTION.search(rest)
    return found[1] if found else None


def _ago(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _rows(said: str) -> Iterable[Sequence[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]


def _is_count(cell: str) -> bool:
    return cell.isascii() and cell.isdecimal() and len(cell) < 19


def _yes(cell: str) -> Optional[bool]:
    """Return what a cell says; None where it says nothing: ``[N/A]``, ``[Not Supported]``."""
    if _is_count(cell):
        return int(cell) > 0
    return {"yes": True, "no": False}.get(cell.lower())


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())
