"""A task's first program, on the batch host: it makes the run folder that the task carries, and becomes the supervisor.

Started as ``python ARCHIVE SCRIPT``, by whatever Python the host has (3.9 or newer), before any package of ours can be
imported: so it uses the standard library until the run folder with its code is there. A job that Slurm starts again
finds the folder and goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

FACTS, TREE = "parcel.json", "run/"
_ALIVE = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING")
_SUBMITTED = re.compile(r"\bSubmitTime=(\S+)")


def main(archive: Path, script: Path) -> None:
    """Make the run folder unless it is there, put this job on record, and become the supervisor."""
    if "SLURM_STEP_ID" in os.environ:
        print("error: this task is a job step: the executor has lost its setup_lines or its srun_args", file=sys.stderr)
        sys.exit(2)
    job, restart = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_RESTART_COUNT") or "0"
    try:
        with zipfile.ZipFile(archive) as parcel:
            facts = json.loads(parcel.read(FACTS))
            folder = Path(facts["folder"])
            make(parcel, folder, f"{job}-{restart}")
    except OSError as error:
        print(f"error: cannot make the run folder: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        archive.unlink()
    link_log(folder, job, script)
    code = folder / "code"
    sys.path.insert(0, str(code))
    sys.dont_write_bytecode = True  # the code is a snapshot
    from seatrial.errors import SeatrialError

    try:
        put_on_record(folder, job)
    except SeatrialError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    settle(job, facts)
    path = os.pathsep.join([str(code), str(code / "host_libraries")])
    os.chdir(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    words = [sys.executable, "-u", "-m", "seatrial.supervise", str(folder)]
    os.execve(sys.executable, words, {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})


def make(parcel: zipfile.ZipFile, folder: Path, start: str) -> bool:
    """Make the run folder, whole or not at all; return whether it was made now. ``start``: names this start of the job.

    Raises OSError.
    """
    if (folder / "spec.json").is_file():
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f".{folder.name}.{start}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    try:
        for info in parcel.infolist():
            if info.filename.startswith(TREE):
                _extract(parcel, info, aside / info.filename[len(TREE) :])
        try:
            aside.rename(folder)
        except OSError:
            if (folder / "spec.json").is_file():  # another start of the run was first
                return False
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def _extract(parcel: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    if info.is_dir():
        path.mkdir(exist_ok=True)
    else:
        path.write_bytes(parcel.read(info))
    path.chmod(info.external_attr >> 16 & 0o777)


def link_log(folder: Path, job: str, script: Path) -> None:
    """Let the batch script's log be the run's: there Slurm says why it ended the job, and people look for it.

    ``script`` lies in a folder beside the log. Another name of the same file, else (on another file system) a link.
    """
    log = folder / f"batch-{job}.log"
    found = sorted(script.resolve().parents[1].glob(f"sbatch_*_{job}.out"))
    if not found or log.exists():
        return
    try:
        os.link(found[0], log)
    except OSError:
        with contextlib.suppress(OSError):
            log.symlink_to(found[0])


def put_on_record(folder: Path, job: str) -> None:
    """Say in the run's events that this job is the run's, unless they say so. Raises SeatrialError where another is."""
    from seatrial.errors import SeatrialError
    from seatrial.run import records
    from seatrial.supervise import ask, exit_codes, job_watch

    events = folder / "events.jsonl"
    before = [event for event in records.read_objects(events) if event.get("event") == "submitted"]
    other = str(before[-1].get("job_id")) if before else ""
    if other == job:
        return
    facts = job_watch.look(other) if other else None
    if facts is not None and facts.state in _ALIVE:
        error = SeatrialError(f"job {other} of this run is {facts.state}", file=folder, rule="one job a run")
        error.exit_code = exit_codes.BUSY
        raise error
    said = submitted_at(ask.ask(["scontrol", "show", "job", job]) or "")
    records.append_event(
        events, "submitted", executor="slurm", job_id=job, cluster=None, adopted=False,
        submit_time=records.now() if said is None else records.iso(said), user=str(os.getuid()), by="nemo-run",
        **({"replaces": other} if other else {}),
    )  # fmt: skip
    (folder / "job_id").write_text(f"{job}\n")


def submitted_at(said: str) -> Optional[float]:
    """Return the time, in seconds since 1970, that ``scontrol show job`` names; None where it names none. Pure."""
    from seatrial.supervise.job_watch import seconds_since_1970

    found = _SUBMITTED.search(said)
    return seconds_since_1970(found[1] if found else None)


def settle(job: str, facts: Mapping[str, str]) -> None:
    """Give the job what NeMo-Run could not: the run's name and comment; and a gate is judged on one undisturbed start.

    What Slurm refuses is told, and no more: the run does not depend on it.
    """
    from seatrial.supervise import ask

    wanted = [f"JobName={facts['run_id']}", f"Comment={facts['run_id']}"]
    for setting in [*wanted, *(["Requeue=0"] if facts["kind"] == "gate" else [])]:
        answer = ask.run(["scontrol", "update", f"JobId={job}", setting])
        if answer.output is None:
            print(f"{setting} could not be set: {answer.problem}", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[0]), Path(sys.argv[1]))
