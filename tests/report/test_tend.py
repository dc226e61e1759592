"""What `seatrial tend` says: short where there is nothing to say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from seatrial.report.tend import counts, lines


@dataclass(frozen=True)
class Came:
    run: str
    action: str
    words: str = "why"
    done: bool = False
    failed: bool = False

    @property
    def needs_person(self) -> bool:
        return self.failed or self.action == "person"


MANY = [
    Came("a", "nothing"), Came("b", "submit", "submitted as job 8: why", done=True), Came("c", "submit", failed=True),
    Came("d", "person", "held"), Came("e", "unknown", "no answer"), Came("f", "unknown", "no answer"),
    Came("g", "wait"),
]  # fmt: skip


def test_only_what_needed_or_got_something_has_a_line() -> None:
    assert list(lines(MANY)) == [
        "+ b: submitted as job 8: why",
        "! c: could not submit: why",
        "! d: held",
        "? 2 runs, first e: no answer",
        "7 runs: 1 failed, 1 submitted, 1 for a person, 2 of which nobody can say how they stand, "
        "1 to look at again in a minute, 1 with nothing to do",
    ]
    assert counts(MANY) == {"nothing": 1, "submit": 1, "failed": 1, "person": 1, "unknown": 2, "wait": 1}


def test_every_run_has_a_line_where_all_are_asked_for() -> None:
    assert [line[:3] for line in lines(MANY, everything=True)][:-1] == ["- a", "+ b", "! c", "! d", "? e", "? f", "- g"]


@pytest.mark.parametrize(
    ("came", "said"),
    [
        ([], ["0 runs"]),
        ([Came("a", "nothing")], ["1 run: 1 with nothing to do"]),
        ([Came("a", "submit")], ["+ a: would submit: why", "1 run: 1 to submit"]),
        ([Came("a", "requeue"), Came("b", "start")],
         ["+ a: would requeue: why", "+ b: would start here: why", "2 runs: 1 to start here, 1 to requeue"]),
        ([Came("a", "submit", failed=True)], ["! a: could not submit: why", "1 run: 1 failed"]),
    ],
)  # fmt: skip
def test_a_dry_run(came: list[Came], said: list[str]) -> None:
    assert list(lines(came, dry_run=True)) == said
