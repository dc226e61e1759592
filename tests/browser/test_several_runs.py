"""Pages of several runs, and of a long one, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.judge.comparison import compare_curves
from seatrial.judge.comparison_pair import Tolerance
from seatrial.judge.curves import read_curve
from seatrial.report.page import compare_page, group_page, run_page
from seatrial.run import records
from seatrial.run.groups import Group, GroupRun
from seatrial.run.layout import RunFolder
from tests.browser.conftest import Opener
from tests.judge.run_builder import seconds_at, three_attempts
from tests.synthetic_run import write_run

MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    """Two runs of 100 steps; the second one's loss is another from step 60 on."""
    root = tmp_path_factory.mktemp("pair")
    runs = three_attempts(root, "run-1"), three_attempts(root, "run-2")
    for folder, recipe in zip(runs, ("nano", "other"), strict=True):
        records.write_json(folder.spec, records.read_json(folder.spec) | {"recipe": recipe})
    lines = records.read_objects(runs[1].metrics)
    runs[1].metrics.unlink()
    for line in lines:
        line["losses"]["lm loss"] += 0.5 if line["step"] >= 60 else 0.0
        records.append_line(runs[1].metrics, line)
    return runs


def group_of(*folders: RunFolder) -> Group:
    members = tuple(GroupRun(one.path.name, one.path, "nano") for one in folders)
    return Group("pair-20261201-100000-abcdef", "pair", "2026-12-01T10:00:00+00:00", members, same={"seed": 1})


def test_the_page_of_a_group_lays_curves_over_each_other(
    pair: tuple[RunFolder, RunFolder], opened: Opener, tmp_path: Path
) -> None:
    path = tmp_path / "group.html"
    path.write_text(group_page(group_of(*pair), None))
    page = opened(path)
    series = page.evaluate("() => window.seatrial.charts[0].spec.series.map((one) => one.label)")
    assert series == ["nano", "other"]
    ends = page.evaluate("() => window.seatrial.charts[0].ys.map((values) => values[99])")
    assert ends == pytest.approx([4.0, 4.5])
    rows = page.locator("#runs tbody tr").all_inner_texts()
    assert len(rows) == 2
    assert "4.5000" in rows[1]
    page.locator("#runs a", has_text="other").click()
    assert page.evaluate("() => location.hash") == "#run-1"
    # What is folded is drawn when it is opened.
    page.locator("#run-1 summary", has_text="all about this run").click()
    page.wait_for_function(
        """() => {
            const chart = window.seatrial.charts.find((one) => one.figure.id === "chart-run-1-time");
            return chart.u.width === chart.plot.clientWidth;
        }"""
    )
    assert page.evaluate("() => new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size") == (
        page.locator("[id]").count()
    )


def test_a_group_with_a_run_that_left_nothing(
    pair: tuple[RunFolder, RunFolder], opened: Opener, tmp_path: Path
) -> None:
    path = tmp_path / "group.html"
    path.write_text(group_page(group_of(pair[0], RunFolder(tmp_path / "gone")), seconds_at(300)))
    page = opened(path)
    assert "none yet" in page.locator("#runs").inner_text()


def test_the_page_of_a_comparison_marks_where_they_part(
    pair: tuple[RunFolder, RunFolder], opened: Opener, tmp_path: Path
) -> None:
    path = tmp_path / "compare.html"
    path.write_text(compare_page(compare_curves([read_curve(one.path) for one in pair], Tolerance())))
    page = opened(path, 390, 844)
    assert page.locator("header .pill").inner_text() == "different"
    assert "first divergence at step 60" in page.locator("#verdict").inner_text()
    assert page.evaluate("() => window.seatrial.charts.every((one) => one.spec.lines[0].x === 60)")
    difference = page.evaluate("() => window.seatrial.charts[0].ys[0]")
    assert difference[58:60] == pytest.approx([0.0, 0.5])
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    assert "recipe" in page.locator("#configuration").inner_text()


def test_a_long_run_is_whole_and_small_enough(opened: Opener, tmp_path: Path) -> None:
    path = tmp_path / "long.html"
    path.write_text(run_page(write_run(tmp_path / "run"), None))
    assert path.stat().st_size < MOST_BYTES
    page = opened(path)
    assert page.evaluate("() => window.seatrial.charts[0].x.length") == 48_000
    page.evaluate("() => window.seatrial.charts[0].moveTo(31000, 31060)")
    assert page.evaluate("() => window.seatrial.charts[0].u.series[0].idxs") == [30_999, 31_059]
    assert page.locator("#attempts tbody tr[id]").count() == 30
