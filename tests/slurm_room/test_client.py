"""Acting on jobs, and asking a site about itself."""

from __future__ import annotations

import pytest

from seatrial.errors import SeatrialError
from seatrial.slurm.client import CommandFailed, DryRun, JobId, Slurm
from tests.slurm_room.fakes import FakeCommands, Reply

JOB, REMOTE = JobId("7"), JobId("7", "red")


@pytest.mark.parametrize("number", ["", "0", "-1", "7 8", "7;red", "all", "7_1", "٧", "1" * 13])
def test_a_job_number_is_a_number(number: str) -> None:
    with pytest.raises(SeatrialError, match="not a job number"):
        JobId(number)


@pytest.mark.parametrize(
    ("act", "command", "argv"),
    [
        (lambda s: s.cancel(JOB), "scancel", ["--verbose", "7"]),
        (lambda s: s.cancel(REMOTE), "scancel", ["--verbose", "--clusters=red", "7"]),
        (lambda s: s.signal(JOB, "USR2"), "scancel", ["--signal=USR2", "7"]),
        (lambda s: s.signal(JOB, "USR2", batch=True), "scancel", ["--signal=USR2", "--batch", "7"]),
        (lambda s: s.signal(JOB, "KILL", step="0"), "scancel", ["--signal=KILL", "7.0"]),
        (lambda s: s.requeue(JOB), "scontrol", ["requeue", "7"]),
        (lambda s: s.requeue(JOB, hold=True), "scontrol", ["requeuehold", "7"]),
        (lambda s: s.hold(REMOTE), "scontrol", ["--clusters=red", "hold", "7"]),
        (lambda s: s.release(JOB), "scontrol", ["release", "7"]),
        (lambda s: s.exclude(JOB, ["n1", "n2"]), "scontrol", ["update", "JobId=7", "ExcNodeList=n1,n2"]),
    ],
)
def test_actions(fake: FakeCommands, act: object, command: str, argv: list[str]) -> None:
    fake.script(command, Reply())
    assert act(fake.slurm()) is True  # type: ignore[operator]
    assert fake.calls(command) == [argv]


def test_an_ended_job_is_gone_and_no_error(fake: FakeCommands) -> None:
    fake.script("scancel", Reply(err="scancel: error: Kill job error on job id 7: Invalid job id specified\n", rc=1))
    assert fake.slurm().cancel(JOB) is False
    fake.script(
        "scancel", Reply(err="scancel: error: Kill job error on job id 7: Job/step already completing or completed\n")
    )
    assert fake.slurm().cancel(JOB) is False


def test_a_failed_action_speaks_with_slurms_words(fake: FakeCommands) -> None:
    fake.script("scontrol", Reply("Requested operation is presently disabled for job 7\n", rc=1))
    with pytest.raises(CommandFailed, match="scontrol requeue 7 failed: Requested operation is presently disabled"):
        fake.slurm().requeue(JOB)


def test_a_signal_is_not_sent_twice_for_a_lost_answer(fake: FakeCommands) -> None:
    fake.script("scancel", Reply(err="scancel: error: Socket timed out on send/recv operation\n", rc=1))
    with pytest.raises(CommandFailed):
        fake.slurm().signal(JOB, "TERM")
    assert len(fake.calls("scancel")) == 1
    with pytest.raises(CommandFailed):
        fake.slurm().cancel(JOB)
    assert len(fake.calls("scancel")) == 6


@pytest.mark.parametrize(
    ("reply", "accepted"),
    [
        (
            Reply(err="sbatch: Job 9 to start at 2026-12-01T00:00:00 using 8 processors on nodes n1 in partition a\n"),
            True,
        ),
        (Reply(err="allocation failure: Invalid account or account/partition combination specified\n", rc=1), False),
        (Reply(err="sbatch: unrecognized option '--segment=2'\n", rc=255), False),
        (Reply(err="allocation failure: Socket timed out on send/recv operation\n", rc=1), None),
    ],
)
def test_test_only(fake: FakeCommands, reply: Reply, accepted: bool | None) -> None:
    fake.script("sbatch", reply)
    answer = fake.slurm({"SLURM_JOB_ID": "3"}).test_only(["sbatch", "b.sh"])
    assert answer == DryRun(accepted, reply.err.strip())
    assert fake.calls("sbatch")[0] == ["--test-only", "b.sh"]
    assert not [name for name in fake.environment("sbatch") if name.startswith("SLURM_")]


def test_without_slurm_a_test_knows_nothing_and_a_reader_says_what_is_missing() -> None:
    slurm = Slurm({"PATH": "/nonexistent"})
    assert slurm.test_only(["sbatch", "b.sh"]).accepted is None
    with pytest.raises(SeatrialError, match="no command 'scontrol'"):
        slurm.version()


