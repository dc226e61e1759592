"""What the nodes' lines come to: who answered, what failed there, and what could not be checked. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.supervise.preflight_node import MARK

_OUT_OF_REACH = re.compile(r"failed on node |Node failure on ")
_OF_A_TASK = re.compile(r"error: \S+: tasks? \d")
_BRACKETS = re.compile(r"([\w.-]*)\[([\d,-]+)\]")
_ERROR = re.compile(r"^(?:srun|slurmstepd): error: (.*)$")


@dataclass(frozen=True)
class Heard:
    """One step's output: (time.time() when it was read, line). ``began``: time.time() at its start.

    ``reached``: whether the nodes were asked at all. ``in_time``: whether it ended by itself.
    """

    lines: Sequence[tuple[float, str]]
    began: float
    reached: bool = True
    in_time: bool = True


@dataclass(frozen=True)
class Judged:
    """``failed``: node -> sentences, of all that did not show what they must; ``answered``: of those asked.

    ``skipped``: check -> the reason that the first node gave.
    """

    failed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()
    skipped: dict[str, str] = field(default_factory=dict)


def judge(heard: Heard, nodes: Sequence[str], seconds: float, clock_seconds: float) -> Judged:
    """Judge every one of ``nodes``: one that is missing in the output has failed. Others are passed over."""
    sentences: dict[str, list[str]] = {node: [] for node in nodes}
    answered: set[str] = set()
    skipped: dict[str, str] = {}
    for read_at, line in heard.lines:
        told = parse(line)
        node = str(told.get("node"))
        if node not in sentences:
            continue
        if isinstance(told.get("check"), str):
            if told.get("state") == "failed":
                sentences[node].append(f"{told['check']}: {told.get('why')}")
            elif told.get("state") == "skipped":
                skipped.setdefault(told["check"], str(told.get("why")))
        elif "time" in told:
            answered.add(node)
            sentences[node] += _clock(told["time"], heard.began, read_at, clock_seconds)
    for node in nodes:
        if node not in answered:
            sentences[node].append(_no_answer(node, heard, seconds))
    failed = {node: tuple(found) for node, found in sentences.items() if found}
    return Judged(failed, frozenset(answered), skipped)


def parse(line: str) -> dict[str, Any]:
    """Return what a node's line says; {} for any other line."""
    if not line.startswith(MARK):
        return {}
    try:
        told = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def all_answered(lines: Iterable[tuple[float, str]], nodes: Iterable[str]) -> bool:
    """Whether each of ``nodes`` has said its last line."""
    told = (parse(line) for _, line in lines)
    return set(nodes) <= {str(one.get("node")) for one in told if "time" in one}


def was_reached(lines: Iterable[tuple[float, str]]) -> bool:
    """Whether the nodes were asked: one has said something, or srun speaks of a task or of a launch on a node."""
    return any(line.startswith(MARK) or _OF_A_TASK.search(line) or _OUT_OF_REACH.search(line) for _, line in lines)


def refused(heard: Heard) -> bool:
    """Whether Slurm did not begin the step, in whatever words."""
    return heard.in_time and not heard.reached


def cut_short(heard: Heard, nodes: Sequence[str], judged: Judged) -> list[str]:
    """Return the nodes whose tasks Slurm ended because it could not reach others, which it names.

    Of these nothing is known, until they are asked without the others.
    """
    silent = [node for node in nodes if node not in judged.answered] if heard.in_time else []
    out_of_reach = {node for node in silent if any(_OUT_OF_REACH.search(text) for text in _errors(heard, node))}
    return [node for node in silent if node not in out_of_reach] if out_of_reach else []


def last_error(heard: Heard) -> str:
    """Return the last words that are no node's answer."""
    said = [line.strip() for _, line in heard.lines if line.strip() and not line.startswith(MARK)]
    return said[-1] if said else ""


def _errors(heard: Heard, node: str) -> list[str]:
    """Return what srun and the step daemons called errors, and name the node with."""
    found = [match[1] for match in (_ERROR.match(line) for _, line in heard.lines) if match]
    return [text for text in found if _names(text, node)]


def _names(text: str, node: str) -> bool:
    """Whether a message names the node, by itself or in brackets as ``n[001-003,7]``."""
    if re.search(rf"(?<![\w.-]){re.escape(node)}(?![\w-])", text):
        return True
    for prefix, ranges in _BRACKETS.findall(text):
        number = node[len(prefix) :]
        if node.startswith(prefix) and number.isdecimal():
            ends = [part.partition("-") for part in ranges.split(",")]
            if any(low <= number <= (high or low) for low, _, high in ends if len(low) == len(number)):
                return True
    return False


def _clock(said: Any, began: float, read_at: float, most: float) -> list[str]:
    """A node said its time after ``began`` and before ``read_at``, both by the batch host's clock."""
    if not isinstance(said, float) or not math.isfinite(said):
        return ["clock: it has no time"]
    ahead, behind = said - read_at, began - said
    if max(ahead, behind) <= most:
        return []
    words = f"{ahead:.1f} s ahead of" if ahead > behind else f"{behind:.1f} s behind"
    return [f"clock: {words} the batch host's"]


def _no_answer(node: str, heard: Heard, seconds: float) -> str:
    said = _errors(heard, node)
    if said:
        return f"no answer: {said[-1].removeprefix(f'{node}: ')}"
    return "no answer: its task ended without one" if heard.in_time else f"no answer within {seconds:g} s"
