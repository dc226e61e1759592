"""Answers of Slurm, and the state that follows. Times are seconds after the submission."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seatrial.slurm.state import JobRef
from seatrial.slurm.state_records import Own
from seatrial.slurm.table import iso
from tests.slurm_room.fakes import Reply, account_row, lines, queue_row

RUN = "nano-gate-20261201-000000-abcdef"
SUBMITTED = 1_800_000_000
REF = JobRef(RUN, "7", "ada", iso(SUBMITTED), Path("/nonexistent"))
SILENT = Own("its supervisor has recorded nothing yet")

NO_ACCOUNTING = Reply(err="Slurm accounting storage is disabled\n", rc=1)
NO_DATABASE = Reply(
    err="sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: "
    "Connection refused\nsacct: error: Problem talking to the database: Connection refused\n",
    rc=1,
)
AWAY = Reply(err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", rc=1)
TIMED_OUT = Reply(err="slurm_load_jobs error: Socket timed out on send/recv operation\n", rc=1)
NO_SUCH_JOB = Reply(err="slurm_load_jobs error: Invalid job id specified\n", rc=1)
EMPTY = Reply()
SCONTROL = (
    "JobId=7 JobName={name} UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A Priority=1 Nice=0 Account=a QOS=normal "
    "JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode={code} "
    "RunTime=00:00:01 SubmitTime=1800000000 StartTime=1800000100 EndTime=1800000900 Partition=batch NodeList=n[1-2] "
    "NumNodes=2 Command=/a b/c=d.sh WorkDir=/x Comment=JobState=FAILED \n"
)


def queue(state: str, reason: str = "None", **more: Any) -> Reply:
    return Reply(lines(queue_row(7, RUN, state, reason=reason, **more)))


def accounting(*rows: list[object]) -> Reply:
    return Reply(lines(*rows))


def row(state: str, **more: Any) -> list[object]:
    return account_row(7, RUN, state, **more)


def scontrol(state: str, name: str = RUN, reason: str = "None", code: str = "0:0") -> Reply:
    return Reply(SCONTROL.format(name=name, state=state, reason=reason, code=code))


@dataclass(frozen=True)
class Case:
    queue: Reply
    accounting: Reply
    state: str
    final: bool
    source: str
    scontrol: Reply = AWAY
    own: Own = SILENT
    ref: JobRef = REF
    more: dict[str, Any] = field(default_factory=dict)


LATER = {"submitted": SUBMITTED + 2000, "started": SUBMITTED + 2100, "ended": SUBMITTED + 2900}
LAST = {"submitted": SUBMITTED + 4000, "started": SUBMITTED + 4100, "ended": SUBMITTED + 4900}
OPEN = {"ended": "Unknown"}
NEVER = {"started": "Unknown", "ended": "Unknown"}

CASES = {
    "waiting": Case(queue("PENDING", "Priority", started="N/A", nodes=""), EMPTY, "PENDING", False, "squeue",
                    more={"reason": "Priority", "started": None, "needs_action": None, "nodes": ""}),
    "waiting for an earlier job of the run": Case(queue("PENDING", "Dependency"), EMPTY, "PENDING", False, "squeue",
                                                  more={"needs_action": None, "started": None}),
    "running": Case(queue("RUNNING"), accounting(row("RUNNING", **OPEN)), "RUNNING", False, "squeue",
                    more={"nodes": "n[1-2]", "started": iso(SUBMITTED + 100), "ended": None, "restarts": 0,
                          "exit_code": None, "reason": ""}),
    "finishing": Case(queue("COMPLETING"), accounting(row("FAILED", code="9:0")), "COMPLETING", False, "squeue",
                      more={"restarts": 0, "exit_code": None}),
    "ended, and the controller remembers": Case(
        queue("FAILED", "NonZeroExitCode", ended=SUBMITTED + 900),
        accounting(row("FAILED", code="81:0", derived="7:0")),
        "FAILED", True, "squeue",
        more={"exit_code": "81:0", "derived_exit_code": "7:0", "ended": iso(SUBMITTED + 900)}),
    "ended, and only the controller knows": Case(queue("COMPLETED"), NO_ACCOUNTING, "COMPLETED", True, "squeue",
                                                 more={"exit_code": None}),
    "ended, and only accounting knows": Case(
        NO_SUCH_JOB, accounting(row("TIMEOUT")), "TIMEOUT", True, "sacct",
        more={"nodes": "n[1-2]", "exit_code": "0:0", "ended": iso(SUBMITTED + 900), "notes": ()}),
    "a signal's number as a code, the true one only derived": Case(
        EMPTY, accounting(row("FAILED", code="9:0", derived="0:9")), "FAILED", True, "sacct",
        more={"exit_code": "9:0", "derived_exit_code": "0:9"}),
    "cancelled by somebody": Case(EMPTY, accounting(row("CANCELLED by 0")), "CANCELLED", True, "sacct",
                                  more={"reason": "by 0"}),
    "requeued, waiting": Case(queue("PENDING", "BeginTime", started=SUBMITTED + 2100),
                              accounting(row("REQUEUED")), "PENDING", False, "squeue", more={"restarts": 1}),
    "requeued, running": Case(
        queue("RUNNING"), accounting(row("REQUEUED"), row("RUNNING", restarts=1, **LATER | OPEN)), "RUNNING", False,
        "squeue", more={"restarts": 1}),
    "requeued twice, done; records in any order": Case(
        EMPTY, accounting(row("COMPLETED", restarts=2, **LAST), row("REQUEUED"), row("REQUEUED", restarts=1, **LATER)),
        "COMPLETED", True, "sacct", more={"restarts": 2, "ended": iso(SUBMITTED + 4900)}),
    "preempted and back in the queue": Case(
        queue("PENDING", "BeginTime"), accounting(row("PREEMPTED")), "PENDING", False, "squeue", more={"restarts": 1}),
    "preempted for good": Case(EMPTY, accounting(row("PREEMPTED")), "PREEMPTED", True, "sacct"),
    "preempted, and the queue does not answer": Case(AWAY, accounting(row("PREEMPTED")), "PREEMPTED", False, "sacct"),
    "a node failed and the job is back": Case(
        queue("RUNNING"), accounting(row("NODE_FAIL", code="1:0", failed="n2")), "RUNNING", False, "squeue"),
    "a node failed, never to return": Case(EMPTY, accounting(row("NODE_FAIL", code="1:0")), "NODE_FAIL", True, "sacct"),
    "requeued, and the queue does not answer": Case(TIMED_OUT, accounting(row("REQUEUED")), "REQUEUED", False, "sacct"),
    "shrunk by a dead node, running": Case(
        queue("RUNNING", nodes="n1"), accounting(row("RESIZING"), row("RUNNING", **OPEN)), "RUNNING", False, "squeue",
        more={"nodes": "n1", "restarts": 0}),
    "shrunk and done": Case(
        EMPTY, accounting(row("RESIZING"), row("COMPLETED", started=SUBMITTED + 500)), "COMPLETED", True, "sacct",
        more={"restarts": 0}),
    "shrunk and done, in a Slurm that counts no restarts": Case(
        EMPTY, accounting(row("RESIZING", restarts=""), row("COMPLETED", restarts="", started=SUBMITTED + 500)),
        "COMPLETED", True, "sacct", more={"restarts": 0}),
    "preempted, and the queue answers with an error and code 0": Case(
        replace(AWAY, rc=0), accounting(row("PREEMPTED")), "PREEMPTED", False, "sacct"),
    "shrunk, and nothing more is known": Case(EMPTY, accounting(row("RESIZING")), "UNKNOWN", False, "nobody"),
    "the end never reached accounting": Case(
        EMPTY, accounting(row("RUNNING", **OPEN)), "UNKNOWN", False, "nobody",
        more={"reason": "accounting says RUNNING, but the queue no longer has the job; " + SILENT.words}),
    "the same, but the supervisor left word": Case(
        EMPTY, accounting(row("RUNNING", **OPEN)), "COMPLETED", True, "run folder",
        own=Own("done", "COMPLETED", "0:0", ended="x"), more={"exit_code": "0:0", "reason": "done"}),
    "accounting is off, job running": Case(queue("RUNNING"), NO_ACCOUNTING, "RUNNING", False, "squeue",
                                           more={"notes": ("sacct: Slurm accounting storage is disabled",)}),
    "accounting is off, job gone": Case(
        EMPTY, NO_ACCOUNTING, "UNKNOWN", False, "nobody",
        more={"reason": "sacct: Slurm accounting storage is disabled; " + SILENT.words}),
    "accounting is off, job gone, the supervisor left word": Case(
        EMPTY, NO_ACCOUNTING, "FAILED", True, "run folder", own=Own("stop", "FAILED", "80:0"),
        more={"exit_code": "80:0"}),
    "the database is down, job running": Case(queue("RUNNING"), NO_DATABASE, "RUNNING", False, "squeue"),
    "the controller is away, job done": Case(AWAY, accounting(row("COMPLETED")), "COMPLETED", True, "sacct",
                                             more={"exit_code": "0:0"}),
    "the controller is away, job running": Case(AWAY, accounting(row("RUNNING", **OPEN)), "RUNNING", False, "sacct"),
    "squeue fails and scontrol answers": Case(
        TIMED_OUT, NO_ACCOUNTING, "RUNNING", False, "scontrol", scontrol=scontrol("RUNNING"), more={"restarts": 1}),
    "squeue fails, scontrol knows the end": Case(
        TIMED_OUT, NO_ACCOUNTING, "FAILED", True, "scontrol", scontrol=scontrol("FAILED", code="3:0"),
        more={"exit_code": "3:0"}),
    "squeue fails, scontrol does not have it": Case(
        TIMED_OUT, accounting(row("PREEMPTED")), "PREEMPTED", True, "sacct", scontrol=NO_SUCH_JOB),
    "scontrol shows another's job of that number": Case(
        TIMED_OUT, NO_ACCOUNTING, "UNKNOWN", False, "nobody",
        scontrol=scontrol("FAILED", "x JobState=FAILED UserId=b(1)")),
    "nobody answers": Case(AWAY, NO_DATABASE, "UNKNOWN", False, "nobody"),
    "squeue hangs up with code 0 and an error": Case(
        replace(AWAY, rc=0), NO_DATABASE, "UNKNOWN", False, "nobody", scontrol=TIMED_OUT),
    "accounting answers nothing but an error, with code 0": Case(
        EMPTY, replace(NO_DATABASE, rc=0), "UNKNOWN", False, "nobody"),
    "nobody answers, the supervisor left word": Case(
        AWAY, NO_DATABASE, "COMPLETED", True, "run folder", own=Own("done", "COMPLETED", "0:0")),
    "fresh, and not listed yet": Case(
        EMPTY, EMPTY, "UNKNOWN", False, "nobody",
        more={"reason": "submitted 60 s ago, and not listed yet; " + SILENT.words}),
    "purged long ago": Case(
        EMPTY, EMPTY, "UNKNOWN", False, "nobody", ref=replace(REF, submitted=iso(SUBMITTED - 10**7)),
        more={"reason": "Slurm has no job 7 of this run (any more); " + SILENT.words}),
    "never submitted": Case(EMPTY, EMPTY, "UNKNOWN", False, "nobody", ref=replace(REF, job_id=None, submitted=None),
                            more={"reason": "no job of it is on record; " + SILENT.words}),
    "the number was used before, by another user": Case(
        EMPTY, accounting(account_row(7, RUN, "FAILED", user="bob", uid=1001)), "UNKNOWN", False, "nobody"),
    "the number was used before, by us": Case(
        queue("RUNNING"), accounting(account_row(7, "old-run", "FAILED", submitted=SUBMITTED - 10**6), row("RUNNING")),
        "RUNNING", False, "squeue", more={"restarts": 0}),
    "a copy of our name, from long before": Case(
        EMPTY, accounting(row("FAILED", submitted=SUBMITTED - 10**6)), "UNKNOWN", False, "nobody"),
    "the number is another's by now": Case(
        Reply(lines(queue_row(7, "theirs", "FAILED", user="bob", uid=1001, submitted=SUBMITTED + 10**7))),
        accounting(row("COMPLETED"), account_row(7, "theirs", "FAILED", user="bob", uid=1001)),
        "COMPLETED", True, "sacct"),
    "somebody renamed the job": Case(
        Reply(lines(queue_row(7, "renamed", "RUNNING", submitted=SUBMITTED + 3))),
        accounting(account_row(7, "renamed", "REQUEUED", submitted=SUBMITTED + 3),
                   account_row(7, "renamed", "RUNNING", restarts=1, **LATER)), "RUNNING", False, "squeue",
        more={"restarts": 1}),
    "the user is known by number": Case(
        queue("RUNNING"), EMPTY, "RUNNING", False, "squeue", ref=replace(REF, user="1000")),
    "times in words of a Slurm that ignores our format": Case(
        queue("RUNNING", submitted="2027-01-15T08:00:00", started="2027-01-15T08:01:40"), EMPTY,
        "RUNNING", False, "squeue"),
    "start failed, held": Case(
        queue("PENDING", "launch failed requeued held", nodes=""),
        accounting(row("REQUEUED", failed="n2")), "PENDING", False, "squeue",
        more={"needs_action": "a node failed to start it and Slurm holds it: exclude that node, then release the job "
              "(n2)"}),
    "start failed, held, as scontrol says it": Case(
        TIMED_OUT, accounting(row("NODE_FAIL")), "PENDING", False, "scontrol",
        scontrol=scontrol("PENDING", reason="launch_failed_requeued_held"),
        more={"needs_action": "a node failed to start it and Slurm holds it: exclude that node, then release the job "
              "(n[1-2])"}),
    "requeued and held": Case(
        queue("PENDING", "job requeued in held state"), EMPTY, "PENDING", False, "squeue",
        more={"needs_action": "Slurm requeued and holds it: release or cancel it"}),
    "requeued and held, a state of its own": Case(
        queue("REQUEUE_HOLD"), EMPTY, "REQUEUE_HOLD", False, "squeue",
        more={"needs_action": "Slurm requeued and holds it: release or cancel it"}),
    "its dependency can never come": Case(
        queue("PENDING", "DependencyNeverSatisfied"), EMPTY, "PENDING", False, "squeue",
        more={"needs_action": "dependency_failed: the job it waits for did not pass: cancel it and submit again"}),
    "held by the user": Case(queue("PENDING", "JobHeldUser"), EMPTY, "PENDING", False, "squeue",
                             more={"needs_action": "it is held: release it"}),
    "asks for too much time": Case(queue("PENDING", "PartitionTimeLimit"), EMPTY, "PENDING", False, "squeue",
                                   more={"needs_action": "it asks for more time than allowed: cancel it"}),
    "a hold of long ago on a running job": Case(
        queue("RUNNING", "JobHeldUser"), EMPTY, "RUNNING", False, "squeue", more={"needs_action": None}),
    "garbage with code 0": Case(Reply("FAILED\n7\x1fFAILED\n\x1f\x1f"), Reply("7|FAILED|" + RUN + "\n"),
                                "UNKNOWN", False, "nobody"),
    "a torn answer": Case(Reply(lines(queue_row(7, RUN, "FAILED")).rstrip("\n")), EMPTY, "UNKNOWN", False, "nobody"),
    "a number shown twice": Case(
        Reply(lines(queue_row(7, RUN, "FAILED"), queue_row(7, RUN, "PENDING"))), EMPTY, "PENDING", False, "squeue"),
}  # fmt: skip