PARTITIONS = (
    "PartitionName=batch AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=gb200-[001-018] PriorityJobFactor=1 "
    "PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP "
    "TotalCPUs=144 TotalNodes=18 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED "
    "MaxMemPerNode=UNLIMITED TRES=cpu=144,mem=288000M,node=18,billing=144,gres/gpu=72 \n"
    "PartitionName=low AllowGroups=ALL DenyAccounts=guest,trial AllowQos=normal,low Default=NO QoS=low GraceTime=120 "
    "MaxNodes=4 MaxTime=UNLIMITED Nodes=(null) PreemptMode=REQUEUE State=DOWN TotalNodes=0\n"
)


def test_partitions(fake: FakeCommands) -> None:
    fake.script("scontrol", Reply(PARTITIONS))
    batch, low = fake.slurm().partitions()
    assert (batch.name, batch.default, batch.max_minutes, batch.max_nodes, batch.total_nodes) == (
        "batch", True, 1440, None, 18
    )  # fmt: skip
    assert (batch.allow_accounts, batch.allow_qos, batch.qos, batch.state) == (None, None, None, "UP")
    assert (low.max_minutes, low.max_nodes, low.deny_accounts, low.allow_qos) == (
        None, 4, ("guest", "trial"), ("normal", "low")
    )  # fmt: skip
    assert (low.qos, low.preempt_mode, low.grace_seconds, low.nodes) == ("low", "REQUEUE", 120, "")


@pytest.mark.parametrize(
    ("gres", "state", "gpus", "usable"),
    [
        ("gpu:4", "idle", 4, True), ("gpu:gb200:4(S:0-1)", "mixed", 4, True), ("(null)", "down*", 0, False),
        ("gpu:a:2,gpu:b:2,nic:1", "drained", 4, False), ("nic:gpu:3", "allocated", 0, True),
        ("gpu:4", "idle~", 4, True), ("gpu:4", "draining", 4, False), ("gpu:4", "maint", 4, False),
    ],
)  # fmt: skip
def test_nodes(fake: FakeCommands, gres: str, state: str, gpus: int, usable: bool) -> None:
    row = ["n1", "batch", state, "144", "980000", gres, "nvl72,gb200"]
    fake.script("sinfo", Reply("\x1f".join(row) + "\n"))
    (node,) = fake.slurm().nodes()
    assert (node.gpus, node.usable, node.cpus, node.memory_mb, node.features) == (
        gpus, usable, 144, 980000, ("nvl72", "gb200")
    )  # fmt: skip


def test_qos_and_accounts(fake: FakeCommands) -> None:
    fake.script(
        "sacctmgr",
        Reply("normal|||||cluster|00:00:00|\nhigh|04:00:00|gres/gpu=8|2|normal,low|requeue|00:02:00|NoReserve\n"),
    )
    normal, high = fake.slurm().qos()
    assert (normal.max_minutes, normal.preempts, normal.max_jobs_per_user) == (None, (), None)
    assert (high.max_minutes, high.max_tres_per_user, high.max_jobs_per_user) == (240, "gres/gpu=8", 2)
    assert (high.preempts, high.grace_seconds, high.flags) == (("normal", "low"), 120, ("NoReserve",))
    fake.script(
        "sacctmgr", Reply("red|lab||high,normal|normal|1-00:00:00|\nred|lab|debug|||||\nred|lab|debug|||01:00:00|1\n")
    )
    first, second = fake.slurm().accounts("ada")
    assert (first.account, first.partition, first.qos, first.default_qos, first.max_minutes) == (
        "lab", None, ("high", "normal"), "normal", 1440
    )  # fmt: skip
    assert (second.partition, second.qos, second.max_minutes, second.max_jobs) == ("debug", (), 60, 1)
    assert "user=ada" in fake.calls("sacctmgr")[-1]


def test_a_reader_raises_where_accounting_is_off(fake: FakeCommands) -> None:
    fake.script("sacctmgr", Reply(err="You are not running a supported accounting_storage plugin\n", rc=1))
    with pytest.raises(CommandFailed, match="not running a supported accounting_storage"):
        fake.slurm().qos()


def test_config_and_version(fake: FakeCommands) -> None:
    text = """Configuration data as of 2026-12-01T00:00:00
AccountingStorageHost   = localhost
PreemptMode             = REQUEUE
SlurmctldHost[0]        = head
TaskPluginParam         = (null type)
PrologFlags             = (null)
SLURM_VERSION           = 24.11.5
TmpFS=/tmp

Cgroup Support Configuration:
PreemptMode = x

Slurmctld(primary) at head is UP
"""
    fake.script("scontrol", Reply(text))
    config = fake.slurm().show_config()
    assert config["PreemptMode"] == "REQUEUE" and config["PrologFlags"] == "" and config["SlurmctldHost[0]"] == "head"
    assert config["TmpFS"] == "/tmp"
    for words, version in [
        ("slurm 24.11.5\n", (24, 11, 5)),
        ("slurm-wlm 22.05.8\n", (22, 5, 8)),
        ("slurm 26.05.0-rc1", (26, 5, 0)),
        ("?", None),
    ]:
        fake.script("scontrol", Reply(words))
        assert fake.slurm().version() == version
