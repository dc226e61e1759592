"""The verdict: one line per rule, and what they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

SCHEMA_VERSION = 1
PASS = "PASS"
FAIL = "FAIL"
INCONCLUSIVE = "INCONCLUSIVE"
NOT_JUDGED = "NOT JUDGED"

DETAILS = ("speed", "resume_check", "curve", "validation", "spikes", "passes", "goodput")

# A rule names this many offending steps; ``seen`` tells how many there are.
MOST_STEPS = 20


@dataclass(frozen=True)
class RuleResult:
    """One rule's outcome. ``steps``: the steps that broke it; ``evidence``: the file where it can be looked up."""

    rule: str
    verdict: str
    expected: str
    seen: str
    steps: tuple[int, ...] = ()
    evidence: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "verdict": self.verdict,
            "expected": self.expected,
            "seen": self.seen,
            "steps": list(self.steps[:MOST_STEPS]),
            "evidence": self.evidence,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuleResult:
        return cls(
            data["rule"],
            data["verdict"],
            data["expected"],
            data["seen"],
            tuple(data["steps"]),
            data["evidence"],
        )


@dataclass(frozen=True)
class Verdict:
    """What verdict.json holds. ``scope``: "run" (a run folder) or "log" (only a log, so less can be known).

    ``drill``: FAULT@STEP of a gate that a fault was put into; it admits no run. ``details``: what was measured, by
    key (see schemas/verdict-1.json); what there is nothing to tell of is left out.
    """

    verdict: str
    rehearsal: bool
    scope: str
    subject: str
    kind: str
    rules: tuple[RuleResult, ...]
    drill: Optional[str] = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA_VERSION,
            "verdict": self.verdict,
            "rehearsal": self.rehearsal,
            "scope": self.scope,
            "subject": self.subject,
            "kind": self.kind,
            "rules": [rule.to_json() for rule in self.rules],
            **({"drill": self.drill} if self.drill else {}),
            **self.details,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        rules = tuple(RuleResult.from_json(rule) for rule in data["rules"])
        details = {key: data[key] for key in DETAILS if data.get(key) is not None}
        return cls(
            data["verdict"], data["rehearsal"], data["scope"], data["subject"], data["kind"], rules, data.get("drill"),
            details,
        )  # fmt: skip


def schema() -> dict[str, Any]:
    """Return the JSON schema that verdict.json keeps to."""
    file = Path(__file__).parent / "schemas" / f"verdict-{SCHEMA_VERSION}.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def overall(rules: Iterable[RuleResult], needed: Iterable[str]) -> str:
    """Return FAIL if any rule fails, INCONCLUSIVE if any is or a ``needed`` one was not judged, else PASS."""
    verdicts = {rule.rule: rule.verdict for rule in rules}
    if FAIL in verdicts.values():
        return FAIL
    if INCONCLUSIVE in verdicts.values() or any(verdicts.get(name) != PASS for name in needed):
        return INCONCLUSIVE
    return PASS


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst of ``verdicts``; PASS where there is none."""
    order = (FAIL, INCONCLUSIVE, NOT_JUDGED, PASS)
    return min(verdicts, key=order.index, default=PASS)
