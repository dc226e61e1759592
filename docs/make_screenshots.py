"""Makes docs/screenshots/ from synthetic runs: `.venv/bin/python docs/make_screenshots.py [FOLDER]`.

Only the clock, the curves and the failures of these runs are made up; see tests/synthetic_run.py.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from tests.synthetic_run import write_run  # noqa: E402

from seatrial.judge.comparison import compare_curves  # noqa: E402
from seatrial.judge.comparison_pair import Tolerance  # noqa: E402
from seatrial.judge.curves import read_curve  # noqa: E402
from seatrial.report.page import compare_page, group_page, run_page  # noqa: E402
from seatrial.run.groups import Group, GroupRun  # noqa: E402

MOST_BYTES = 200_000


@dataclass(frozen=True)
class Shot:
    """A picture: its name, the page, what is scrolled to the top, the window, and a script that runs before."""

    name: str
    page: str
    at: str = "body"
    width: int = 1280
    height: int = 900
    dark: bool = False
    before: str = ""


SHOTS = (
    Shot("run", "run", height=1000),
    Shot("run-zoomed", "run", "#curves", before="""() => {
        const slider = document.getElementById("smoothing");
        slider.value = 0.95;
        slider.dispatchEvent(new Event("input"));
        window.seatrial.charts[0].moveTo(14000, 20000);
    }"""),
    Shot("attempts-dark", "run", "#attempts", dark=True),
    Shot("verdict", "gate", "#verdict"),
    Shot("phone", "run", width=390, height=844),
    Shot("group", "group", height=1000),
    Shot("compare", "compare", height=760),
)  # fmt: skip


def pages(folder: Path) -> dict[str, Path]:
    """Write the pages that pictures are taken of; return name -> file."""
    run = write_run(folder / "nemotron_3_nano_gb200-convergence-20261106-212000-5c01fe")
    gate = write_run(folder / "nemotron_3_nano_gb200-gate-20261106-081500-77ab10", kind="gate")
    again = write_run(folder / "nemotron_3_nano_gb200-gate-20261107-101200-0e93d4", kind="gate", seed=5)
    short = [
        write_run(folder / f"{recipe}-convergence-20261109-090000-{number}", steps=6000, attempts=8, seed=seed,
                  recipe=recipe)
        for recipe, number, seed in (("nemotron_3_nano_gb200", "18ce02", 1), ("qwen35_9b_gb200", "18ce03", 2))
    ]  # fmt: skip
    members = tuple(GroupRun(one.path.name, one.path, one.path.name.partition("-")[0]) for one in short)
    group = Group(
        "nano-and-9b-20261109-090000-61f0aa", "nano-and-9b", "2026-11-09T09:00:00+00:00", members,
        same={"seed": 1234, "split": "99,1,0"},
    )  # fmt: skip
    comparison = compare_curves([read_curve(one.path) for one in (gate, again)], Tolerance())
    texts = {
        "run": run_page(run, None), "gate": run_page(gate, None), "group": group_page(group, None),
        "compare": compare_page(comparison),
    }  # fmt: skip
    found = {name: folder / f"{name}.html" for name in texts}
    for name, text in texts.items():
        found[name].write_text(text, encoding="utf-8")
    return found


def main(target: Path) -> None:
    """Write the pictures. Raises SystemExit where one is too large."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        made = pages(Path(folder))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for shot in SHOTS:
            scheme = "dark" if shot.dark else "light"
            page = browser.new_page(viewport={"width": shot.width, "height": shot.height}, color_scheme=scheme)
            page.goto(made[shot.page].as_uri())
            if shot.before:
                page.evaluate(shot.before)
            page.evaluate("(at) => document.querySelector(at).scrollIntoView({ behavior: 'instant' })", shot.at)
            page.wait_for_timeout(300)
            size = len(page.screenshot(path=target / f"{shot.name}.png"))
            page.close()
            print(f"{target / shot.name}.png: {size // 1000} kB")
            if size > MOST_BYTES:
                raise SystemExit(f"{shot.name}.png has {size} bytes, more than {MOST_BYTES}")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs" / "screenshots")
