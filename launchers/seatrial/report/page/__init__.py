"""Pages of runs, run groups and comparisons: each one HTML file that opens from disk."""

from __future__ import annotations

from seatrial.report.page.compare import compare_page
from seatrial.report.page.group import group_page
from seatrial.report.page.run import run_page

__all__ = ["compare_page", "group_page", "run_page"]
