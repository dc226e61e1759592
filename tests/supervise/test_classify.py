"""From what an attempt left to one class: tables of situations, 512 ranks among them, and anything at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.spec.failures import load_failures
from seatrial.supervise import classes, exit_codes
from seatrial.supervise.classify import Classified, Evidence, classify
from seatrial.supervise.exits import RankEnd
from seatrial.supervise.outcome import COMPLETED, FAILED, STOPPED, Outcome

ROWS = load_failures(site=False)
RUNNING = {"state": "RUNNING", "preempt_time": None}
RESET = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:1"
)
WATCHDOG = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, OpType=BROADCAST)"
XID = "NVRM: Xid (PCI:0000:23:00): 79, GPU has fallen off the bus."
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
OOM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
NAN = (
    "RuntimeError: Rank 1, node n2, device 0, iteration 7: Unexpected result nan (message='found NaN in local grad norm"
)


def record(
    code: int = 1, exception: str | None = "RuntimeError", message: str = "lost", second: int = 1
) -> dict[str, Any]:
    return {"code": code, "exception": exception, "message": message, "time": f"2026-12-01T04:00:{second:02}+00:00"}


def good(rank: int) -> RankEnd:
    return RankEnd(rank, 0, record={"code": 0})


def bad(rank: int, status: int = 1, look: int = 4, **of_record: Any) -> RankEnd:
    return RankEnd(rank, status, look, record=record(**of_record) if status > 0 else None)


def case(
    *ends: RankEnd,
    tails: Mapping[int, Sequence[str]] | None = None,
    outcome: str = FAILED,
    exit_code: int = 1,
    **more: Any,
) -> Evidence:
    """Four ranks on two nodes that made steps 1 to 6, unless said otherwise."""
    known = {end.rank: end for end in ends}
    all_ends = [known.get(rank, RankEnd(rank, -9, 5, killed=True)) for rank in range(4)]
    first = next((end for end in all_ends if end.bad), None)
    return Evidence(
        ends=all_ends,
        outcome=Outcome(outcome, "what was seen", exit_code, first.rank if first else None),
        nodes_of_ranks={rank: f"n{rank // 2 + 1}" for rank in range(4)},
        tails=tails or {},
        rows=ROWS,
        **{"first_step": 1, "last_step": 6, **more},
    )


def hang(*waiting: int, silent: Sequence[int] = ()) -> dict[str, Any]:
    stacks = {str(rank): ["torch/distributed/distributed_c10d.py:2696 wait"] for rank in waiting}
    return {
        "phase": "step",
        "silent_seconds": 184.0,
        "limit_seconds": 180.0,
        "stacks": stacks,
        "without_stack": list(silent),
    }


def told(evidence: Evidence) -> tuple[str, int | None, str | None]:
    found = classify(evidence)
    return found.name, found.rank, found.node


ALL_GOOD = [good(rank) for rank in range(4)]
STOPPED_WELL: dict[str, Any] = {"outcome": STOPPED, "exit_code": exit_codes.STOPPED}
START: dict[str, Any] = {"first_step": None, "last_step": None}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        # Proven, whatever else was said.
        (case(*ALL_GOOD, outcome=COMPLETED, exit_code=0, stop="SIGUSR2", slurm={"state": "TIMEOUT"}),
         ("complete", None)),
        # A person.
        (case(*ALL_GOOD, stop="the stop file", slurm=RUNNING, **STOPPED_WELL), ("cancelled", None)),
        (case(*ALL_GOOD, stop="seatrial stop", slurm=RUNNING, **STOPPED_WELL), ("cancelled", None)),
        (case(*ALL_GOOD, stop="SIGINT", slurm=RUNNING, **STOPPED_WELL), ("cancelled", None)),
        (case(*ALL_GOOD, stop="SIGTERM", **STOPPED_WELL), ("cancelled", None)),
        (case(*ALL_GOOD, stop="SIGTERM", slurm={"state": "CANCELLED by 1000"}, **STOPPED_WELL), ("cancelled", None)),
        (case(bad(1, -9), slurm={"state": "CANCELLED"}), ("cancelled", 1)),
        (case(bad(1), stop="the stop file", tails={1: ["OSError: [Errno 28] No space left on device"]}),
         ("cancelled", 1)),
        (case(stop="SIGTERM", outcome=STOPPED, exit_code=exit_codes.ENDED_AT_ONCE, slurm=RUNNING), ("cancelled", None)),
        # Preempted: with grace, without, and by an operator's requeue.
        (case(*ALL_GOOD, stop="SIGTERM to the ranks", slurm={**RUNNING, "preempt_time": 1.7e9}, **STOPPED_WELL),
         ("preempted", None)),
        (case(*ALL_GOOD, stop="SIGUSR2", slurm={"state": "PREEMPTED"}, seconds_left=30.0, **STOPPED_WELL),
         ("preempted", None)),
        (case(bad(0, -9), bad(1, -9), slurm={"state": "PREEMPTED"}), ("preempted", 0)),
        (case(*ALL_GOOD, stop="SIGTERM", slurm={"state": "REQUEUED"}, **STOPPED_WELL), ("preempted", None)),
        (case(bad(0, -9), srun_lines=["slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-12-01T04:00:00 DUE TO "
                                      "PREEMPTION ***"], slurm=RUNNING), ("preempted", 0)),
        (case(*ALL_GOOD, stop="SIGTERM to the ranks", slurm=RUNNING, **STOPPED_WELL), ("unknown", None)),
        # Time.
        (case(*ALL_GOOD, stop="the time limit", slurm=RUNNING, **STOPPED_WELL), ("time_limit", None)),
        (case(*ALL_GOOD, stop="SIGUSR2", slurm=RUNNING, seconds_left=389.0, **STOPPED_WELL), ("time_limit", None)),
        (case(*ALL_GOOD, stop="SIGUSR2", slurm=RUNNING, seconds_left=391.0, **STOPPED_WELL), ("cancelled", None)),
        (case(*ALL_GOOD, stop="SIGTERM", slurm=RUNNING, seconds_left=391.0, **STOPPED_WELL), ("cancelled", None)),
        (case(*ALL_GOOD, stop="SIGUSR2", slurm=RUNNING, seconds_left=600.0, signal_lead=600.0, **STOPPED_WELL),
         ("time_limit", None)),
        (case(*ALL_GOOD, stop="SIGUSR2", slurm=RUNNING, **STOPPED_WELL), ("unknown", None)),
        (case(bad(2, -9), slurm={"state": "TIMEOUT"}), ("time_limit", 2)),
        (case(bad(2), slurm={"state": "TIMEOUT"}, tails={2: [RESET]}), ("time_limit", 2)),
        (case(bad(2), slurm={"state": "TIMEOUT"}, tails={2: [OOM]}), ("oom_gpu", 2)),
        (case(bad(2, -15), slurm=RUNNING, tails={2: ["slurmstepd: error: *** STEP 7.0 ON n2 CANCELLED AT "
                                                     "2026-12-01T04:00:00 DUE TO TIME LIMIT ***"]}), ("time_limit", 2)),
        (case(bad(2), stop="the time limit", slurm=RUNNING, tails={2: ["OSError: [Errno 28] No space left on device"]}),
         ("disk_full", 2)),
        # Results that differ.
        (case(bad(0, 16), bad(1, 16), tails={0: [NAN]}), ("result_validation", 0)),
        (case(bad(1, 17)), ("result_validation", 1)),
        # What the rank says.
        (case(bad(1), tails={1: [NAN, "", RESET]}), ("nan", 1)),
        (case(bad(3), tails={3: ["x", OOM], 0: []}), ("oom_gpu", 3)),
        (case(bad(3, message="found NaN in local forward loss calculation")), ("nan", 3)),
        (case(bad(3), tails={3: ["NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3"]}), ("unknown", 3)),
        (case(bad(3), tails={3: ["torch.AcceleratorError: CUDA error: an illegal memory access was encountered"]}),
         ("unknown", 3)),
        (case(bad(0), bad(2), tails={0: [WATCHDOG], 2: [RESET]}), ("network", 0)),
        # Killed outright.
        (case(bad(1, -9)), ("unknown", 1)),
        (case(bad(1, -9), tails={1: [WATCHDOG]}), ("unknown", 1)),
        (case(bad(1, -9), srun_lines=[OOM_KILL], slurm=RUNNING), ("oom_host", 1)),
        (case(bad(1, -9), slurm={"state": "OUT_OF_MEMORY"}), ("oom_host", 1)),
        (case(bad(1, -9), slurm={"state": "FAILED", "exit_code": "0:125"}), ("oom_host", 1)),
        (case(bad(1, -9), tails={0: [OOM_KILL], 1: []}, slurm=RUNNING), ("oom_host", 1)),
        (case(bad(1), tails={1: ["RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "]}),
         ("unknown", 1)),
        (case(bad(1), tails={1: ["RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "]},
              srun_lines=[OOM_KILL]), ("oom_host", 1)),
        (case(bad(1), tails={1: [OOM]}, slurm={"state": "OUT_OF_MEMORY"}), ("oom_gpu", 1)),
        (case(bad(1, -11)), ("unknown", 1)),
        (case(RankEnd(1, 1, 4), tails={1: [WATCHDOG]}), ("network", 1)),
        # Mistakes count before a run's first step only.
        (case(bad(0, exception="AssertionError", message=""), **START), ("user_error", 0)),
        (case(bad(0, exception="ModuleNotFoundError", message="No module named 'x'"), **START), ("user_error", 0)),
        (case(bad(0, 2, code=2, exception=None), tails={0: ["rank.py: error: unrecognized arguments: --x"]}, **START),
         ("user_error", 0)),
        (case(bad(0, 2, code=2, exception=None), **START), ("user_error", 0)),
        (case(bad(0, 2, code=2, exception=None)), ("unknown", 0)),
        (case(bad(0, 2, code=2, exception="SeatrialError", message="no data")), ("user_error", 0)),
        (case(bad(0, exception="AssertionError", message="")), ("unknown", 0)),
        (case(bad(0, exception="ImportError", message="x"), start_step=50, **START), ("unknown", 0)),
        (case(bad(0, exception="AssertionError", message="One or both of the .idx and .bin files cannot be found")),
         ("data_error", 0)),
        # All ended well, and yet too early.
        (case(*ALL_GOOD, exit_code=80, tails={0: [">> '--exit-on-missing-checkpoint' set ... exiting. <<"]}, **START),
         ("checkpoint_bad", 0)),
        (case(*ALL_GOOD, exit_code=80), ("unknown", None)),
        # Ours.
        (case(exit_code=exit_codes.HUNG_AT_END), ("hang", None)),
        (case(exit_code=exit_codes.HUNG), ("hang", None)),
        (case(exit_code=exit_codes.HUNG, hang=hang(0, 1, 3, silent=[2])), ("hang", 2)),
        (case(exit_code=exit_codes.HUNG, hang=hang(0, 1, silent=[2, 3])), ("hang", 2)),
        (case(exit_code=exit_codes.HUNG, hang=hang(0, 2, silent=[1, 3])), ("hang", None)),  # of two nodes
        (case(exit_code=exit_codes.HUNG, hang=hang(0, 1, 2, 3)), ("hang", None)),
        (case(exit_code=exit_codes.HUNG, hang=hang(0, 1, 3, silent=[2]), slurm={"down_nodes": ["n1"]}),
         ("node_failure", 0)),
        (case(exit_code=exit_codes.HUNG, hang=hang(0, 1, 3, silent=[2]), stop="seatrial stop", outcome=FAILED),
         ("cancelled", None)),
        (case(bad(1), exit_code=exit_codes.HUNG, hang=hang(0, 1, 3, silent=[2])), ("unknown", 1)),
        (case(exit_code=exit_codes.RESUME_MISMATCH), ("resume_mismatch", None)),
        (case(exit_code=exit_codes.SUPERVISOR_ERROR), ("supervisor_error", None)),
        (case(bad(1, exit_codes.HUNG_AT_END), exit_code=exit_codes.HUNG_AT_END), ("unknown", 1)),
        (case(bad(1, exit_codes.RESUME_MISMATCH), exit_code=exit_codes.RESUME_MISMATCH), ("unknown", 1)),
        (case(tails={0: ["[seatrial] hang: no step for 600 s"]}), ("hang", 0)),
        # A person knows better.
        (case(bad(1, -9), slurm={"state": "CANCELLED"}, forced="gpu_fault"), ("gpu_fault", 1)),
        (case(bad(1, 16), forced="martian"), ("result_validation", 1)),
    ],
)  # fmt: skip
def test_classes(evidence: Evidence, expected: tuple[str, int | None]) -> None:
    found = classify(evidence)
    assert (found.name, found.rank) == expected, found.why
    assert found.node == (None if found.rank is None else f"n{found.rank // 2 + 1}")
    assert found.why


@pytest.mark.parametrize(
    ("more", "node", "rank"),
    [
        ({"srun_lines": ["srun: error: Node failure on n2"]}, "n2", 2),
        ({"srun_lines": ["slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-12-01T04:00:00 DUE TO NODE FAILURE, "
                         "SEE SLURMCTLD LOG FOR DETAILS ***", "srun: error: Node failure on n2"]}, "n2", 2),
        ({"slurm": {"state": "NODE_FAIL", "failed_node": "n2"}}, "n2", 2),
        ({"slurm": {"state": "NODE_FAIL", "failed_node": "None"}}, "n1", 0),
        ({"slurm": {"state": "RUNNING", "down_nodes": ["n2"]}}, "n2", 2),
        ({"slurm": {"state": "REQUEUED", "down_nodes": ["n2"]}}, "n2", 2),
        ({"slurm": {"state": "RUNNING", "down_nodes": ["n9"]}}, "n9", None),
        ({"slurm": {"state": "BOOT_FAIL"}}, "n1", 0),
    ],
)  # fmt: skip
def test_a_node_that_went_down_is_named(more: dict[str, Any], node: str, rank: int | None) -> None:
    evidence = case(bad(0), bad(1), tails={0: [RESET], 1: [RESET]}, **more)
    assert told(evidence) == (classes.NODE_FAILURE, rank, node)


NO_ANSWERS = [None, "", "None", "Unknown", "N/A", "(null)", 0, [], {}]


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        *((key, answer) for key in ("state", "preempt_time", "failed_node", "down_nodes") for answer in NO_ANSWERS),
        *(("state", state) for state in ("RUNNING", "COMPLETING", "FAILED", "COMPLETED")),
        ("exit_code", "1:0"),
        ("derived_exit_code", "0:125"),  # the highest of all steps of the job, earlier attempts' too
    ],
)
def test_what_slurm_did_not_answer_is_no_evidence(key: str, answer: Any) -> None:
    assert told(case(bad(1), tails={1: [OOM]}, slurm={"state": "RUNNING", key: answer})) == ("oom_gpu", 1, "n1")


def big(
    odd: int, end: RankEnd, lines: Sequence[str], others: Sequence[str] = (WATCHDOG,), others_look: int = 4
) -> Evidence:
    """512 ranks, of which all but ``odd`` waited for it in vain."""
    ends = [end if rank == odd else bad(rank, look=others_look, second=rank % 50) for rank in range(512)]
    tails = {rank: [f"step {rank}", *(lines if rank == odd else others)] for rank in range(512)}
    return Evidence(
        ends, Outcome(FAILED, "", 1, 0), {rank: f"gb200-{rank // 4:03}" for rank in range(512)}, tails, rows=ROWS,
        last_step=99,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("evidence", "name"),
    [
        (big(377, bad(377, second=55), [XID]), "gpu_fault"),
        (big(377, bad(377, look=6, second=55), [XID]), "gpu_fault"),
        (big(377, bad(377, second=55), [WATCHDOG, OOM, RESET]), "oom_gpu"),
        (big(377, bad(377, -9), []), "unknown"),
        (big(377, bad(377, -9, look=6), [WATCHDOG]), "unknown"),
        (big(377, bad(377, look=6, exception="KeyError", message="'x'", second=55), []), "unknown"),
        (big(377, bad(377, look=3), [WATCHDOG]), "network"),
        (big(377, bad(377, second=55), ["slurmstepd: error: Node failure on gb200-094"]), "node_failure"),
    ],
)
def test_one_of_512_is_named(evidence: Evidence, name: str) -> None:
    found = classify(evidence)
    assert (found.name, found.rank, found.node) == (name, {"node_failure": 376}.get(name, 377), "gb200-094"), found.why
    assert found.lines[0] == f"step {found.rank}"


def test_a_cause_that_came_much_later_is_none() -> None:
    evidence = big(377, bad(377, look=9), [OOM])
    assert classify(evidence).rank == 0


def test_the_line_that_decided_and_the_exit_stand_in_the_reason() -> None:
    found = classify(case(bad(3, message="boom"), tails={3: [str(n) for n in range(40)] + [OOM]}))
    assert found == Classified(
        "oom_gpu", f"rank 3 on n2 ended with exit code 1: RuntimeError: boom; its log says: {OOM}", 3, "n2", 7,
        (*map(str, range(26, 40)), OOM),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("evidence", "step"),
    [
        (case(bad(1)), 7),
        (case(bad(1), **START), 1),
        (case(bad(1), start_step=50, **START), 51),
        (case(bad(1), last_step=9, tails={1: [NAN]}), 10),  # Megatron's own count in that line is off by one
        (case(*ALL_GOOD, stop="the time limit", slurm=RUNNING, **STOPPED_WELL), None),
        (case(*ALL_GOOD, outcome=COMPLETED, exit_code=0), None),
    ],
)
def test_the_step_that_failed(evidence: Evidence, step: int | None) -> None:
    assert classify(evidence).step == step


def test_srun_names_the_task_that_was_out_of_memory() -> None:
    evidence = case(bad(0), bad(3, -9), tails={0: [RESET]}, srun_lines=["srun: error: n2: task 3: Out Of Memory"])
    assert told(evidence) == ("oom_host", 3, "n2")


@pytest.mark.parametrize("said", ["Unable to create step for job 7: Requested nodes are busy", "x"])
def test_a_step_that_never_started_blames_no_rank(said: str) -> None:
    ends = [RankEnd(rank, 1, 1) for rank in range(4)]
    found = classify(case(*ends, srun_lines=[f"srun: error: {said}"], **START))
    assert (found.name, found.rank) == ("unknown", None if said != "x" else 0)
    assert said == "x" or said in found.why


def test_an_attempt_whose_supervisor_was_lost_is_told_by_the_ranks_own_records() -> None:
    ends = [RankEnd(0, None, record={"code": 0}), RankEnd(1, None, record=record(message="CUDA out of memory. Tried"))]
    lost = replace(case(), ends=ends, outcome=Outcome(FAILED, "its supervisor ended without a record", 84))
    assert told(replace(lost, outcome=replace(lost.outcome, exit_code=1))) == ("oom_gpu", 1, "n1")


def test_without_a_table_only_exits_and_slurm_speak() -> None:
    assert classify(replace(case(bad(1), tails={1: [OOM]}), rows=())).name == "unknown"
    assert classify(replace(case(bad(1, 17), tails={1: [OOM]}), rows=())).name == "result_validation"


LINES = st.one_of(st.sampled_from([row["example"] for row in ROWS]), st.text(max_size=20))
RECORDS = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from(["code", "exception", "message", "time", "host"]),
        st.one_of(st.none(), st.integers(-1, 200), st.sampled_from(["AssertionError", "SeatrialError", "x\ny"])),
    ),
)
ENDS = st.lists(
    st.builds(
        RankEnd,
        st.integers(0, 5),
        st.one_of(st.none(), st.integers(-64, 255)),
        st.integers(0, 9),
        st.booleans(),
        RECORDS,
    ),
    max_size=6,
)
SLURM = st.dictionaries(
    st.sampled_from(["state", "exit_code", "derived_exit_code", "reason", "failed_node", "preempt_time", "down_nodes"]),
    st.one_of(
        st.none(), st.integers(), st.text(max_size=8), st.lists(st.text(max_size=3), max_size=2),
        st.sampled_from(["RUNNING", "PREEMPTED", "CANCELLED by 0", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "0:125"]),
    ),
)  # fmt: skip
STEPS = st.one_of(st.none(), st.integers(0, 99))


@given(
    st.builds(
        Evidence,
        ends=ENDS,
        outcome=st.builds(
            Outcome, st.sampled_from([COMPLETED, FAILED, STOPPED]), st.text(max_size=9), st.integers(0, 200), STEPS
        ),
        nodes_of_ranks=st.dictionaries(st.integers(0, 5), st.text(min_size=1, max_size=3)),
        tails=st.dictionaries(st.integers(0, 6), st.lists(LINES, max_size=3)),
        srun_lines=st.lists(LINES, max_size=3),
        stop=st.one_of(st.none(), st.sampled_from(["SIGUSR2", "SIGTERM", "the time limit", "the stop file", "?"])),
        slurm=SLURM,
        first_step=STEPS,
        last_step=STEPS,
        start_step=STEPS,
        seconds_left=st.one_of(st.none(), st.floats()),
        rows=st.one_of(st.just(ROWS), st.just(()), st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=3)))),
        forced=st.one_of(st.none(), st.text(max_size=3)),
    )
)
def test_there_is_always_a_known_class(evidence: Evidence) -> None:
    found = classify(evidence)
    assert found.name in classes.MEANINGS
    assert (found.name == classes.COMPLETE) == (evidence.outcome.outcome == COMPLETED)
    assert len(found.lines) <= 15
    assert found.step is None or evidence.outcome.outcome != STOPPED or found.step >= 0


def test_the_docs_explain_every_class() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "failures.md").read_text()
    assert [name for name in classes.MEANINGS if f"`{name}`" not in page] == []
