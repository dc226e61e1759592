"""The client against a real Slurm, the newest and the oldest version that the sandbox has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.run.records import now
from seatrial.sandbox.cluster import Cluster
from seatrial.slurm.client import CommandFailed, JobId, Slurm
from seatrial.slurm.commands import ONCE, Done, Retry
from seatrial.slurm.state import JobRef, JobState, states
from seatrial.slurm.state_records import Own
from tests.slurm.conftest import clusters, machine  # noqa: F401

pytestmark = pytest.mark.slurm
PATIENCE = 120.0
FAIL = 'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1'


@dataclass
class Site:
    """A cluster, a client of it, and the jobs that a test submits there."""

    cluster: Cluster
    folder: Path
    slurm: Slurm
    refs: dict[str, JobRef] = field(default_factory=dict)

    def submit(self, run_id: str, script: str, *options: str, known: tuple[str, ...] = ()) -> JobId:
        path = self.folder / f"{run_id}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        words = [
            "sbatch", f"--job-name={run_id}", f"--comment={run_id}", "--dependency=singleton", "--open-mode=append",
            f"--output={self.folder}/%j.out", f"--chdir={self.folder}", *options, str(path),
        ]  # fmt: skip
        asked = now()
        job = self.slurm.submit(words, run_id, known=known)
        self.refs[run_id] = JobRef(run_id, job.number, "root", asked, self.folder, job.cluster)
        return job

    def state(self, run_id: str) -> JobState:
        return states([self.refs[run_id]], self.slurm, own=lambda _: Own("the test has no records"))[run_id]

    def until(self, run_id: str, holds: Callable[[JobState], object], what: str) -> JobState:
        deadline = time.monotonic() + PATIENCE
        while not holds(state := self.state(run_id)):
            assert time.monotonic() < deadline, f"{run_id} is not {what}: {state}"
            time.sleep(0.3)
        return state


@pytest.fixture(scope="module", params=["24.11", "22.05"])
def a_cluster(request: pytest.FixtureRequest, machine: None) -> Iterator[Cluster]:  # noqa: F811
    with clusters() as make:
        yield make(version=request.param, nodes=2, topology="none", kill_wait_seconds=2, pyxis=False)


@pytest.fixture
def site(a_cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    """A client that stands inside an allocation, as one that is used from a running job does."""
    outer = {"SLURM_JOB_ID": "1", "SLURM_CPU_BIND": "none", "SBATCH_PARTITION": "nowhere", "SQUEUE_STATES": "PD"}
    site = Site(a_cluster, tmp_path, Slurm(dict(os.environ) | a_cluster.environment() | outer))
    yield site
    for ref in site.refs.values():
        site.slurm.cancel(JobId(str(ref.job_id)))


def test_a_job_from_its_submission_to_its_end(site: Site) -> None:
    site.submit("good-1", "sleep 2", "--nodes=2")
    site.until("good-1", lambda s: s.state == "RUNNING", "running")
    site.submit("bad-1", "srun --ntasks=2 bash -c 'exit 7'; exit 9", "--nodes=2")
    good = site.until("good-1", lambda s: s.final and s.exit_code, "over")
    assert (good.state, good.exit_code, good.nodes, good.restarts) == ("COMPLETED", "0:0", "gb200-[001-002]", 0)
    assert good.started and good.ended and site.refs["good-1"].submitted[:16] <= good.started[:16] <= good.ended  # type: ignore[index]
    bad = site.until("bad-1", lambda s: s.final and s.derived_exit_code, "over")
    assert (bad.state, bad.exit_code, bad.derived_exit_code) == ("FAILED", "9:0", "7:0")
    assert len(bad.history) == 1 and not bad.notes and not good.notes


def test_requeue_signal_hold_and_cancel(site: Site) -> None:
    job = site.submit(
        "re-1", "trap 'echo usr2' USR2; echo run; for i in $(seq 600); do sleep 0.2; done", "--nodes=1", "--requeue"
    )
    site.until("re-1", lambda s: s.state == "RUNNING", "running")
    log = site.folder / f"{job.number}.out"
    site.until("re-1", lambda s: log.exists() and "run" in log.read_text(), "printing")
    assert site.slurm.signal(job, "USR2", batch=True)
    site.until("re-1", lambda s: "usr2" in log.read_text(), "told")
    assert site.state("re-1").state == "RUNNING"
    assert site.slurm.requeue(job)
    waiting = site.until("re-1", lambda s: s.state == "PENDING", "back in the queue")
    assert not waiting.final and waiting.needs_action is None and waiting.restarts == 1
    again = site.until("re-1", lambda s: s.state == "RUNNING", "running again")
    assert again.restarts == 1 and again.history[0].state == "REQUEUED"
    site.until("re-1", lambda s: len(s.history) == 2, "in accounting with both attempts")
    assert site.slurm.requeue(job, hold=True)
    held = site.until("re-1", lambda s: s.needs_action, "held")
    assert held.needs_action == "Slurm requeued and holds it: release or cancel it" and not held.final
    assert site.slurm.exclude(job, ["gb200-001"]) and site.slurm.release(job)
    other = site.until("re-1", lambda s: s.state == "RUNNING", "released")
    assert other.nodes == "gb200-002" and other.restarts == 2
    assert site.slurm.cancel(job)
    ended = site.until("re-1", lambda s: s.final and s.exit_code, "cancelled")
    assert ended.state == "CANCELLED" and [a.state for a in ended.history] == ["REQUEUED", "REQUEUED", "CANCELLED"]
    unknown = replace(job, number="999999")
    assert [site.slurm.cancel(one) for one in (job, unknown)] == [False, False]
    assert [act(unknown) for act in (site.slurm.requeue, site.slurm.hold, site.slurm.release)] == [False] * 3
    assert not site.slurm.signal(job, "USR2") and not site.slurm.signal(unknown, "USR2", batch=True)


def test_waiting_in_vain_is_said(site: Site) -> None:
    first = site.submit("dep-1", "exit 1", "--nodes=1")
    site.submit("dep-2", "true", "--nodes=1", f"--dependency=afterok:{first.number}")
    state = site.until("dep-2", lambda s: s.needs_action, "waiting in vain")
    assert state.state == "PENDING" and "cancel it and submit again" in str(state.needs_action)
    site.submit("held-1", "true", "--nodes=1", "--hold")
    assert site.until("held-1", lambda s: s.needs_action, "held").needs_action == "it is held: release it"


def test_a_job_that_was_accepted_in_spite_of_an_error_is_adopted(site: Site) -> None:
    """sbatch is wrapped: it submits for real, then says that the socket timed out."""
    wrapped = site.folder / "bin"
    wrapped.mkdir()
    path = site.slurm.environment["PATH"]
    (wrapped / "sbatch").write_text(f'#!/bin/bash\nPATH={path}\nsbatch "$@" >/dev/null\n{FAIL}\n')
    (wrapped / "sbatch").chmod(0o755)
    plain = site.slurm
    site.slurm = replace(plain, environment={**plain.environment, "PATH": f"{wrapped}:{path}"})
    job = site.submit("lost-1", "sleep 60", "--nodes=1")
    listed = site.cluster.run("squeue", "--noheader", "--name=lost-1", "--format=%A").stdout.split()
    assert listed == [job.number] and job.adopted
    # A second job of the same run waits for the first, and is not mistaken for it.
    second = site.submit("lost-1", "sleep 60", "--nodes=1", known=(job.number,))
    assert second.number != job.number and site.state("lost-1").state == "PENDING"
    plain.cancel(job)


def test_a_job_that_never_arrived_is_sent_once_more(site: Site) -> None:
    wrapped = site.folder / "bin"
    wrapped.mkdir()
    path = site.slurm.environment["PATH"]
    (wrapped / "sbatch").write_text(
        f'#!/bin/bash\nPATH={path}\n[ -e {wrapped}/once ] && exec sbatch "$@"\ntouch {wrapped}/once\n{FAIL}\n'
    )
    (wrapped / "sbatch").chmod(0o755)
    site.slurm = replace(
        site.slurm, environment={**site.slurm.environment, "PATH": f"{wrapped}:{path}"}, sleep=lambda _: time.sleep(0.1)
    )
    job = site.submit("sent-1", "true", "--nodes=1")
    assert not job.adopted
    assert site.until("sent-1", lambda s: s.final, "over").state == "COMPLETED"


def test_what_slurm_refuses_is_told_in_its_words(site: Site) -> None:
    for option, words in [
        ("--partition=nowhere", "invalid partition specified: nowhere|Invalid partition name specified"),
        (
            "--nodes=64",
            "Node count specification invalid|Requested node configuration is not available|More processors",
        ),
        ("--no-such-option", "unrecognized option '--no-such-option'"),
    ]:
        with pytest.raises(SeatrialError, match=words) as caught:
            site.submit("refused-1", "true", option)
        assert type(caught.value) is SeatrialError


def test_test_only(site: Site) -> None:
    script = site.folder / "t.sh"
    script.write_text("#!/bin/bash\ntrue\n")
    yes = site.slurm.test_only(["sbatch", "--nodes=2", str(script)])
    no = site.slurm.test_only(["sbatch", "--partition=nowhere", str(script)])
    assert yes.accepted and "to start at 20" in yes.words
    assert no.accepted is False and "nowhere" in no.words


def test_a_site_tells_about_itself(site: Site) -> None:
    version = site.slurm.version()
    assert version and f"{version[0]}.{version[1]:02d}" == site.cluster.config.version
    config = site.slurm.show_config()
    assert config["PreemptMode"] == "OFF" and config["KillWait"].startswith("2 ")
    batch = next(p for p in site.slurm.partitions() if p.default)
    assert (batch.total_nodes, batch.state, batch.allow_accounts) == (2, "UP", None)
    nodes = [node for node in site.slurm.nodes() if node.partition == batch.name]
    assert [node.name for node in nodes] == ["gb200-001", "gb200-002"]
    assert all(node.gpus == 4 and node.usable and node.cpus > 0 for node in nodes)
    assert "normal" in [qos.name for qos in site.slurm.qos()]
    assert [a.account for a in site.slurm.accounts("root") if a.account == "research"] and not site.slurm.accounts(
        "nobody"
    )


def test_away_daemons_never_make_a_failed_job(site: Site) -> None:
    site.slurm = replace(site.slurm, timeout_seconds=3.0, status_seconds=3.0, retry=ONCE)
    done = site.submit("away-1", "true", "--nodes=1")
    site.until("away-1", lambda s: s.final and s.exit_code, "over")
    site.submit("away-2", "sleep 300", "--nodes=1")
    site.until("away-2", lambda s: s.history and s.history[-1].state == "RUNNING", "running in accounting too")
    try:
        site.cluster.stop_dbd()
        assert site.state("away-2").state == "RUNNING" and site.state("away-2").notes
        assert site.state("away-1").state == "COMPLETED"
        site.cluster.stop_controller()
        state = site.state("away-2")
        assert (state.state, state.final, state.source) == ("UNKNOWN", False, "nobody")
        assert "squeue" in state.reason and "sacct" in state.reason and "the test has no records" in state.reason
        site.cluster.start_dbd()
        assert (site.state("away-1").state, site.state("away-1").source) == ("COMPLETED", "sacct")
        assert (site.state("away-2").state, site.state("away-2").final) == ("RUNNING", False)
        with pytest.raises(CommandFailed):
            site.slurm.hold(done)
    finally:
        site.cluster.start_dbd()
        site.cluster.start_controller()
    assert site.until("away-2", lambda s: s.source == "squeue", "back").state == "RUNNING"


def test_two_calls_for_many_runs(site: Site) -> None:
    for n in range(5):
        site.submit(f"many-{n}", "true", "--nodes=1")
    asked: list[str] = []

    class Counting(Slurm):
        def question(self, argv: Sequence[str], retry: Retry = ONCE, seconds: float | None = None) -> Done:
            asked.append(argv[0])
            return super().question(argv, retry, seconds)

    slurm = Counting(site.slurm.environment, lacks=set(site.slurm.lacks) | _lacking(site))
    deadline = time.monotonic() + PATIENCE
    while True:
        asked.clear()
        found = states(site.refs.values(), slurm)
        assert asked == ["squeue", "sacct"] and len(found) == 5
        if all(state.final for state in found.values()):
            break
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert {state.state for state in found.values()} == {"COMPLETED"}


def _lacking(site: Site) -> set[str]:
    site.state(next(iter(site.refs)))
    return site.slurm.lacks
