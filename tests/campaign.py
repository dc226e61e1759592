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


def rows(report: Path) -> list[str]:
    """Return a line of the table for each test of a JUnit report."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        outcome = next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")
        module = case.get("classname", "").removeprefix("tests.")
        found.append(f"| {module} | {case.get('name')} | {outcome} | {float(case.get('time', 0)):.0f} s |")
    return found


def main() -> int:
    """Run the campaign; write the table only where every test ran."""
    report = REPO / ".pytest_cache" / "campaign.xml"
    words = [sys.executable, "-m", "pytest", "-m", "campaign", f"--junitxml={report}", *sys.argv[1:]]
    code = subprocess.run(words, cwd=REPO).returncode
    if code not in (0, 1):
        return code
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPO, capture_output=True, text=True).stdout
    about = (
        f"Run on {datetime.date.today().isoformat()} at commit {head.strip() or 'unknown'}: {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, torch {version('torch')}, megatron-core {version('megatron-core')}."
    )
    lines = [
        "# Campaign",
        "",
        "What `make campaign` runs beside `make test`, and how it last ended. CPU ranks throughout: no line here is a",
        "result on a GPU.",
        "",
        about,
        "",
        "| tests | case | outcome | time |",
        "|---|---|---|---|",
        *rows(report),
    ]
    TABLE.write_text("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
