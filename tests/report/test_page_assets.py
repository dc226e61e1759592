"""What a page is made of: the vendored chart library as it was published, and nothing that asks a network."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import pytest

from seatrial.report.page.shell import UPLOT_VERSION, asset
from seatrial.slurm.snapshot import ROOMS

# As published in uplot-1.6.32.tgz: package/dist and package/LICENSE.
PUBLISHED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
ASSETS = files("seatrial.report.page") / "assets"


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_chart_library_is_the_published_one(name: str) -> None:
    assert hashlib.sha256((ASSETS / "uplot" / name).read_bytes()).hexdigest() == PUBLISHED[name]


def test_it_is_the_version_that_pages_name() -> None:
    assert f"(v{UPLOT_VERSION})" in asset("uplot/uPlot.iife.min.js").splitlines()[0]
    assert {path.name for path in (ASSETS / "uplot").iterdir()} == set(PUBLISHED)


@pytest.mark.parametrize("name", ["data.js", "charts.js", "controls.js", "page.css", "dark.css"])
def test_no_asset_of_ours_names_an_address_or_loads_a_thing(name: str) -> None:
    assert not re.search(r"//[a-z]|url\(|@import|fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", asset(name))


def test_a_compute_host_gets_none_of_it() -> None:
    assert "report" not in ROOMS
