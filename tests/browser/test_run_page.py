"""The page of a run in a real browser: what is drawn, and how a person moves through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from seatrial.judge.records import StepRecord
from seatrial.report.page import run_page
from seatrial.run import records
from tests.browser.conftest import Opener
from tests.judge.run_builder import seconds_at, three_attempts

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
CHARTS = ("loss", "grad-norm", "learning-rate", "step-time", "tokens", "time")
RANGE = "() => window.seatrial.charts[0].range"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three attempts, a NaN, and text in its records that would take over a careless page."""
    folder = three_attempts(tmp_path_factory.mktemp("runs"))
    spec = records.read_json(folder.spec) | {"world_size": 2, "recipe": HOSTILE, "rehearsal": True}
    spec["fields"]["model.seq_length"] = {"value": 64, "owner": "rehearsal", "source": "x:1", "recipe_value": 8192}
    records.write_json(folder.spec, spec)
    lines = [
        StepRecord.from_json(line | {"learning_rate": 1e-6 * line["step"], "global_batch_size": 4})
        for line in records.read_lines(folder.metrics)
    ]
    folder.metrics.unlink()
    for line in lines:
        losses = {"lm loss": float("nan") if line.step == 70 else line.losses["lm loss"]}
        if 80 <= line.step < 90:
            continue
        if 80 <= line.step < 90:
            continue
        records.append_line(
            folder.metrics, line.to_json() | {"losses": {k: records.encode_float(v) for k, v in losses.items()}}
        )
    for step in (50, 85):
        records.append_event(
            folder.events, "evaluation", iteration=step, which="interval", losses={"lm loss": 4.4}, step=step, attempt=1
        )
    records.append_event(folder.events, "nodes_excluded", reason=HOSTILE)
    found = folder.path / "report.html"
    found.write_text(run_page(folder, None))
    return found


def drawn(page: Page, chart: str) -> int:
    """Return how many pixels of a chart are not blank."""
    return page.evaluate(
        """(id) => {
            const c = document.querySelector(`#chart-${id} canvas`);
            const pixels = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            return pixels.filter((value, place) => place % 4 === 3 && value).length;
        }""",
        chart,
    )  # type: ignore[no-any-return]


def test_all_charts_are_drawn_and_no_record_runs_as_script(path: Path, opened: Opener) -> None:
    page = opened(path)
    assert {chart: drawn(page, chart) > 2000 for chart in CHARTS} == dict.fromkeys(CHARTS, True)
    assert page.title() == "run-1"
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.get_by_text("A rehearsal on CPU ranks.").is_visible()


def test_a_nan_is_a_marked_gap_and_never_zero(path: Path, opened: Opener) -> None:
    page = opened(path)
    row = "const c = window.seatrial.charts[0], i = c.x.indexOf(70);"
    assert page.evaluate(f"() => {{ {row} return c.ys[0][i]; }}") is None
    assert page.evaluate(f"() => {{ {row} return Math.min(...c.ys[0].filter((v) => v !== null)); }}") == pytest.approx(
        4.0
    )
    assert page.evaluate(f"() => {{ {row} return [c.flags.get(70), c.flags.size]; }}") == ["nan", 1]
    assert page.get_by_text("lm loss is not finite").is_visible()


def test_steps_without_a_record_are_a_gap_that_no_other_series_bridges(path: Path, opened: Opener) -> None:
    page = opened(path)
    chart = page.evaluate("() => { const c = window.seatrial.charts[0]; return [c.x, c.ys[0]]; }")
    loss = dict(zip(*chart, strict=True))
    assert 85 in loss  # the step of an evaluation
    assert [loss[step] for step in (80, 85)] == [None, None]
    assert loss[90] == pytest.approx(4.1)
    assert page.get_by_text("of the steps 80-89.").is_visible()


