"""Convergence runs of the rehearsed Nano on the real Slurm, disturbed and undisturbed, for the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.judge.collect import read_steps
from seatrial.judge.compare import compare_losses
from seatrial.judge.merge import merge_steps
from seatrial.run import records
from seatrial.run.layout import RunFolder
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.admission import Admission
from seatrial.slurm.client import Slurm
from seatrial.slurm.runs import job_reference
from seatrial.slurm.submit import placed, prepare, spec_document, submit
from seatrial.spec.provenance import Source
from seatrial.spec.resolve import resolve
from tests.slurm import jobs

NANO = "nemotron_3_nano_gb200"
FAULTY = Path(__file__).with_name("faulty.py")
STEPS, SAVES = 40, 8
PATIENCE = 300.0  # for a whole run, on a machine that has other work


def pairs(
    root: Path, steps: int, fault: dict[str, Any] | None, pace: float, *, evaluation: tuple[int, float] = (100, 0.0),
    **profile: Any,
) -> list[tuple[str, str]]:  # fmt: skip
    """Return the settings of a run of two ranks on two nodes. ``evaluation``: every so many steps, and how slow."""
    told = {"PYTHON": sys.executable, "FAULT": json.dumps(fault or {}), "PACE": str(pace)}
    told["SLOW_EVALUATION"] = str(evaluation[1])
    chosen = {
        "paths.runs": str(root / "runs"), "paths.node_local": str(root / "node"), "nodes": 2, "gpus_per_node": 1,
        "segment": 2, "cpus_per_task": 1, "rank_python": str(FAULTY), "time_limit_minutes": 20,
        "slurm.signal_lead_seconds": 20, "env.set": told, **profile,
    }  # fmt: skip
    return [
        *((f"profile.{key}", json.dumps(value)) for key, value in chosen.items()),
        ("schedule.train_iters", str(steps)), ("schedule.lr_decay_iters", str(steps)),
        ("schedule.lr_warmup_iters", "4"), ("checkpoint.save_interval", str(SAVES)),
        ("evaluation.eval_interval", str(evaluation[0])),
    ]  # fmt: skip


def embark(
    cluster: Cluster, root: Path, *, steps: int = STEPS, fault: dict[str, Any] | None = None, pace: float = 0.0,
    hold: bool = False, **profile: Any,
) -> RunFolder:  # fmt: skip
    """Submit a run; ``fault`` and ``pace`` are faulty.py's."""
    spec = resolve(NANO, "slurm-sandbox", "convergence", pairs(root, steps, fault, pace, **profile))
    prepare(spec)
    slurm = Slurm(environment=os.environ | cluster.environment())
    return submit(spec, allow_dirty=True, admission=Admission.without_gate("a test"), hold=hold, slurm=slurm).folder


def undisturbed(root: Path, steps: int = STEPS) -> RunFolder:
    """Run the same on this machine without Slurm and without a fault, to its end."""
    settings = [
        (key, value) for key, value in pairs(root, steps, None, 0.0)
        if not key.startswith("profile.") or key in ("profile.paths.runs", "profile.paths.node_local")
    ]  # fmt: skip
    spec = placed(resolve(NANO, "local-cpu", "convergence", settings))
    prepare(spec)
    folder = RunFolder.create(root / "undisturbed")
    records.write_json(folder.spec, spec_document(spec, "undisturbed", Source(None)))
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-m", "seatrial.supervise", str(folder.path)]) == 0
    return folder


PROVEN = ("target step", "step set", "losses", "grad norm", "replayed steps", "validation and test loss", "device")


def same_losses(disturbed: RunFolder, calm: RunFolder, steps: int = STEPS) -> None:
    """Hold the whole curve, replayed steps merged, against the undisturbed one: as printed, and no step missing.

    The run's own verdict must have found the same.
    """
    merged = merge_steps(read_steps(disturbed.metrics))
    assert [step.step for step in merged.steps] == list(range(1, steps + 1))
    compared = compare_losses(merge_steps(read_steps(calm.metrics)).steps, merged.steps)
    assert compared.equal, compared.first
    rules = {rule["rule"]: rule["verdict"] for rule in records.read_json(disturbed.verdict)["rules"]}
    assert {name: rules[name] for name in PROVEN} == dict.fromkeys(PROVEN, "PASS")


def job(folder: RunFolder) -> str:
    """The run's newest job."""
    return str(job_reference(folder).job_id)


def attempts(folder: RunFolder) -> list[dict[str, Any]]:
    """The records of the attempts that have one."""
    found = [records.read_json(attempt.record) for attempt in folder.attempts() if attempt.record.is_file()]
    return [dict(record) for record in found]


def events(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return [event for event in records.read_lines(folder.events) if event["event"] == name]


def final(folder: RunFolder) -> dict[str, Any]:
    """The final decision, or {}."""
    return next((one for one in events(folder, "decision") if one["decision"] in ("done", "stop")), {})


def arrive(folder: RunFolder, patience: float = PATIENCE) -> dict[str, Any]:
    """Wait for the final decision; return it."""
    return dict(jobs.until(lambda: final(folder), f"the end of {folder.path}", patience))


def reach(folder: RunFolder, step: int, attempt: int = 0, patience: float = 120.0) -> None:
    """Wait until an attempt has made a step."""

    def there() -> bool:
        return any(s.step >= step and s.attempt >= attempt for s in read_steps(folder.metrics))

    jobs.until(there, f"step {step}", patience)


def rank_pid(folder: RunFolder, rank: int) -> int:
    """The process of a rank of the newest attempt."""
    plan = str(folder.attempts()[-1].plan)
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            if plan.encode() not in words or b"rank.py" not in words[-3]:
                continue
            if f"SLURM_PROCID={rank}".encode() in (path / "environ").read_bytes().split(b"\0"):
                return int(path.name)
    raise AssertionError(f"rank {rank} does not run")


def kill_rank(folder: RunFolder, rank: int = 1) -> None:
    os.kill(rank_pid(folder, rank), signal.SIGKILL)


def processes(folder: RunFolder) -> list[str]:
    """The command lines of all processes that name the run's folder, in their words or in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words, environment = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
            if os.fsencode(folder.path) in words + environment and int(path.name) != os.getpid():
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def nothing_left(cluster: Cluster, folder: RunFolder) -> None:
    """No process of the run is left, and no job."""
    jobs.until(lambda: not processes(folder), f"no process of {folder.path.name}", 60)
    name = f"--name={folder.path.name}"
    jobs.until(lambda: not cluster.run("squeue", "--noheader", name).stdout.strip(), "an empty queue", 60)


@contextlib.contextmanager
def away(cluster: Cluster, what: str) -> Iterator[None]:
    """Without the controller, or without accounting."""
    stop, start = (
        (cluster.stop_controller, cluster.start_controller) if what == "controller" else
        (cluster.stop_dbd, cluster.start_dbd)
    )  # fmt: skip
    stop()
    try:
        yield
    finally:
        start()


def preempt(cluster: Cluster, folder: Path) -> None:
    """Ask for every node in the partition that goes before; the job gives way for some seconds."""
    jobs.submit(cluster, folder, "sleep 3", "--partition=urgent", f"--nodes={cluster.config.nodes}", "--exclusive")


class Disk:
    """A small file system; ``fill`` leaves nothing of it free."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("wb") as stream, contextlib.suppress(OSError):
            while True:
                stream.write(b"x" * 65536)
                stream.flush()

    def free(self) -> None:
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Mount one of 64 MiB, as only root may."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
