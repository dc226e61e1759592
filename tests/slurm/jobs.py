"""Submit to a sandbox and wait, for the tests."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from seatrial.sandbox.cluster import Cluster

PATIENCE = 90.0  # seconds; other work may share the machine
_names = itertools.count(1)


def submit(cluster: Cluster, folder: Path, script: str, *options: str) -> str:
    """Submit a bash script with ``folder`` as its working directory; return the job id. Output: ``output()``."""
    path = folder / f"job-{next(_names)}.sh"
    path.write_text(f"#!/bin/bash\n{script}\n")
    places = ["--parsable", f"--chdir={folder}", f"--output={folder}/%j.out", "--open-mode=append"]
    done = cluster.run("sbatch", *places, *options, str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def output(folder: Path, job: str) -> str:
    """Return what a job has printed so far."""
    path = folder / f"{job}.out"
    return path.read_text() if path.exists() else ""


def until(holds: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Poll until ``holds()`` is true; return what it gave."""
    end = time.monotonic() + patience
    while not (value := holds()):
        assert time.monotonic() < end, f"not within {patience:.0f} s: {what}"
        time.sleep(0.2)
    return value


def state(cluster: Cluster, job: str) -> str:
    """Return the controller's word for a job's state."""
    return field(cluster, job, "JobState")


def field(cluster: Cluster, job: str, name: str) -> str:
    """Return one field of ``scontrol show job``."""
    found = re.search(rf"\b{name}=(\S*)", cluster.run("scontrol", "show", "job", job).stdout)
    return found[1] if found else ""


def wait_for(cluster: Cluster, job: str, states: Collection[str], patience: float = PATIENCE) -> str:
    """Wait until a job's state is one of ``states``."""
    until(lambda: state(cluster, job) in states, f"job {job} in {states}; it is {state(cluster, job)}", patience)
    return state(cluster, job)


def records(cluster: Cluster, job: str, fields: str = "State,Restarts") -> list[list[str]]:
    """Return sacct's lines for a job, one for each time that it ran."""
    words = ["--duplicates", "--allocations", "--noheader", "--parsable2", f"--jobs={job}", f"--format={fields}"]
    return [line.split("|") for line in cluster.run("sacct", *words).stdout.splitlines()]


def steps(cluster: Cluster, job: str) -> list[dict[str, Any]]:
    """Return what the stand-in for pyxis recorded of a job."""
    lines = map(json.loads, cluster.at.steps.read_text().splitlines())
    return [line for line in lines if line["job"] == int(job)]


def nodes(cluster: Cluster, names: str) -> list[str]:
    """Return the nodes of a bracket expression."""
    return cluster.run("scontrol", "show", "hostnames", names).stdout.split()
