"""The verdict on any run, by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from seatrial.judge.convergence import judge_voyage
from seatrial.judge.gate import judge_run
from seatrial.judge.verdict import Verdict
from seatrial.run.layout import RunFolder
from seatrial.run.records import read_object
from seatrial.run.reference import Held


def judge_folder(folder: Path, decision: Optional[Mapping[str, Any]] = None, held: Optional[Held] = None) -> Verdict:
    """Judge the run in ``folder``. ``decision``: what ends a convergence run, where that is not on record yet.

    ``held``: what it is held against, in place of its own reference.

    Raises SeatrialError where it holds no readable spec.json.
    """
    kind = (read_object(RunFolder(folder).spec) or {}).get("kind")
    return judge_voyage(folder, decision, held) if kind == "convergence" else judge_run(folder, held)
