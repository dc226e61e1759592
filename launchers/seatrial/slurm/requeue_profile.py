"""A run that goes on: another profile for the same arguments. The run stays what it was, in another place."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.check.findings import run_checks
from seatrial.errors import SeatrialError
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.slurm.admission_identity import identity
from seatrial.slurm.checks import slurm_findings
from seatrial.slurm.client import Slurm
from seatrial.slurm.script import batch_script
from seatrial.slurm.submit import placed
from seatrial.spec.arguments import arguments
from seatrial.spec.profile import load_profile
from seatrial.spec.runspec import RunSpec

_KINDS = ("device", "executor")  # a rehearsal stays one
_IN_ENVIRONMENT = "nvlink_domain"  # what recipes fill into the ranks' environment when they are resolved


@dataclass(frozen=True)
class Changed:
    """A run's spec on another profile. ``document``: spec.json. ``script``: batch.sh, None where there is no queue."""

    folder: RunFolder
    spec: RunSpec
    document: Mapping[str, Any]
    script: str | None

    def write(self) -> Callable[[], None]:
        """Put spec.json and batch.sh in place, and keep the old ones as spec-000.json, batch-000.sh and so on.

        Return what takes it back. Raises OSError, and then all is as it was.
        """
        root, number = self.folder.path, 0
        while (root / f"spec-{number:03d}.json").exists():
            number += 1
        kept = {self.folder.spec: root / f"spec-{number:03d}.json"}
        if self.script is not None:
            kept[root / "batch.sh"] = root / f"batch-{number:03d}.sh"

        def take_back() -> None:
            for path, copy in kept.items():
                if copy.exists():
                    copy.replace(path)

        try:
            for path, copy in kept.items():
                shutil.copy2(path, copy)
            if self.script is not None:
                _write(root / "batch.sh", self.script)
            records.write_json(self.folder.spec, dict(self.document))
        except BaseException:
            take_back()
            raise
        return take_back


def changed(document: Mapping[str, Any], folder: RunFolder, name: str, slurm: Slurm | None = None) -> Changed:
    """Return the run of ``document`` (spec.json) on profile ``name``. Writes nothing.

    What the command line set in the profile it had counts no more. Raises SeatrialError where the run would be another
    one there, or the checks (with ``slurm`` those of Slurm, too) find an error.
    """
    old = RunSpec.from_json(document)
    new = on_profile(old, name, folder.path.parent)
    _require_same(document.get("same") or {}, old, new)
    findings = run_checks(new)
    if slurm is not None and not any(f.severity == "error" for f in findings):
        findings += slurm_findings(new, slurm, folder.path.name)
    errors = [f"{f.field}: {f.rule}" for f in findings if f.severity == "error"]
    if errors:
        raise SeatrialError(
            "\n    ".join([f"the run does not fit profile {new.profile['name']}:", *errors]),
            key="--profile",
            value=name,
        )
    script = batch_script(new, folder.path.name) if new.profile["executor"] == "slurm" else None
    return Changed(folder, new, {**document, **new.to_json(), "arguments": arguments(new)}, script)


def on_profile(old: RunSpec, name: str, runs: Path) -> RunSpec:
    """Return ``old`` with profile ``name``: every argument stays, the run stays where it lies (``runs``).

    Raises SeatrialError where that profile is of another kind.
    """
    loaded = load_profile(name)
    wrong = [key for key in _KINDS if loaded.data[key] != old.profile[key]]
    if wrong:
        values = ", ".join(f"{key} {loaded.data[key]} for {old.profile[key]}" for key in wrong)
        raise SeatrialError(
            f"a profile of another kind: {values}", key="--profile", value=name, rule="the run stays what it is"
        )
    domain = loaded.data[_IN_ENVIRONMENT]
    if domain != old.profile[_IN_ENVIRONMENT]:
        raise SeatrialError(
            f"its {_IN_ENVIRONMENT} is {domain}; the ranks' environment was made for {old.profile[_IN_ENVIRONMENT]}",
            key="--profile", value=name, fix="submit it anew",
        )  # fmt: skip
    own, others = loaded.data["env"]["set"], old.profile["env"]["set"]
    kept = {key: value for key, value in old.environment.items() if key not in others}
    profile = {**loaded.data, "paths": {**loaded.data["paths"], "runs": str(runs)}}
    return placed(
        replace(old, profile=profile, profile_sources=loaded.sources, environment=dict(sorted((kept | own).items())))
    )


def require_accepted(slurm: Slurm, argv: Sequence[str], profile: str | None) -> None:
    """Raises SeatrialError unless sbatch would take ``argv``."""
    answer = slurm.test_only(argv)
    if not answer.accepted:
        said = "refuses" if answer.accepted is False else "does not say whether it takes"
        raise SeatrialError(f"sbatch --test-only {said} the job: {answer.words}", key="--profile", value=profile)


@contextlib.contextmanager
def script(changed: Changed | None, folder: RunFolder) -> Iterator[Path]:
    """Give the file for sbatch: the run's own, or a temporary one where that is to change."""
    if changed is None or changed.script is None:
        yield folder.path / "batch.sh"
        return
    with tempfile.TemporaryDirectory(prefix="seatrial-") as aside:
        path = Path(aside) / "batch.sh"
        path.write_text(changed.script)
        yield path


def _require_same(recorded: Mapping[str, Any], old: RunSpec, new: RunSpec) -> None:
    """Hold what admitted the run against it. Its training code is the snapshot's, so that cannot differ."""
    was, now = {**identity(old), **recorded}, identity(new)
    # Another Seatrial may have written the arguments otherwise.
    was["arguments"] = identity(old)["arguments"]
    for key, what in (("image", "image"), ("gpu_type", "GPU type"), ("arguments", "arguments")):
        if was[key] != now[key]:
            said = f": {now[key] or 'none'} for {was[key] or 'none'}" if key != "arguments" else ""
            raise SeatrialError(
                f"the run would be another one: its {what} would differ{said}", key="--profile",
                value=new.profile["name"], rule="what the gate has shown stays: arguments, image, GPU type",
                fix="a new gate and a new run",
            )  # fmt: skip


def _write(path: Path, text: str) -> None:
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        Path(aside).chmod(path.stat().st_mode)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
