"""The listing of differences, held against the scripts that NeMo-Run really renders, and against the page."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.interop.nemo_run.differences import DIFFERENCES, compare, parse
from tests.environments.build import build
from tests.interop.cases import CASES, FULL, NANO, SITE

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "how-to" / "nemo-run.md"


@pytest.mark.parametrize(
    ("ours", "theirs", "differing"),
    [
        ("#SBATCH --mem=0\n#SBATCH --exclusive", "#SBATCH --exclusive\n#SBATCH --mem=0", {}),
        ('#SBATCH --reservation="a b"', "#SBATCH --reservation='a b'", {}),
        ("#SBATCH --mem=0", "#SBATCH --mem=1", {"mem": ("--mem=0", "--mem=1")}),
        ("#SBATCH --mem=0", "# SBATCH --mem=0", {"mem": ("--mem=0", "")}),
        ("", "#SBATCH --exclusive", {"exclusive": ("", "--exclusive")}),
        ("#SBATCH --exclusive", "#SBATCH --exclusive=user", {"exclusive": ("--exclusive", "--exclusive=user")}),
    ],
)
def test_scripts_are_compared_by_what_slurm_reads(ours: str, theirs: str, differing: dict[str, Any]) -> None:
    assert compare(ours, theirs) == differing


def test_the_page_lists_every_difference() -> None:
    text = " ".join(PAGE.read_text().split())
    for item in DIFFERENCES:
        row = f"| `{item.directive}` | {item.ours} | {item.nemo_run} | {item.reason} |"
        assert " ".join(row.split()) in text, f"docs/how-to/nemo-run.md lacks: {row}"
    assert text.count("| `") == len(DIFFERENCES), "the page lists what is no difference"


def render(home: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    python = build("nemo-run")
    environment = os.environ | {"NEMORUN_HOME": str(home)}
    words = [str(python), "-m", "tests.interop.render", json.dumps(cases)]
    done = subprocess.run(words, cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RENDERED ")]
    found: list[dict[str, Any]] = json.loads(line.removeprefix("RENDERED "))
    return found


@pytest.mark.campaign
def test_nemo_run_renders_our_directives(tmp_path: Path) -> None:
    wanted = [(profile, kind, [*SITE, *more]) for profile, kind in CASES for more in ((), FULL)]
    cases = [{"recipe": NANO, "profile": profile, "kind": kind, "settings": given} for profile, kind, given in wanted]
    met = set()
    for case, rendered in zip(cases, render(tmp_path, cases), strict=True):
        differing = compare(rendered["ours"], rendered["theirs"])
        assert differing.keys() <= {item.directive for item in DIFFERENCES}, (case, differing)
        met |= differing.keys()
        # The one that no script shows: the words before it.
        assert rendered["command"] == ["sbatch", "--requeue", "--parsable"]
        if "no-requeue" in parse(rendered["theirs"]):
            met.add("requeue")
        assert "TORCHX_MAX_RETRIES=0" in rendered["theirs"], "NeMo-Run would requeue, too"
        assert rendered["theirs"].count("\nsrun --output") == 1
        bash = subprocess.run(["bash", "-n"], input=rendered["theirs"], text=True, capture_output=True)
        assert not bash.returncode and not bash.stderr
        inline = rendered["inline"]
        assert "/nemo_run" not in inline and rendered["folder"] == f"/lustre/runs/{rendered['run_id']}"
    assert met == {item.directive for item in DIFFERENCES}, "a difference that is none is listed"
