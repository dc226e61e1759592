"""`seatrial check --image`: one task in the image says which modules and versions it has."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seatrial.check.blame import Finding, profile
from seatrial.errors import SeatrialError
from seatrial.slurm.client import Slurm
from seatrial.slurm.commands import Done
from seatrial.slurm.image_needs import facts_in, judge_image, question
from seatrial.slurm.script import directives
from seatrial.slurm.submit import placed
from seatrial.spec.runspec import RunSpec

_PROGRAM = Path(__file__).with_name("image_program.py")
_OF_THE_JOB = ("account", "partition", "qos", "reservation", "export")
_MINUTES = 15  # importing an image of 20 GB and torch from a cold file system takes some
_CPUS = 4
_MEMORY = "24G"
_BUSY = ("immediate execution", "nodes are busy", "unable to allocate resources: requested node", "not available now")


def check_image(spec: RunSpec, slurm: Slurm, *, wait_seconds: int = 300) -> list[Finding]:
    """Start one task in the profile's image (on the node itself where it names none) and judge what it says.

    The task asks for one GPU where the profile's jobs do, and waits at most ``wait_seconds`` for a node; a cluster that
    has none free is a warning. Takes as long as the image needs to start. Leaves no job behind.
    """
    if spec.profile["executor"] != "slurm":
        return [profile(spec, "executor", "only a Slurm profile has an image to look at", severity="note")]
    spec = placed(spec)
    name = f"seatrial-image-{secrets.token_hex(4)}"
    try:
        words = srun_words(spec, name, wait_seconds)
    except SeatrialError as error:
        return [
            Finding("error", error.key or "profile", error.value, error.message, str(error.file or ""), error.fix or "")
        ]
    patient = replace(slurm, timeout_seconds=wait_seconds + 60.0 * (_MINUTES + 2))
    done: Done | None = None
    try:
        done = patient.question(words)
    finally:
        if done is None or done.timed_out:  # interrupted: srun is gone, its job may not be
            slurm.question(["scancel", f"--name={name}", f"--user={slurm.user}"])
    return list(_judge(spec, done))


def srun_words(spec: RunSpec, name: str, wait_seconds: int) -> list[str]:
    """Return the whole srun command, for a placed spec. Raises SeatrialError where the profile lacks a flag."""
    where = spec.profile
    words = [
        "srun",
        f"--job-name={name}",
        "--nodes=1",
        "--ntasks=1",
        f"--time={_MINUTES}",
        f"--immediate={wait_seconds}",
    ]
    words += [f"--{key}={value}" for key, value in directives(spec, name, "/") if key in _OF_THE_JOB]
    words += ["--chdir=/", "--mpi=none", "--kill-on-bad-exit=1", *_resources(spec)]
    container = where["container"]
    if container["image"]:
        words += [f"--container-image={container['image']}", "--no-container-mount-home", "--container-workdir=/"]
        if container["mounts"]:
            words.append(f"--container-mounts={','.join(container['mounts'])}")
    return [*words, where["rank_python"], "-c", _PROGRAM.read_text(), question(spec)]


def _resources(spec: RunSpec) -> Iterator[str]:
    """One GPU where the profile's jobs ask for any, and room to import torch in."""
    where = spec.profile
    if where["gpu_request"] == "gres":
        yield "--gres=gpu:1"
    elif where["gpu_request"] != "none":
        yield "--gpus-per-node=1"
    yield f"--cpus-per-task={min(_CPUS, where['cpus_per_task'] or 1)}"
    if where["memory"] is not None and "mem" in where["slurm"]["capabilities"]:
        yield f"--mem={_MEMORY}"


def _judge(spec: RunSpec, done: Done) -> Iterator[Finding]:
    facts = facts_in(done.stdout)
    if facts:
        yield from judge_image(spec, facts)
        return
    key = "container.image" if spec.profile["container"]["image"] else "rank_python"
    value = spec.profile["container"]["image"] or spec.profile["rank_python"]
    words = " ".join(done.words.split())
    if done.timed_out or done.passes or any(text in words.lower() for text in _BUSY):
        rule = f"not looked at: {words}"
        yield profile(spec, key, rule, "try again when a node is free", severity="warning", value=value)
    else:
        yield profile(spec, key, f"it must start on a node; srun said: {words}", "mend what srun names", value=value)
