"""Pages of groups and comparisons as text: every run told of, hostile text escaped, within the size of a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.judge.comparison import compare_curves
from seatrial.judge.comparison_pair import Tolerance
from seatrial.judge.curves import read_curve
from seatrial.judge.records import StepRecord
from seatrial.report.page import compare_page, group_page
from seatrial.report.page.columns import MOST_VALUES, columns_of
from seatrial.run.groups import Group, GroupRun
from seatrial.run.layout import RunFolder
from tests.judge.run_builder import seconds_at, three_attempts
from tests.report.test_page_run import HOSTILE, Reader, hostile


def group_of(*folders: RunFolder, **more: object) -> Group:
    members = tuple(GroupRun(one.path.name, one.path, "nano") for one in folders)
    return Group("g-20261201-100000-abcdef", "g", "2026-12-01T10:00:00+00:00", members, **more)  # type: ignore[arg-type]


def test_a_group_tells_of_every_run_and_of_what_they_share(tmp_path: Path) -> None:
    runs = [three_attempts(tmp_path / name, name) for name in ("one", "two")]
    page = group_page(group_of(*runs, same={"seed": 4321}, other_data="nano has its own blend"), None)
    text = Reader(page).text
    for said in ("one", "two", "4321", "Not the same data: nano has its own blend", "35.6%", "No difference in"):
        assert said in text, said
    assert page.count('id="run-0-attempt-1"') == page.count('id="run-1-attempt-1"') == 1


def test_a_run_whose_job_is_gone_does_not_go_on(tmp_path: Path) -> None:
    runs = [three_attempts(tmp_path / name, name) for name in ("one", "two")]
    for run in runs:
        kept = [line for line in run.events.read_text().splitlines() if '"done"' not in line and "_ended" not in line]
        run.events.write_text("\n".join(kept) + "\n")
    text = Reader(group_page(group_of(*runs), seconds_at(900), [runs[1].path])).text
    assert "This run goes on." in text
    assert text.index("goes on", text.index("standing")) < text.index("no decision on record")


def test_hostile_text_in_a_group_and_a_comparison_stays_text(tmp_path: Path) -> None:
    runs = [hostile(tmp_path / name, HOSTILE) for name in ("one", "two")]
    group = group_of(*runs, same={HOSTILE: HOSTILE}, other_data=HOSTILE, kind=HOSTILE)
    comparison = compare_curves([read_curve(one.path) for one in runs], Tolerance())
    comparison["runs"][0]["name"] = HOSTILE
    for page in (group_page(group, None), compare_page(comparison)):
        reader = Reader(page)
        assert page.encode()
        json.loads(reader.data)
        assert not {tag for tag, _ in reader.elements} & {"img", "iframe", "object", "embed", "base", "form"}
        assert len([tag for tag, _ in reader.elements if tag == "script"]) == 3
        assert "onerror=alert(1)" in reader.text


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 8])
def test_curves_of_any_number_of_long_runs_fit_a_page(runs: int) -> None:
    steps = [
        StepRecord(
            step, 48_000, step_time_ms=9.0, learning_rate=1.0, grad_norm=1.0, losses={"lm loss": 2.0, "aux": 1.0}
        )
        for step in range(1, 48_001)
    ]
    columns = columns_of(steps, None, None, MOST_VALUES // runs)
    size = len(json.dumps(columns.to_json()))
    assert size * runs < 4_000_000
    assert (columns.shown == 48_000) == (runs < 3)