def test_the_mouse_zooms_all_charts_of_steps_and_a_double_click_resets(path: Path, opened: Opener) -> None:
    page = opened(path)
    page.locator("#chart-loss").scroll_into_view_if_needed()
    box = page.locator("#chart-loss .u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=4)
    page.mouse.up()
    ranges = page.evaluate("() => window.seatrial.charts.map((c) => c.range)")
    low, high = ranges[0]
    assert 20 < low < 30
    assert 45 < high < 55
    assert all(found == [low, high] for found in ranges[:5])
    assert ranges[5][0] > 1e9  # the chart of times has an axis of its own
    assert page.locator("#range").inner_text() == f"steps {int(low) + 1} to {int(high)}"
    page.mouse.dblclick(box["x"] + 50, middle)
    assert page.evaluate(RANGE) == [1, 100]


def test_the_keyboard_zooms_moves_resets_and_reads(path: Path, opened: Opener) -> None:
    page = opened(path)
    page.locator("#chart-loss .plot").focus()
    page.keyboard.press("+")
    low, high = page.evaluate(RANGE)
    assert high - low == pytest.approx(49.5)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(RANGE)[0] == pytest.approx(low - 0.2 * 49.5)
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert page.evaluate(RANGE) == [1, 100]
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator("#chart-loss .where").inner_text().startswith("step 1")
    assert "lm loss 4.99" in page.locator("#said").inner_text()


def test_smoothing_logarithms_and_series(path: Path, opened: Opener) -> None:
    page = opened(path)
    before = page.evaluate("() => window.seatrial.charts[0].u.data[2][50]")
    page.locator("#smoothing").fill("0.9")
    smooth = page.evaluate("() => window.seatrial.charts[0].u.data[2]")
    assert before is None
    assert smooth[0] == pytest.approx(4.99)  # the correction at the beginning
    assert smooth[1] == pytest.approx((0.9 * 0.1 * 4.99 + 0.1 * 4.98) / (1 - 0.81))
    button = page.get_by_role("button", name="Logarithmic axis: Loss")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert page.evaluate("() => window.seatrial.charts[0].u.scales.y.distr") == 3
    page.locator("#chart-loss .legend button", has_text="lm loss").click()
    assert page.evaluate("() => window.seatrial.charts[0].u.series[1].show") is False


def test_dark_by_the_system_and_by_the_button(path: Path, opened: Opener) -> None:
    page = opened(path, color_scheme="dark")
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    button = page.locator("#theme")
    button.click()
    assert button.inner_text() == "Theme: light"
    light = page.evaluate(background)
    button.click()
    assert page.evaluate(background) == dark != light
    assert drawn(page, "loss") > 2000


def test_a_phone_scrolls_down_only(path: Path, opened: Opener) -> None:
    page = opened(path, 390, 844)
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    assert page.evaluate("() => Math.max(...[...document.querySelectorAll('canvas')].map((c) => c.clientWidth))") <= 390
    assert drawn(page, "loss") > 1000


def test_the_tab_key_reaches_every_control(path: Path, opened: Opener) -> None:
    page = opened(path)
    wanted = page.evaluate(
        """() => {
            const all = [...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")];
            const seen = all.filter((one) => one.checkVisibility());
            seen.forEach((one, place) => { one.dataset.tab = place; });
            return seen.length;
        }"""
    )
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => Number(document.activeElement.dataset.tab)"))
    assert wanted > 40
    assert reached == list(range(wanted))
    names = page.evaluate(
        """() => [...document.querySelectorAll("button, input")].filter((one) => !one.textContent.trim()
            && !one.getAttribute("aria-label") && !document.querySelector(`label[for="${one.id}"]`)
        ).map((one) => one.outerHTML)"""
    )
    assert names == []


def test_without_script_the_numbers_are_there(path: Path, opened: Opener) -> None:
    page = opened(path, java_script_enabled=False)
    text = page.locator("noscript").inner_text()
    assert "These are the numbers that matter" in text
    assert page.locator("noscript svg polyline").count() == 1
    assert page.locator(".toolbar").first.is_hidden()


def test_paper_is_white_and_unfolded(path: Path, opened: Opener) -> None:
    page = opened(path, color_scheme="dark")
    page.emulate_media(media="print")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("() => document.querySelectorAll('details:not([open])').length") == 0
    assert page.evaluate("() => window.seatrial.charts[0].u.width") == 660
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("() => document.querySelectorAll('details:not([open])').length") > 0


def test_a_run_that_goes_on_says_when_it_was_looked_at(path: Path, opened: Opener) -> None:
    from seatrial.run.layout import RunFolder

    live = path.with_name("live.html")
    live.write_text(run_page(RunFolder(path.parent), seconds_at(250)))
    page = opened(live)
    assert "as it stood at 2026-12-01 10:04:10 UTC" in page.locator("header").inner_text()
