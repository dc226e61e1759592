"""What ``scontrol --oneliner show job`` says of the job; lines of a real Slurm 24.11."""

from __future__ import annotations

import time

import pytest

from seatrial.supervise.job_watch import JobFacts, JobWatch, parse

RUNNING = (
    "JobId=1 JobName=wrap UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0 Account=research "
    "QOS=normal JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:03 TimeLimit=00:05:00 TimeMin=N/A SubmitTime=2026-12-02T17:42:48 EligibleTime=2026-12-02T17:42:48 "
    "AccrueTime=2026-12-02T17:42:48 StartTime=2026-12-02T17:42:48 EndTime=2026-12-02T17:47:48 Deadline=N/A "
    "SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-12-02T17:42:48 Scheduler=Backfill Partition=batch "
    "AllocNode:Sid=localhost:22241 ReqNodeList=(null) ExcNodeList=(null) NodeList=gb200-[001-002] BatchHost=gb200-001 "
    "NumNodes=2 NumCPUs=2 NumTasks=2 WorkDir=/tmp/w Comment=JobState=FAILED Restarts=7 EndTime=x  StdIn=/dev/null \n"
)
REQUEUED = (
    "JobId=1 JobName=wrap UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901758 Nice=0 Account=research "
    "QOS=normal JobState=PENDING Reason=BeginTime Dependency=(null) Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 "
    "ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:05:00 TimeMin=N/A SubmitTime=2026-12-02T17:42:51 "
    "EligibleTime=2026-12-02T17:44:52 AccrueTime=Unknown StartTime=2026-12-02T17:44:52 EndTime=2026-12-02T17:49:52 "
    "Deadline=N/A SuspendTime=None SecsPreSuspend=0 Partition=batch NodeList= NumNodes=2-2 \n"
)
PREEMPTED = RUNNING.replace(
    "Deadline=N/A", "Deadline=N/A PreemptEligibleTime=2026-12-02T17:42:48 PreemptTime=2026-12-02T17:43:00"
)
NODES = "gb200-[001-002]"


def local(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        (RUNNING, JobFacts("RUNNING", 0, local("2026-12-02T17:47:48"), nodes=NODES)),
        (REQUEUED, JobFacts("PENDING", 1, local("2026-12-02T17:49:52"))),
        (PREEMPTED, JobFacts("RUNNING", 0, local("2026-12-02T17:47:48"), local("2026-12-02T17:43:00"), nodes=NODES)),
        (PREEMPTED.replace("PreemptTime=2026-12-02T17:43:00", "PreemptTime=None"),
         JobFacts("RUNNING", 0, local("2026-12-02T17:47:48"), nodes=NODES)),
        (RUNNING.replace("EndTime=2026-12-02T17:47:48", "EndTime=Unknown"), JobFacts("RUNNING", 0, nodes=NODES)),
        ("JobState=RUNNING", JobFacts("RUNNING", 0)),
        ("slurm_load_jobs error: Invalid job id specified", None),
        ("", None),
    ],
)  # fmt: skip
def test_parse(said: str, facts: JobFacts | None) -> None:
    assert parse(said) == facts


@pytest.mark.parametrize(
    ("said", "restart", "taken_away", "preempted"),
    [
        (None, 0, False, False),
        (RUNNING, 0, False, False),
        (PREEMPTED, 0, False, True),
        (REQUEUED, 0, True, False),
        (REQUEUED, 1, True, False),  # requeued before it began to run again: the count is the same
        (REQUEUED.replace("PENDING", "RUNNING"), 0, True, False),
        (REQUEUED.replace("PENDING", "RUNNING"), 1, False, False),
    ],
)
def test_what_it_means(said: str | None, restart: int, taken_away: bool, preempted: bool) -> None:
    watch = JobWatch({"SLURM_JOB_ID": "1", "SLURM_RESTART_COUNT": str(restart), "SLURM_JOB_END_TIME": "1800000000"})
    watch._facts = parse(said) if said else None
    is_away = watch.facts is not None and watch.facts.taken_away(restart)
    assert (is_away, watch.preempted) == (taken_away, preempted)
    assert watch.end_time == (1800000000 if said is None else watch._facts and watch._facts.end_time)


def test_a_job_without_an_end() -> None:
    assert JobWatch({"SLURM_JOB_ID": "1"}).end_time is None
