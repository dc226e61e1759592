"""`make campaign`: the tests that take minutes, and the table of their results in docs/campaign.md."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
TABLE = REPO / "docs" / "campaign.md"


def rows(report: Path, when: str) -> dict[tuple[str, str], str]:
    """Return (tests, case) -> its line of the table, for each test of a JUnit report."""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        outcome = next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")
        module, name = case.get("classname", "").removeprefix("tests."), str(case.get("name"))
        found[module, name] = f"| {module} | {name} | {outcome} | {float(case.get('time', 0)):.0f} s | {when} |"
    return found


def before() -> dict[tuple[str, str], str]:
    """Return what the table says of earlier runs; a part of the campaign replaces its own lines only."""
    lines = TABLE.read_text().splitlines() if TABLE.is_file() else []
    cells = {line: [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")}
    return {(cell[0], cell[1]): line for line, cell in cells.items() if len(cell) == 5 and cell[0] != "tests"}


def main() -> int:
    """Run the campaign, or the tests that are named; write their lines of the table."""
    report = REPO / ".pytest_cache" / "campaign.xml"
    words = [sys.executable, "-m", "pytest", "-m", "campaign", f"--junitxml={report}", *sys.argv[1:]]
    code = subprocess.run(words, cwd=REPO).returncode
    if code not in (0, 1):
        return code
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPO, capture_output=True, text=True).stdout
    when = f"{datetime.date.today().isoformat()}, {head.strip() or 'unknown'}"
    lines = [
        "# Campaign",
        "",
        "What `make campaign` runs beside `make test`, and how each last ended, with date and commit. CPU ranks",
        "throughout: no line here is a result on a GPU. Times are those of each test; the disturbed runs of",
        "`slurm.test_voyage` sail three at a time, so theirs is the time that was still to wait.",
        "",
        f"Last on {os.cpu_count()} cores, Python {platform.python_version()}, torch {version('torch')}, megatron-core "
        f"{version('megatron-core')}.",
        "",
        "| tests | case | outcome | time | run |",
        "|---|---|---|---|---|",
        *(line for _, line in sorted((before() | rows(report, when)).items())),
    ]
    TABLE.write_text("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
