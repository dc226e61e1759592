"""The run folder: where everything about a run lies, and how a run is found again."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import SeatrialError
from seatrial.run.sharing import make_folder

TEMPORARY = "seatrial-rank-"  # so begin the names of all ranks' temporary folders


def new_run_id(recipe: str, kind: str) -> str:
    """Return ``<recipe>-<kind>-<YYYYmmdd-HHMMSS>-<6 hex>``, safe as a file name and as a job name."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", recipe).strip("._-")[:80] or "recipe"
    return f"{safe}-{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def temporary_prefix(run_id: str) -> str:
    """Return how the names of a run's ranks' temporary folders begin.

    Short: the sockets of multiprocessing lie in them, and their paths have at most 107 bytes.
    """
    return f"{TEMPORARY}{hashlib.sha256(run_id.encode()).hexdigest()[:8]}-"


@dataclass(frozen=True)
class Attempt:
    """One attempt's folder: its plan, one log and one exit record a rank, its record."""

    path: Path
    number: int

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @property
    def stop_file(self) -> Path:
        return self.path / "stop"

    def rank_log(self, rank: int) -> Path:
        return self.path / f"rank-{rank:05d}.log"

    def exit_record(self, rank: int) -> Path:
        return self.path / f"exit-{rank:05d}.json"

    def drill_mark(self, rank: int) -> Path:
        return self.path / f"drill-{rank:05d}.json"


@dataclass(frozen=True)
class RunFolder:
    """A run's folder."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Make the folder, mode 0700. Raises SeatrialError where it exists or cannot be made."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            (path / "attempts").mkdir(mode=0o700)
        except OSError as error:
            raise SeatrialError(
                f"cannot make the run folder: {error.strerror}",
                file=path,
                fix="set profile.paths.runs to another folder",
            ) from error
        return cls(path)

    @classmethod
    def open(cls, name: str, runs: Path = Path("runs")) -> RunFolder:
        """Find a run by its folder, or by its id or a unique prefix of it under ``runs``.

        Raises SeatrialError where nothing, or more than one run, answers.
        """
        path = Path(name).expanduser()
        for folder in (path, runs / name):
            if name and (folder / "spec.json").is_file():
                return cls(folder.resolve())
        # A name with a slash is a path, and a path is no prefix of an id.
        candidates = runs.glob(f"{glob_escape(name)}*") if name and "/" not in name else ()
        found = [p for p in sorted(candidates) if (p / "spec.json").is_file()]
        if len(found) == 1:
            return cls(found[0].resolve())
        if found:
            raise SeatrialError(f"{name!r} names {len(found)} runs", fix=", ".join(p.name for p in found[:5]))
        raise SeatrialError(f"no run {name!r}", file=path, rule="a run folder, or the start of a run id in ./runs")

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    @property
    def reference(self) -> Path:
        """A copy of what the run is held against, where it is held against anything."""
        return self.path / "reference.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def data_cache(self) -> Path:
        return self.path / "data_cache"

    @property
    def second_pass(self) -> SecondPass:
        """Where a gate's resume check writes."""
        return SecondPass(self.path / "resume_check")

    def attempt(self, number: int) -> Attempt:
        """Return attempt ``number`` (from 0), whether or not it exists."""
        return Attempt(self.path / "attempts" / f"{number:03d}", number)

    def attempts(self) -> list[Attempt]:
        """Return the attempts that exist, oldest first."""
        names = sorted(p.name for p in (self.path / "attempts").glob("[0-9]*") if p.is_dir() and p.name.isdigit())
        return sorted((self.attempt(int(name)) for name in names), key=lambda a: a.number)

    def new_attempt(self) -> Attempt:
        """Make the next attempt's folder."""
        attempts = self.attempts()
        attempt = self.attempt(attempts[-1].number + 1 if attempts else self._first)
        make_folder(attempt.path)
        return attempt

    @property
    def _first(self) -> int:
        return 0


@dataclass(frozen=True)
class SecondPass(RunFolder):
    """A root of its own inside a gate's folder: what its resume check logs, records and saves."""

    @property
    def first_pass(self) -> RunFolder:
        """The gate's folder."""
        return RunFolder(self.path.parent)

    @property
    def data_cache(self) -> Path:
        return self.first_pass.data_cache

    @property
    def _first(self) -> int:
        """Attempts are numbered on, so that no name of a step or container stands twice."""
        return len(self.first_pass.attempts())


def glob_escape(text: str) -> str:
    """Return ``text`` with glob's own signs taken literally."""
    return re.sub(r"([*?[])", r"[\1]", text)
